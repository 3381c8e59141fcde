/* SPDX-License-Identifier: Apache-2.0 */
/* case.c - see case.h. Which cases there are is decided here and nowhere else; how one is run is subject_run.c's
 * business. */
#include "workbench/case.h"
#include "core/core.h"
#include "workbench/subject.h"
#include <stdio.h>
#include <string.h>

/* ---- targets ---- */

/* The tiers are in order of preference; what is none ("auto") is above all. */
static int rank_of(const char *tier)
{
  int k = 0;
  while (k < QN_TIER_COUNT && strcmp(qn_tier_name((qn_tier)k), tier)) k++;
  return k;
}

size_t qn_targets_of(const qn_op *op, int index, qn_target *targets, size_t most)
{
  size_t n = 0, count = qn_op_variant_count(&op->info);
  char mask[32];
  if (qn_option_text(QN_OPTION_CPU, mask, sizeof mask) != QN_OK) return 0;
  int allowed = rank_of(mask);
  for (size_t k = 0; k < count && n < most; k++) {
    qn_variant variant = {.size = sizeof variant};
    if (qn_op_variant_at(&op->info, k, &variant) != QN_OK) continue;
    qn_target *t = &targets[n++];
    *t = (qn_target){.op = op, .runs = variant.available};
    snprintf(t->backend, sizeof t->backend, "%s", variant.backend);
    snprintf(t->variant, sizeof t->variant, "%s", variant.name);
    snprintf(t->why, sizeof t->why, "%s", variant.why);
    t->device.kind = !strcmp(variant.backend, "cpu")        ? QN_CPU
                     : !strcmp(variant.backend, "emulator") ? QN_EMULATOR
                                                            : QN_CUDA;
    t->device.index = t->device.kind == QN_CUDA ? index : 0;
    if (t->device.kind == QN_CPU && t->runs && rank_of(variant.name) > allowed) {
      t->runs = false;
      snprintf(t->why, sizeof t->why, "the option \"cpu\" (QUERN_CPU) allows no more than %s", mask);
    }
  }
  return n;
}

qn_status qn_target_select(const qn_target *target)
{
  return qn_option_set("cpu", target->device.kind == QN_CPU ? target->variant : NULL);
}

void qn_row_name(const qn_op_info *op, size_t row, char *text, size_t bytes)
{
  qn_text name = {0};
  for (size_t r = 0; r < op->n_tensors; r++)
    qn_text_add(&name, "%s%s", r ? " " : "",
                op->types[row].tensor[r].access ? qn_dtype_name(op->types[row].tensor[r].dtype) : "-");
  snprintf(text, bytes, "%s", name.at ? name.at : "");
  qn_text_free(&name);
}

/* The role whose type names a row in a word: the type of the first role that has not the same in all of them. */
static size_t row_role(const qn_op_info *op)
{
  for (size_t role = 0; role < op->n_tensors; role++)
    for (size_t row = 1; row < op->n_types; row++)
      if (op->types[row].tensor[role].dtype != op->types[0].tensor[role].dtype) return role;
  return 0;
}

const char *qn_row_type(const qn_op_info *op, size_t row)
{
  return qn_dtype_name(op->types[row].tensor[row_role(op)].dtype);
}

/* ---- layouts ---- */

static void add(qn_layout *layout, size_t n)
{
  if (layout->n < QN_LIST_MOST) layout->elements[layout->n++] = n;
}

/* Around every power of two: lanes, packs, tiles, blocks and chunks all are powers of two. */
static void add_around(qn_layout *layout, size_t from, size_t to)
{
  for (size_t n = from; n <= to; n *= 2) {
    add(layout, n - 1);
    add(layout, n);
    add(layout, n + 1);
  }
}

static const char *const layout_names[] = {
    "a handful",      "every size to 66",       "around powers of two to 8192",
    "primes",         "1500 tensors of 0 to 4", "around 16384 to 65536",
    "several chunks", "one long tensor",        "one tensor of whole packs",
};
enum {
  LAYOUT_HANDFUL,
  LAYOUT_SMALL,
  LAYOUT_POWERS,
  LAYOUT_PRIMES,
  LAYOUT_MANY,
  LAYOUT_LARGE,
  LAYOUT_CHUNKS,
  LAYOUT_LONG,
  LAYOUT_COUNT,
  LAYOUT_WHOLE = LAYOUT_COUNT /* in no round of all: where its kernel, which other lists do not ask for, is looked at */
};

void qn_layout_make(size_t k, qn_layout *layout)
{
  static const size_t handful[] = {33, 0, 1, 1000, 4, 127, 2048, 513}, primes[] = {2, 3, 97, 257, 1009, 4099, 10007},
                      chunks[] = {65536 + 1, 5, 65536 * 2, 0, 65536 - 1, 3}; /* 2, 1, 2, 0, 1, 1 of them */
  layout->name = layout_names[k];
  layout->n = 0;
  switch (k) {
  case LAYOUT_HANDFUL:
    for (size_t i = 0; i < sizeof handful / sizeof *handful; i++) add(layout, handful[i]);
    break;
  case LAYOUT_SMALL:
    for (size_t i = 0; i <= 66; i++) add(layout, i);
    break;
  case LAYOUT_POWERS: add_around(layout, 64, 8192); break;
  case LAYOUT_PRIMES:
    for (size_t i = 0; i < sizeof primes / sizeof *primes; i++) add(layout, primes[i]);
    break;
  case LAYOUT_MANY:
    for (size_t i = 0; i < 1500; i++) add(layout, i * 7 % 5);
    break;
  case LAYOUT_LARGE: add_around(layout, 16384, 65536); break;
  case LAYOUT_CHUNKS:
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) add(layout, chunks[i]);
    break;
  case LAYOUT_WHOLE: add(layout, 1 << 17); break; /* more than are launched one a thread */
  default: add(layout, 1000003); break;
  }
}

const char *qn_way_name(qn_way way)
{
  static const char *const names[QN_WAY_COUNT] = {"direct", "plan", "plan, moved gradients", "single tensors",
                                                  "shards"};
  return names[way];
}

/* ---- cases ---- */

/* The setting's params, given pointers not NULL: enough to ask the description, not to call the op. */
static void set_given(const qn_op_info *op, const qn_setting *setting, unsigned char params[QN_PARAMS_BYTES])
{
  static const uint64_t somewhere = 0;
  const void *pointer = &somewhere;
  memcpy(params, setting->params, QN_PARAMS_BYTES);
  for (size_t k = 0; k < op->n_params; k++)
    if (setting->given >> k & 1) memcpy(params + op->params[k].offset, &pointer, sizeof pointer);
}

typedef struct maker {
  const qn_target *target;
  const qn_op *op;
  qn_cases *cases;
  size_t capacity, row;
  qn_level level;
  uint64_t seed;
} maker;

/* A tensor's shards cannot count for each other: what is to be counted over the whole tensor must be given. */
static bool may_shard(const maker *m, const qn_setting *setting)
{
  unsigned char params[QN_PARAMS_BYTES];
  set_given(&m->op->info, setting, params);
  return !m->op->phases || m->op->phases(params) == 1;
}

static void add_case(maker *m, qn_case c)
{
  if (m->cases->n == m->capacity) return;
  if (!c.other) c.other = c.setting;
  if (c.way == QN_WAY_SHARD && !may_shard(m, c.setting)) c.way = QN_WAY_MOVED;
  c.more = "";
  c.beside = QN_BESIDE_BITS;
  c.number = m->cases->n;
  c.seed = qn_seed_mix(m->seed, c.number);
  m->cases->at[m->cases->n++] = c;
}

static const int pools[] = {0, 1, 2, 3, 7};
enum { N_POOLS = sizeof pools / sizeof *pools };

/* A setting by itself meets every way, pool and alignment in turn, on a list that is cheap. */
static void add_settings(maker *m)
{
  static const size_t cheap[] = {LAYOUT_HANDFUL, LAYOUT_SMALL, LAYOUT_PRIMES};
  const size_t row = m->row;
  for (size_t k = 0; k < m->cases->n_settings; k++)
    add_case(m, (qn_case){.setting = &m->cases->settings[k],
                          .layout = cheap[(k + row) % 3],
                          .alignment = (int)((k + row) % QN_ALIGN_COUNT),
                          .way = (qn_way)((k / 2 + row) % QN_WAY_COUNT),
                          .threads = pools[(k / 3 + row) % N_POOLS],
                          .steps = 2});
}

/* Every list at every alignment. The long ones only at one; a quick check has half of the others in each row. */
static void add_layouts(maker *m)
{
  const qn_level level = m->level;
  for (size_t layout = 0; layout < LAYOUT_COUNT; layout++)
    for (int alignment = 0; alignment < QN_ALIGN_COUNT; alignment++) {
      if (level < QN_FULL && layout >= LAYOUT_LARGE && alignment != (int)(layout % 2) * 2) continue;
      if (level == QN_QUICK && (layout > LAYOUT_LARGE || (layout + (size_t)alignment + m->row) % 2)) continue;
      size_t k = layout * QN_ALIGN_COUNT + (size_t)alignment;
      add_case(m, (qn_case){.setting = &m->cases->settings[k % 2 ? 0 : k * 7 % m->cases->n_settings],
                            .layout = layout,
                            .alignment = alignment,
                            .way = QN_WAY_DIRECT,
                            .threads = pools[k % N_POOLS],
                            .steps = 1});
    }
}

/* Every way with every pool, where a list has several chunks; fewer of them below the full level. */
static void add_ways(maker *m)
{
  for (int way = 0; way < QN_WAY_COUNT; way++)
    for (int pool = 0; pool < N_POOLS; pool++) {
      if (m->level < QN_FULL && (way + pool) % N_POOLS > 0) continue;
      size_t k = (size_t)(way * N_POOLS + pool);
      add_case(m, (qn_case){.setting = &m->cases->settings[k % 3 ? 0 : k * 5 % m->cases->n_settings],
                            .layout = m->level == QN_QUICK ? LAYOUT_POWERS : LAYOUT_CHUNKS,
                            .alignment = pool % QN_ALIGN_COUNT,
                            .way = (qn_way)way,
                            .threads = pools[pool],
                            .steps = 2});
    }
}

/* Eight steps, so that what is wrong by a bit shows as drift: of values, so short lists do. */
static void add_drift(maker *m)
{
  for (size_t k = 0; k < 4; k++)
    add_case(m, (qn_case){.setting = &m->cases->settings[k * (m->cases->n_settings - 1) / 3],
                          .layout = LAYOUT_PRIMES,
                          .alignment = (int)k,
                          .way = (qn_way)k,
                          .threads = pools[k],
                          .steps = 8});
}

static uint32_t flags_of(const qn_op *op, const qn_setting *setting, size_t row)
{
  unsigned char params[QN_PARAMS_BYTES];
  set_given(&op->info, setting, params);
  return op->flags ? op->flags(params, row) : 0;
}

/* A device kernel is compiled for each set of flags: keep the settings whose flags are among a few. Which ones turns
 * with the row, so that all flags are met over all rows. */
static void keep_few_flags(qn_cases *cases, const qn_op *op, size_t row, size_t most)
{
  enum { FLAGS_MOST = 64 };
  uint32_t seen[FLAGS_MOST];
  size_t n_seen = 0, kept = 0, n = cases->n_settings;
  for (size_t k = 0; k < n && n_seen < most && n_seen < FLAGS_MOST; k++) {
    size_t at = k ? 1 + (k + row * 5) % (n - 1) : 0; /* the defaults, then from another one on in each row */
    uint32_t flags = flags_of(op, &cases->settings[at], row);
    size_t i = 0;
    while (i < n_seen && seen[i] != flags) i++;
    if (i == n_seen) seen[n_seen++] = flags;
  }
  for (size_t k = 0; k < n; k++) {
    uint32_t flags = flags_of(op, &cases->settings[k], row);
    size_t i = 0;
    while (i < n_seen && seen[i] != flags) i++;
    if (i < n_seen) cases->settings[kept++] = cases->settings[k];
  }
  cases->dropped = n - kept;
  cases->n_settings = kept;
}

/* ---- what lists and plans may get wrong: in the row that has the most flags, with all of them at once ---- */

/* Every switch on, every enum at its last value, and given what only makes flags of it. pointers: every array as well.
 * steady: without what draws by chance, of which plans keep nothing. */
static qn_setting everything(const qn_op *op, size_t row, bool pointers, bool steady, uint64_t seed)
{
  qn_setting s = {.seed = seed};
  if (qn_op_defaults(&op->info, s.params, op->info.params_bytes) != QN_OK) return s;
  for (size_t k = 0; k < op->info.n_params; k++) {
    const qn_op_param *param = &op->info.params[k];
    const uint32_t flags = flags_of(op, &s, row);
    const double before = qn_param_get(param, s.params);
    if (param->type == QN_PARAM_BOOL) qn_param_set(param, s.params, 1);
    if (param->type == QN_PARAM_ENUM) qn_param_set(param, s.params, qn_param_most(param));
    if (steady && flags_of(op, &s, row) & op->random_flags) qn_param_set(param, s.params, before);
    if (param->type < QN_PARAM_DEVICE_F32) continue;
    s.given |= 1u << k;
    s.scalar[k] = 1;
    if (flags_of(op, &s, row) == flags && !pointers) s.given &= ~(1u << k);
    if (flags_of(op, &s, row) == flags && param->type == QN_PARAM_DEVICE_F32) s.given &= ~(1u << k);
  }
  return s;
}

static bool has_most_flags(const qn_op *op, size_t row)
{
  size_t best = 0;
  int most = -1;
  for (size_t k = 0; k < op->info.n_types; k++) {
    const qn_setting s = everything(op, k, false, false, 0);
    const int n = __builtin_popcount(flags_of(op, &s, k));
    if (n > most) most = n, best = k;
  }
  return row == best;
}

/* A list that no one launch holds, as a list, in a plan and in shards; a plan whose flags change and one whose lone
 * tensor is at times aligned for vectors. */
static void add_lists(maker *m)
{
  qn_setting *const first = m->cases->settings, *const all = first + m->cases->n_settings, *const pointers = all + 1,
                    *const others = all + 2, *const steady = all + 3;
  if (!has_most_flags(m->op, m->row)) return;
  *all = everything(m->op, m->row, false, false, 1);
  *pointers = everything(m->op, m->row, true, false, 2);
  *others = everything(m->op, m->row, true, false, 3);
  *steady = everything(m->op, m->row, false, true, 4);
  const qn_case cases[] = {
      {.setting = all, .layout = LAYOUT_MANY, .way = QN_WAY_DIRECT, .threads = 2, .steps = 1},
      {.setting = all, .layout = LAYOUT_MANY, .way = QN_WAY_MOVED, .threads = 3, .steps = 2},
      {.setting = pointers, .layout = LAYOUT_MANY, .alignment = QN_ALIGN_END, .way = QN_WAY_SHARD, .steps = 1},
      {.setting = pointers, .layout = LAYOUT_LARGE, .way = QN_WAY_SHARD, .threads = 3, .steps = 1},
      {.setting = all, .layout = LAYOUT_LARGE, .way = QN_WAY_DIRECT, .threads = 2, .steps = 1},
      {.setting = pointers, .other = others, .layout = LAYOUT_HANDFUL, .way = QN_WAY_PLAN, .steps = 3},
      {.setting = first, .other = steady, .layout = LAYOUT_HANDFUL, .way = QN_WAY_MOVED, .steps = 4},
      {.setting = first, .layout = LAYOUT_WHOLE, .way = QN_WAY_MOVED, .steps = 4}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) add_case(m, cases[k]);
}

static qn_status make_lists(maker *m)
{
  static const size_t host_flags[] = {1, 2, 64}, cuda_flags[] = {3, 6, 64};
  qn_cases *cases = m->cases;
  m->capacity = QN_SETTINGS_MOST + 256;
  qn_try(qn_try_allocate(&cases->settings, (QN_SETTINGS_MOST + 4) * sizeof *cases->settings, "the settings"));
  qn_try(qn_try_allocate(&cases->at, m->capacity * sizeof *cases->at, "the cases"));
  cases->n_settings =
      qn_settings_of(&m->op->info, m->level, qn_seed_mix(m->seed, m->row), cases->settings, QN_SETTINGS_MOST);
  if (!cases->n_settings) return QN_BAD_ARGUMENT;
  if (m->target->device.kind == QN_EMULATOR) keep_few_flags(cases, m->op, m->row, host_flags[m->level]);
  if (m->target->device.kind == QN_CUDA) keep_few_flags(cases, m->op, m->row, cuda_flags[m->level]);
  add_settings(m);
  add_layouts(m);
  add_ways(m);
  add_drift(m);
  add_lists(m);
  return QN_OK;
}

/* ---- of an op with a reference in double: its texts, each in its variations ---- */

bool qn_tiers_agree(const qn_op *op) { return op->info.agreement != QN_REDUCTION; }

/* NULL past the last. */
static const char *variation_of(const maker *m, size_t v)
{
  const qn_op_check *check = qn_op_check_of(m->op);
  if (check->variation) return check->variation(m->target->device.kind, m->row, v);
  return v ? NULL : "";
}

/* A device kernel is compiled for each variation on the emulator: below the full level cases take turns there, and
 * at the quick one everywhere, where there are variations. Settings that change nothing are every case's, at the quick
 * level every third's. */
static bool is_taken(const maker *m, size_t k, size_t v, size_t n_variations)
{
  const bool on_host = m->target->device.kind == QN_EMULATOR;
  const bool plain = !*variation_of(m, 0), turn = v == k % n_variations || (!v && plain);
  if (m->level == QN_FULL) return true;
  if (m->level == QN_QUICK) return turn && (k % 3 == 0 || (!on_host && !plain));
  return turn || !on_host;
}

/* Kernels of products mostly want 16 bytes. The ref tier alone has nothing new to show without a pool, and nothing has
 * that adds up in an order of its own. */
static qn_case text_case(const maker *m, size_t k, size_t v, size_t n_texts)
{
  static const qn_alignment alignments[2][4] = {{QN_ALIGN_END, QN_ALIGN_64, QN_ALIGN_16, QN_ALIGN_ELEMENT},
                                                {QN_ALIGN_64, QN_ALIGN_END, QN_ALIGN_16, QN_ALIGN_MIXED}};
  static const int threads[] = {0, 3, 2};
  const qn_device_kind kind = m->target->device.kind;
  const bool agree = qn_tiers_agree(m->op), ref = kind == QN_CPU && !strcmp(m->target->variant, "ref");
  const size_t turn = (k + v) % 4;
  return (qn_case){.number = v * n_texts + k,
                   .text = &qn_op_check_of(m->op)->cases[k],
                   .more = variation_of(m, v),
                   .beside = (kind != QN_CPU || !agree ? QN_BESIDE_DOUBLE : 0) |
                             (agree || kind != QN_CUDA ? QN_BESIDE_BITS : 0),
                   .alignment = alignments[agree][turn],
                   .way = turn % 2 ? QN_WAY_ELSEWHERE : QN_WAY_DIRECT,
                   .threads = !agree ? 3
                              : ref  ? 2 + (int)(k % 2)
                                     : threads[k % 3],
                   .seed = m->seed + v * n_texts + k};
}

static qn_status make_texts(maker *m, bool first)
{
  const qn_check_text *texts = qn_op_check_of(m->op)->cases;
  size_t n_texts = 0, n = 0;
  while (texts[n_texts].name) n_texts++;
  while (variation_of(m, n) && !(first && n)) n++;
  qn_try(qn_try_allocate(&m->cases->at, (n * n_texts + 1) * sizeof *m->cases->at, "the cases"));
  for (size_t v = 0; v < n; v++)
    for (size_t k = 0; k < n_texts; k++)
      if (is_taken(m, k, v, n)) m->cases->at[m->cases->n++] = text_case(m, k, v, n_texts);
  return QN_OK;
}

qn_status qn_cases_make(qn_cases *cases, const qn_target *target, size_t row, bool first, qn_level level, uint64_t seed)
{
  maker m = {target, target->op, cases, 0, row, level, seed};
  *cases = (qn_cases){0};
  const qn_status status = qn_op_check_of(target->op)->reference ? make_texts(&m, first) : make_lists(&m);
  if (status != QN_OK) qn_cases_free(cases);
  return status;
}

void qn_cases_free(qn_cases *cases)
{
  qn_release(cases->settings);
  qn_release(cases->at);
  *cases = (qn_cases){0};
}
