/* SPDX-License-Identifier: Apache-2.0 */
/* launch_shape.c - launch shapes as names, the choice among them, and the latest one of each thread. It launches
 * nothing.
 */
#include "op/launch_shape.h"
#include "core/core.h"
#include "op/call.h"
#include "op/tune.h"
#include <stdio.h>
#include <string.h>

enum { THREADS = 256, LEAST_THREADS = 64, MOST_THREADS = 1024, MOST_TUNED_PACKS = 4 };
/* Elements up to which single ones, and vectors of 4, are fastest: a launch over few takes as long as its first loads,
 * and has little code and work for many multiprocessors. Measured on an H200. */
enum { MOST_SINGLES = 1 << 16, MOST_FEW = 1 << 18 };
/* Vectors of a thread that counts: each costs an addition in memory less, and a small list has fewer blocks. */
enum { COUNT_PACKS = 4, COUNT_PACKS_OF_MANY = 16, MANY = 1 << 22 };

static const char *const shapes[QN_LAUNCH_KINDS + 1] = {"flat", "rows", "tiles", NULL};

/* ---- names ---- */

void qn_launch_shape_name(const qn_launch_shape *g, char name[QN_LAUNCH_SHAPE_NAME])
{
  const char *shape = (unsigned)g->shape < QN_LAUNCH_KINDS ? shapes[g->shape] : "?";
  int at =
      snprintf(name, QN_LAUNCH_SHAPE_NAME, "%s-%ux%ux%u", shape, g->threads % 10000, g->pack % 100, g->packs % 100);
  if (g->persistent && at > 0 && at < QN_LAUNCH_SHAPE_NAME)
    snprintf(name + at, QN_LAUNCH_SHAPE_NAME - (size_t)at, "-p%u", g->persistent % 100);
}

/* Digits up to a character that is none; false where there are none, too many, or a zero in front. */
static bool number(const char **at, uint32_t *value)
{
  size_t n = strspn(*at, "0123456789");
  if (n < 1 || n > 4 || **at == '0') return false;
  for (*value = 0; n; n--) *value = 10 * *value + (uint32_t)(*(*at)++ - '0');
  return true;
}

static bool word(const char **at, const char *text)
{
  size_t n = strlen(text);
  if (strncmp(*at, text, n)) return false;
  *at += n;
  return true;
}

static bool power(uint32_t value, uint32_t least, uint32_t most)
{
  return value >= least && value <= most && !(value & (value - 1));
}

static bool parse(const char *name, qn_launch_shape *g)
{
  const char *at = name + strcspn(name, "-");
  *g = (qn_launch_shape){.shape = QN_LAUNCH_KINDS};
  for (int k = 0; k < QN_LAUNCH_KINDS; k++)
    if (strlen(shapes[k]) == (size_t)(at - name) && !strncmp(name, shapes[k], (size_t)(at - name)))
      g->shape = (qn_launch_kind)k;
  if (g->shape == QN_LAUNCH_KINDS || !word(&at, "-") || !number(&at, &g->threads) || !word(&at, "x") ||
      !number(&at, &g->pack) || !word(&at, "x") || !number(&at, &g->packs))
    return false;
  if (*at && (!word(&at, "-p") || !number(&at, &g->persistent))) return false;
  return !*at;
}

qn_status qn_launch_shape_from_name(const char *name, qn_launch_shape *g)
{
  qn_launch_shape parsed;
  qn_require(name && g, "launch shape: the %s is NULL", name ? "result" : "name");
  qn_require(
      parse(name, &parsed),
      "launch shape: \"%.40s\" is no launch shape's name; \"flat-256x8x1\" (shape, threads, elements of a vector, "
      "vectors of a thread), \"rows-512x8x1\" and \"tiles-128x8x1-p2\" (blocks a multiprocessor that stay) would be",
      name);
  qn_require(power(parsed.threads, LEAST_THREADS, MOST_THREADS),
             "launch shape: \"%.40s\" has %u threads, %d to %d are possible, powers of two", name, parsed.threads,
             LEAST_THREADS, MOST_THREADS);
  qn_require(parsed.pack == 1 || power(parsed.pack, 4, 8),
             "launch shape: \"%.40s\" has vectors of %u elements, 1, 4 and 8 are possible", name, parsed.pack);
  qn_require(power(parsed.packs, 1, MOST_TUNED_PACKS),
             "launch shape: \"%.40s\" has %u vectors a thread, 1, 2 and 4 are possible", name, parsed.packs);
  qn_require(parsed.persistent <= QN_LAUNCH_SHAPE_MOST_PERSISTENT,
             "launch shape: \"%.40s\" has %u blocks a multiprocessor, at most %d are possible", name, parsed.persistent,
             QN_LAUNCH_SHAPE_MOST_PERSISTENT);
  *g = parsed;
  return QN_OK;
}

bool qn_launch_shape_equal(const qn_launch_shape *a, const qn_launch_shape *b)
{
  return a->shape == b->shape && a->threads == b->threads && a->pack == b->pack && a->packs == b->packs &&
         a->persistent == b->persistent;
}

/* ---- the choice ---- */

static const char by_the_rule[] = "the rule";

/* A vector is one 16-byte access of f32; of 8 elements where all tensors are of 16 bits, so that theirs are too. */
static uint32_t pack_of(const qn_op *op, size_t row)
{
  const qn_op_types *types = &op->info.types[row];
  for (size_t r = 0; r < op->info.n_tensors; r++)
    if (types->tensor[r].access != QN_ABSENT && qn_dtype_bytes(types->tensor[r].dtype) != 2) return 4;
  return 8;
}

static bool has_few(const qn_launch_shape_key *key) { return key->elements && key->elements <= MOST_FEW; }

void qn_launch_shape_rule(const qn_launch_shape_key *key, qn_launch_shape *g)
{
  *g = (qn_launch_shape){.shape = key->dense ? QN_LAUNCH_FLAT : QN_LAUNCH_TILES,
                         .threads = THREADS,
                         .pack = pack_of(key->op, key->row),
                         .packs = 1};
  if (key->counts)
    g->packs = key->elements && key->elements < MANY ? COUNT_PACKS : COUNT_PACKS_OF_MANY;
  else if (has_few(key))
    g->pack = key->elements <= MOST_SINGLES ? 1 : 4;
}

/* The option's value, read once a thread and again after any option was set. */
typedef struct forced_shape {
  bool is_set;
  unsigned generation; /* 0: not read */
  qn_launch_shape launch;
} forced_shape;

static qn_status forced(const forced_shape **result)
{
  static _Thread_local forced_shape kept;
  const unsigned generation = qn_option_generation();
  *result = &kept;
  if (kept.generation == generation) return QN_OK;
  char text[QN_LAUNCH_SHAPE_NAME + 64];
  kept.generation = 0;
  qn_try(qn_option_text(QN_OPTION_LAUNCH_SHAPE, text, sizeof text));
  kept.is_set = *text != 0;
  if (kept.is_set) qn_try(qn_launch_shape_from_name(text, &kept.launch));
  kept.generation = generation;
  return QN_OK;
}

static qn_status look_up(const qn_launch_shape_key *key, qn_launch_shape *g, const char **why)
{
  char types[QN_TUNE_TYPES];
  qn_arch arch = {.size = sizeof arch};
  qn_tune_entry entry;
  qn_tune_types(key->op, key->row, types);
  qn_try(qn_tune_arch(key->device, &arch));
  const qn_tune_key wanted = {
      .types = types, .rows = key->rows, .cols = key->cols, .layout = key->dense ? QN_TUNE_DENSE : QN_TUNE_PITCHED};
  const qn_tune_source source = qn_tune_find(key->op->info.name, &arch, &wanted, &entry);
  *why = by_the_rule;
  qn_launch_shape_rule(key, g);
  if (source == QN_TUNE_NONE) return QN_OK;
  if (source == QN_TUNE_SHIPPED && has_few(key)) return QN_OK; /* its classes reach far beyond */
  if (qn_launch_shape_from_name(entry.choice, g) == QN_OK) {
    *why = qn_tune_reason(source, &entry, &arch);
    return QN_OK;
  }
  qn_log(QN_LOG_WARNING, "the tune table of %s: an entry for %s is ignored: %s", key->op->info.name, entry.arch,
         qn_last_error());
  return QN_OK;
}

/* What the tables said lately, so that a launch asks without a lock: a table is a file, and a choice one of few. */
typedef struct kept_choice {
  bool known;
  unsigned options, files; /* generations */
  qn_launch_shape_key key;
  qn_launch_shape launch;
  const char *why;
} kept_choice;

static bool same_key(const qn_launch_shape_key *a, const qn_launch_shape_key *b)
{
  return a->op == b->op && a->row == b->row && a->rows == b->rows && a->cols == b->cols && a->elements == b->elements &&
         a->dense == b->dense && a->device.kind == b->device.kind && a->device.index == b->device.index;
}

static qn_status ask_tables(const qn_launch_shape_key *key, qn_launch_shape *g, const char **why)
{
  enum { KEPT = 32 };
  static _Thread_local kept_choice kept[KEPT];
  const uint64_t mixed = (key->rows * 31 + key->cols) * 31 + key->row + ((uintptr_t)key->op >> 4);
  kept_choice *k = &kept[(mixed ^ mixed >> 7) % KEPT];
  const unsigned options = qn_option_generation(), files = qn_tune_generation();
  if (!k->known || k->options != options || k->files != files || !same_key(&k->key, key)) {
    k->known = false;
    qn_try(look_up(key, &k->launch, &k->why));
    k->key = *key;
    k->options = options;
    k->files = files;
    k->known = true;
  }
  *g = k->launch;
  *why = k->why;
  return QN_OK;
}

qn_status qn_launch_shape_choose(const qn_launch_shape_key *key, qn_launch_shape *g, const char **why)
{
  const forced_shape *option;
  *why = by_the_rule;
  qn_launch_shape_rule(key, g);
  if (key->counts) return QN_OK;
  qn_try(forced(&option));
  if (!option->is_set) return ask_tables(key, g, why);
  *g = option->launch;
  *why = "forced";
  return QN_OK;
}

qn_status qn_launch_shape_told(const qn_launch_shape_key *key, qn_launch_shape *g, const char **why, bool *by_rule)
{
  qn_try(qn_launch_shape_choose(key, g, why));
  *by_rule = *why == by_the_rule;
  return QN_OK;
}

qn_status qn_launch_shape_check(void)
{
  char why[512];
  const forced_shape *option;
  if (forced(&option) == QN_OK) return QN_OK;
  snprintf(why, sizeof why, "%s", qn_last_error());
  return qn_fail(QN_BAD_ARGUMENT, "QUERN_LAUNCH_SHAPE: %s", why);
}

/* ---- the latest one ---- */

/* Written as text only where it is asked for: launches are many and questions few. */
static _Thread_local struct {
  qn_launch_shape launch;
  char name[QN_LAUNCH_SHAPE_NAME]; /* "": the launch shape's */
  const char *why;                 /* NULL: nothing was launched yet */
  char of_name[200];               /* why such a name was chosen */
} latest;

void qn_launch_shape_note(const qn_launch_shape *g, const char *why)
{
  latest.launch = *g;
  latest.name[0] = 0;
  latest.why = why;
}

/* Of each launch on a processor: snprintf would read as much cold code and data as a launch's own. */
static void keep(char *to, size_t bytes, const char *text)
{
  const size_t n = strnlen(text, bytes - 1);
  memcpy(to, text, n);
  to[n] = 0;
}

void qn_variant_note(const char *name, const char *why)
{
  keep(latest.name, sizeof latest.name, name);
  keep(latest.of_name, sizeof latest.of_name, why);
  latest.why = latest.of_name;
}

const char *qn_op_last_variant(void)
{
  static _Thread_local char text[320];
  char name[QN_LAUNCH_SHAPE_NAME];
  if (!latest.why) return "";
  if (*latest.name)
    memcpy(name, latest.name, sizeof name);
  else
    qn_launch_shape_name(&latest.launch, name);
  snprintf(text, sizeof text, "%s (%s)", name, latest.why);
  return text;
}
