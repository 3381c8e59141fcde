/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.check.c - `quern check swiglu_quantize`: quern/swiglu_quantize.h against plain arithmetic behind
 * qn_swiglu_step, with scales given for all, given a row and computed, at every alignment, rows apart and at pages that
 * nobody may touch; and its golden vectors. Part of the workbench, not of the library. */
#include "core/core.h"
#include "quern/quern.h"
#include "workbench/beside_ops.h"
#include "workbench/e4m3.h"
#include "workbench/golden.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3, MOST_COLS = 4100, MOST = ROWS * (MOST_COLS + 8), C = 0, SCALE, A, B, ROLES };

static const qn_op_tensor tensors[ROLES] = {{.name = "c"}, {.name = "scale"}, {.name = "a"}, {.name = "b"}};
#define TYPES(t)                                                                                                       \
  {                                                                                                                    \
    {                                                                                                                  \
      {QN_F8E4M3, QN_WRITE}, {QN_F32, QN_READ_WRITE}, {t, QN_READ}, { t, QN_READ }                                     \
    }                                                                                                                  \
  }
static const qn_op_types types[] = {TYPES(QN_F32), TYPES(QN_BF16), TYPES(QN_F16)};
static const qn_op described = {.info = {.name = "swiglu_quantize",
                                         .tensors = tensors,
                                         .n_tensors = ROLES,
                                         .types = types,
                                         .n_types = sizeof types / sizeof *types},
                                .device_source = "op/swiglu_quantize/swiglu_quantize.cu"};

static bool same_code(uint8_t a, uint8_t b) { return a == b || ((a & 0x7f) == 0x7f && (b & 0x7f) == 0x7f); }

/* ---- a call: three matrices and scales, each in memory of its own ---- */
typedef struct call {
  qn_device device;
  qn_dtype dtype;
  int64_t rows, cols, apart, scales; /* elements from row to row; scales: given, or 0 */
  int begin;                         /* below 0: all end at walls; else at multiples of 64 bytes, but for one of
                                        odd_one's, which is one element behind */
  qn_swiglu_quantize_params params;
  unsigned char *host[ROLES]; /* dense; c and computed scales: what was written */
} call;

static const int odd_one[] = {ROLES, C, A, B}; /* none, and the matrices */

typedef struct memory {
  qn_walled walled;
  size_t at, row_bytes, pitch, rows;
  void *block;
  unsigned char *image;
} memory;

static size_t width_of(const call *c, int role) { return role == C ? 1 : role == SCALE ? 4 : qn_dtype_bytes(c->dtype); }

static qn_status place(const call *c, int role, memory *m)
{
  const size_t width = width_of(c, role);
  const bool matrix = role != SCALE;
  m->rows = matrix ? (size_t)c->rows : 1;
  m->row_bytes = width * (size_t)(matrix ? c->cols : c->scales ? c->scales : c->rows);
  m->pitch = matrix ? width * (size_t)c->apart : m->row_bytes;
  const size_t reach = (m->rows - 1) * m->pitch + m->row_bytes;
  m->walled.device = c->device;
  if (c->begin < 0) {
    const size_t wall = (reach + 64 + QN_WALL - 1) / QN_WALL * QN_WALL;
    m->at = wall - reach;
    qn_walled_add(&m->walled, wall);
    m->walled.bytes = wall + QN_WALL;
  } else {
    m->at = 64 + (odd_one[c->begin] == role ? width : 0);
    m->walled.bytes = m->at + reach + 64;
  }
  qn_try(qn_try_allocate(&m->image, m->walled.bytes, "an image of a matrix"));
  memset(m->image, 0xa5, m->walled.bytes);
  for (size_t r = 0; r < m->rows && role != C; r++)
    memcpy(m->image + m->at + r * m->pitch, c->host[role] + r * m->row_bytes, m->row_bytes);
  return qn_walled_allocate(&m->walled, &m->block);
}

/* Back into the dense copy; false if bytes of no element have changed. */
static bool take_back(const call *c, int role, memory *m)
{
  size_t within = 0;
  for (size_t at = 0; at < m->walled.bytes; at++) {
    const size_t row = at < m->at ? m->rows : (at - m->at) / m->pitch, col = at < m->at ? 0 : (at - m->at) % m->pitch;
    if (row < m->rows && col < m->row_bytes)
      c->host[role][within++] = m->image[at];
    else if (m->image[at] != 0xa5)
      return false;
  }
  return true;
}

static qn_status run_placed(const call *c, memory m[ROLES], bool *clean)
{
  const int64_t shape[] = {c->rows, c->cols}, strides[] = {c->apart, 1}, n = c->scales ? c->scales : c->rows;
  const qn_exec exec = {.size = sizeof exec, .device = c->device};
  qn_tensor t[ROLES];
  qn_status status = QN_OK;
  for (int r = 0; r < ROLES; r++) {
    qn_try(qn_memory_write(c->device, NULL, m[r].block, m[r].image, m[r].walled.bytes));
    t[r] = (qn_tensor){(char *)m[r].block + m[r].at, r == C ? QN_F8E4M3 : c->dtype, 2, shape, strides, c->device};
    qn_walled_raise(&m[r].walled, m[r].block);
  }
  t[SCALE] = (qn_tensor){(char *)m[SCALE].block + m[SCALE].at, QN_F32, 1, &n, NULL, c->device};
  status = qn_swiglu_quantize(&exec, &c->params, &t[C], &t[SCALE], &t[A], &t[B]);
  for (int r = 0; r < ROLES; r++) {
    qn_walled_lower(&m[r].walled, m[r].block);
    if (status == QN_OK) status = qn_memory_read(c->device, NULL, m[r].image, m[r].block, m[r].walled.bytes);
    if (status == QN_OK) *clean &= take_back(c, r, &m[r]);
  }
  return status;
}

/* Afterwards host[C] and host[SCALE] are what was written. */
static qn_status run_call(const call *c, bool *clean)
{
  memory m[ROLES] = {0};
  qn_status status = QN_OK;
  *clean = true;
  for (int r = 0; r < ROLES && status == QN_OK; r++) status = place(c, r, &m[r]);
  if (status == QN_OK) status = run_placed(c, m, clean);
  for (int r = 0; r < ROLES; r++) {
    if (m[r].block) qn_walled_release(&m[r].walled, m[r].block);
    qn_release(m[r].image);
  }
  return status;
}

/* ---- what must come out: qn_swiglu_step on the processor, then plain arithmetic ---- */
static unsigned char data[ROLES][4 * MOST], value[4 * MOST];

static qn_status reference(const call *c)
{
  const int64_t n = c->rows * c->cols;
  const qn_exec exec = {.size = sizeof exec};
  qn_swiglu_params p = QN_SWIGLU_DEFAULTS;
  p.activation = c->params.activation;
  p.gate_multiplier = c->params.gate_multiplier, p.down_multiplier = c->params.down_multiplier;
  const qn_tensor to = {value, c->dtype, 1, &n, NULL, {0}}, a = {c->host[A], c->dtype, 1, &n, NULL, {0}},
                  b = {c->host[B], c->dtype, 1, &n, NULL, {0}};
  return qn_swiglu_step(&exec, &p, 1, &to, &a, &b);
}

/* The first element that is not what it must be, in text; true: all are. */
static bool right(const call *c, const float *given, char *text, size_t bytes)
{
  const size_t width = qn_dtype_bytes(c->dtype);
  for (int64_t r = 0; r < c->rows; r++) {
    float amax = 0, by = given[c->scales == 1 ? 0 : r], written;
    for (int64_t k = 0; k < c->cols; k++) {
      const float size = fabsf((float)qn_number_load(c->dtype, value + (size_t)(r * c->cols + k) * width));
      if (size <= FLT_MAX && size > amax) amax = size;
    }
    memcpy(&written, c->host[SCALE] + (c->scales == 1 ? 0 : r) * 4, sizeof written);
    if (c->params.computes) by = amax == 0 ? 1 : fmaxf(amax / 448, 0x1p-126f);
    if (by != written) {
      snprintf(text, bytes, "row %lld: the scale is %a, must be %a", (long long)r, (double)written, (double)by);
      return false;
    }
    const float inverse = 1 / by;
    for (int64_t k = 0; k < c->cols; k++) {
      const double x = qn_number_load(c->dtype, value + (size_t)(r * c->cols + k) * width);
      const uint8_t want = qn_e4m3_nearest((float)x * inverse), got = c->host[C][r * c->cols + k];
      if (same_code(got, want)) continue;
      snprintf(text, bytes, "row %lld, column %lld: got 0x%02x, must be 0x%02x (%a times %a)", (long long)r,
               (long long)k, got, want, x, (double)inverse);
      return false;
    }
  }
  return true;
}

/* Row 0: odd values now and then; row 1: zeros, or where `tiny` numbers whose scale is the least; row 2: ordinary. */
static void fill(const call *c, uint64_t seed, bool tiny)
{
  for (int role = A; role <= B; role++) {
    const qn_filling numbers = {QN_FILL_MODERATE, role == A ? 3 : 4, seed, (size_t)role, false};
    qn_filling odd = numbers;
    odd.odd = true;
    const size_t n = (size_t)c->cols, width = qn_dtype_bytes(c->dtype);
    qn_fill_numbers(&odd, c->dtype, data[role], n, 0);
    qn_fill_numbers(&numbers, c->dtype, data[role] + n * width, n * (size_t)(c->rows - 1), n);
    for (size_t k = 0; k < n && role == A && c->rows > 1; k++)
      qn_number_store(c->dtype, data[A] + (n + k) * width, tiny ? ldexp((double)(k % 5), -140) : 0);
  }
}

/* ---- leg 1 ---- */
enum { ONE_SCALE, SCALES_OF_ROWS, COMPUTED, MODES };
typedef struct setting {
  int mode, activation, begin;
  int64_t cols, more; /* between rows */
  double gate, down;
  const char *geometry; /* NULL: not forced */
} setting;

static void run_setting(qn_trial *trial, size_t number, const setting *s)
{
  static const char *const modes[] = {"one scale", "scales of rows", "computed scales"};
  static const float scales[ROWS] = {0.25f, 0.007f, 3};
  char wrong[256] = "bytes of no element were written", what[256];
  bool clean = true;
  call c = {.device = trial->item->target.device,
            .dtype = types[trial->item->row].tensor[A].dtype,
            .rows = ROWS,
            .cols = s->cols,
            .apart = s->cols + s->more,
            .scales = s->mode == ONE_SCALE        ? 1
                      : s->mode == SCALES_OF_ROWS ? ROWS
                                                  : 0,
            .begin = s->begin,
            .params = QN_SWIGLU_QUANTIZE_DEFAULTS,
            .host = {data[C], data[SCALE], data[A], data[B]}};
  if (!qn_trial_takes(trial, number)) return;
  c.params.activation = s->activation, c.params.computes = s->mode == COMPUTED;
  c.params.gate_multiplier = s->gate, c.params.down_multiplier = s->down;
  fill(&c, qn_seed_mix(trial->options->seed, number), number % 2);
  memcpy(data[SCALE], scales, sizeof scales);
  snprintf(what, sizeof what, "case %zu: %s, activation %d, multipliers %g and %g, %d x %lld, %lld between rows, %s %d",
           number, modes[s->mode], s->activation, s->gate, s->down, ROWS, (long long)s->cols, (long long)s->more,
           s->begin < 0 ? "ends at walls" : "off its boundary: role", s->begin < 0 ? 0 : odd_one[s->begin]);
  qn_status status = qn_option_set("cpu", "ref");
  if (status == QN_OK) status = reference(&c);
  if (status == QN_OK) status = qn_target_select(&trial->item->target);
  if (status == QN_OK) status = qn_option_set("geometry", s->geometry);
  if (status == QN_OK) status = run_call(&c, &clean);
  (void)qn_option_set("geometry", NULL);
  if (status != QN_OK)
    qn_trial_fail(trial, (long)number, "%s\n%s", what, qn_last_error());
  else if (!clean || !right(&c, scales, wrong, sizeof wrong))
    qn_trial_fail(trial, (long)number, "%s\n%s", what, wrong);
  trial->elements += (uint64_t)(c.rows * c.cols);
}

/* On a device every type, activation, mode and number of vectors that a thread holds is a compilation: few below
 * --full. */
static void leg_variants(qn_trial *trial)
{
  static const int64_t widths[] = {1, 7, 64, 255, 2049, MOST_COLS};
  static const int64_t few[] = {64, 255};
  const bool on_cpu = trial->item->target.device.kind == QN_CPU, all = on_cpu || trial->options->level == QN_FULL;
  const size_t n_widths = all || trial->options->level == QN_NORMAL ? 6 : 2, row = trial->item->row;
  size_t number = 0;
  for (int mode = 0; mode < MODES; mode++)
    for (int activation = 0; activation <= QN_SWIGLU_ACTIVATION_GEGLU_ERF; activation++)
      for (size_t w = 0; w < n_widths; w++) {
        if (!all && activation != (int)row) continue;
        for (int begin = -1; begin < 4; begin++) {
          if (on_cpu && trial->options->level == QN_QUICK && (begin + 1 + activation + (int)w) % 5 > 1) continue;
          const bool plain = (w + (size_t)begin) % 2 == 0;
          run_setting(trial, number++,
                      &(setting){mode, activation, begin, n_widths == 6 ? widths[w] : few[w], w % 3 ? (int64_t)w : 0,
                                 on_cpu && plain ? 1 : 1.3, on_cpu && plain ? 1 : 0.75, NULL});
        }
      }
  static const char *const cuts[] = {"rows-512x8x1", "rows-256x8x1", "rows-128x8x1", "rows-64x8x1"};
  for (size_t k = 0; k < sizeof cuts / sizeof *cuts && !on_cpu && (row == 1 || all);
       k++) /* 2, 4 and 8 vectors; shared */
    for (int begin = -1; begin < 2; begin++)
      run_setting(trial, number++, &(setting){COMPUTED, 0, begin, MOST_COLS / 8 * 8, 0, 1.3, 0.75, cuts[k]});
  qn_trial_note(trial, "%zu cases, %llu elements", trial->cases, (unsigned long long)trial->elements);
}

/* ---- leg 3: "a", "b", "given" or "made" and "want" of each case, behind its type, shape and params ---- */
typedef struct vectors {
  call c;
  char name[96];
  float scale[64];
  uint8_t want[MOST];
  size_t n_scales;
} vectors;

static size_t read_bits(qn_golden *g, size_t width, void *to, size_t most)
{
  char text[32];
  size_t n = 0;
  for (; n < most && qn_golden_word(g, text, sizeof text); n++) {
    const uint64_t bits = strtoull(text, NULL, 16);
    memcpy((char *)to + n * width, &bits, width);
  }
  return n;
}

static void read_params(qn_golden *g, qn_swiglu_quantize_params *p)
{
  static const char *const gates[] = {"swiglu", "clamped", "geglu", "reglu", "glu", "geglu_erf"};
  char word[64];
  while (qn_golden_word(g, word, sizeof word)) {
    char *equals = strchr(word, '=');
    const char *text = equals ? equals + 1 : "";
    if (equals) *equals = 0;
    for (int k = 0; k < 6 && !strcmp(word, "activation"); k++)
      if (!strcmp(text, gates[k])) p->activation = k;
    if (!strcmp(word, "gate_multiplier")) p->gate_multiplier = strtod(text, NULL);
    if (!strcmp(word, "down_multiplier")) p->down_multiplier = strtod(text, NULL);
    if (!strcmp(word, "limit")) p->limit = strtod(text, NULL);
  }
}

/* From a line "case" on; false: it is not understood. */
static bool read_vectors(qn_golden *g, vectors *v)
{
  char word[32];
  snprintf(v->name, sizeof v->name, "%.*s", (int)g->rest_bytes, g->rest);
  v->c.params = (qn_swiglu_quantize_params)QN_SWIGLU_QUANTIZE_DEFAULTS;
  while (qn_golden_line(g)) {
    const size_t n = (size_t)(v->c.rows * v->c.cols), width = qn_dtype_bytes(v->c.dtype);
    if (qn_golden_is(g, "type") && qn_golden_word(g, word, sizeof word))
      v->c.dtype = qn_dtype_from_name(word);
    else if (qn_golden_is(g, "shape") && qn_golden_word(g, word, sizeof word)) {
      v->c.rows = strtoll(word, NULL, 10);
      v->c.cols = v->c.apart = qn_golden_word(g, word, sizeof word) ? strtoll(word, NULL, 10) : 0;
    } else if (qn_golden_is(g, "set"))
      read_params(g, &v->c.params);
    else if (qn_golden_is(g, "a") || qn_golden_is(g, "b")) {
      if (n > MOST || read_bits(g, width, data[qn_golden_is(g, "a") ? A : B], n) != n) return false;
    } else if (qn_golden_is(g, "given") || qn_golden_is(g, "made")) {
      v->c.params.computes = qn_golden_is(g, "made");
      v->n_scales = read_bits(g, 4, v->scale, 64);
    } else
      return qn_golden_is(g, "want") && read_bits(g, 1, v->want, n) == n;
  }
  return false;
}

static void play(qn_trial *trial, size_t number, vectors *v)
{
  bool clean;
  call *c = &v->c;
  c->device = trial->item->target.device;
  c->scales = c->params.computes ? 0 : (int64_t)v->n_scales;
  for (int r = 0; r < ROLES; r++) c->host[r] = data[r];
  for (c->begin = -1; c->begin < 4 && !trial->failure; c->begin++) {
    memset(data[SCALE], 0, sizeof data[SCALE]);
    if (!c->params.computes) memcpy(data[SCALE], v->scale, v->n_scales * 4);
    if (run_call(c, &clean) != QN_OK || !clean) {
      qn_trial_fail(trial, (long)number, "case %zu, \"%s\": %s", number, v->name,
                    clean ? qn_last_error() : "bytes of no element were written");
      return;
    }
    if (memcmp(data[SCALE], v->scale, v->n_scales * 4))
      qn_trial_fail(trial, (long)number, "case %zu, \"%s\": a scale is not the golden one", number, v->name);
    for (int64_t k = 0; k < c->rows * c->cols; k++)
      if (!same_code(data[C][k], v->want[k]))
        qn_trial_fail(trial, (long)number, "case %zu, \"%s\", element %lld: got 0x%02x, golden is 0x%02x", number,
                      v->name, (long long)k, data[C][k], v->want[k]);
    trial->elements += (uint64_t)(c->rows * c->cols);
  }
}

static void leg_golden(qn_trial *trial)
{
  qn_golden g;
  vectors *v = qn_allocate(sizeof *v);
  size_t found = 0;
  if (!v || !qn_golden_open(&g, &described)) qn_trial_fail(trial, -1, "swiglu_quantize has no golden vectors");
  if (!trial->failure && qn_target_select(&trial->item->target) != QN_OK)
    qn_trial_fail(trial, -1, "%s", qn_last_error());
  for (size_t number = 0; !trial->failure && qn_golden_line(&g); number++) {
    memset(v, 0, sizeof *v);
    if (!qn_golden_is(&g, "case") || !read_vectors(&g, v)) {
      qn_trial_fail(trial, -1, "golden vectors, line %zu: this is not understood", g.line);
    } else if (v->c.dtype == types[trial->item->row].tensor[A].dtype) {
      found++;
      if (qn_trial_takes(trial, number)) play(trial, number, v);
    }
  }
  if (!found) qn_trial_fail(trial, -1, "no golden vector has the types %s", trial->item->about);
  qn_trial_note(trial, "%zu cases, %llu elements", trial->cases, (unsigned long long)trial->elements);
  qn_release(v);
}

const qn_beside_op qn_check_swiglu_quantize = {&described, leg_variants, leg_golden};
