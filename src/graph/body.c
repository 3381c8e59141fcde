/* SPDX-License-Identifier: Apache-2.0 */
/* body.c - the body of a kernel: which thread computes what, the loops along rows, and how their parts are put
 * together. Every sum is in one order that depends on the shapes alone: along a thread in as many parts as it reads at
 * once, then by pairs of lanes, then by simdgroups. */
#include "graph/body.h"
#include <stdio.h>
#include <string.h>

enum { HELD_ON_CPU = 4096 }; /* elements that a row holds on a processor: what its first cache has */

const char *qn_schedule_name(qn_schedule schedule)
{
  static const char *const names[] = {"an element a thread", "a thread a row", "lanes of a simdgroup a row",
                                      "a threadgroup a row", "rows side by side"};
  return names[schedule];
}

void qn_body_free(qn_body *body)
{
  qn_text_free(&body->source);
  qn_text_free(&body->header);
}

static const qn_graph_value *at_value(const qn_writer *w, int value) { return &w->graph->value[value]; }

void qn_fused_domain(const qn_graph *graph, const qn_fused *fused, int64_t *rows, int64_t *length)
{
  *rows = 1;
  *length = graph->value[fused->root[0]].n;
  if (fused->rows < 0) return;
  *length = qn_row_length(graph, &graph->value[fused->rows]);
  *rows = graph->value[graph->value[fused->rows].argument[0]].n / *length;
}

/* ---- loops ---- */
/* The loop that a reduction is of: behind those that it reads. */
static int loop_of(const qn_writer *w, int value, int *known)
{
  const qn_graph_value *v = at_value(w, value);
  if (known[value] >= 0) return known[value];
  int loop = 0, mine = 0;
  for (int k = 0; k < w->fused->n; k++) mine |= w->fused->root[k] == value;
  if (qn_is_memory(v) || (w->is_root[value] && !mine)) return known[value] = 0;
  for (int k = 0; k < v->n_arguments; k++) {
    const int below = loop_of(w, qn_arguments_of(v)[k], known);
    if (below > loop) loop = below;
  }
  return known[value] = loop + (v->form == QN_FORM_REDUCE);
}

/* ---- results ---- */
static void write_stored(qn_writer *w, int k, int output, qn_text *to)
{
  const int value = w->fused->root[k];
  const qn_graph_value *v = at_value(w, value);
  char name[16];
  snprintf(name, sizeof name, "v%d", qn_write_value(w, value, w->own[k]));
  const qn_index place = qn_stored_place(w, v, w->own[k]);
  qn_index first;
  if (v->n > INT32_MAX) w->wide = true;
  const int vector = to == &w->lane && !w->once && w->width > 1 && w->vectors
                         ? qn_index_access(&w->set, place, w->lane_variable, w->width, &first)
                         : 0;
  if (vector)
    qn_text_add(to, vector > 0 ? "s%d.at[j] = " : "s%d.at[%d - j] = ", k, w->width - 1);
  else {
    qn_text_add(to, "o%d[", output);
    qn_write_place(w, place, to);
    qn_text_add(to, "] = ");
  }
  if (v->dtype == qn_compute_type(v->dtype))
    qn_text_add(to, "%s", name);
  else
    qn_write_converted(to, name, QN_NONE, v->dtype);
  qn_text_add(to, ";\n");
  if (!vector) return;
  qn_text_add(&w->step, "q_pack<"), qn_write_type(&w->step, v->dtype);
  qn_text_add(&w->step, ", %d> s%d;\n", w->width, k);
}

static void write_stores(qn_writer *w, qn_text *to)
{
  int output = 0;
  for (int k = 0; k < w->fused->n; k++) {
    char pack[24];
    if (!w->fused->stored[k]) continue;
    snprintf(pack, sizeof pack, "> s%d;", k);
    if (w->step.at && strstr(w->step.at, pack)) {
      const qn_graph_value *v = at_value(w, w->fused->root[k]);
      qn_index first = 0;
      qn_index_access(&w->set, qn_stored_place(w, v, w->own[k]), w->lane_variable, w->width, &first);
      qn_text_add(to, "q_store<"), qn_write_type(to, v->dtype);
      qn_text_add(to, ", %d>(o%d, ", w->width, output);
      qn_index_write(&w->set, first, w->wide, to);
      qn_text_add(to, ", s%d);\n", k);
    }
    output++;
  }
}

static bool is_full(const qn_writer *w, const qn_cut *p, int k)
{
  const qn_graph_value *v = at_value(w, w->fused->root[k]);
  return w->fused->rows < 0 || (v->form != QN_FORM_REDUCE && v->n == p->rows * p->length);
}

/* On a processor, what is stored whole and reads no result of this reduction's loop is stored in it: a row that is too
 * long to hold would be computed again. */
void qn_store_early(qn_writer *w, const qn_cut *p, int loop, const int *known)
{
  int output = 0;
  for (int k = 0; k < w->fused->n; k++) {
    if (!w->fused->stored[k]) continue;
    if (p->on_cpu && !p->scans && is_full(w, p, k) && known[w->fused->root[k]] == loop - 1) {
      write_stored(w, k, output, &w->lane);
      w->early[k] = true;
    }
    output++;
  }
}

/* Whether the last threads of a line have none of its pieces. */
static bool has_idle_threads(const qn_cut *p) { return p->run && p->near_apart % p->run; }

static void write_results(qn_writer *w, const qn_cut *p, bool rows)
{
  int output = 0;
  bool any = false;
  qn_text stores = {0}, row = {0};
  for (int k = 0; k < w->fused->n; k++) {
    if (!w->fused->stored[k]) continue;
    if (is_full(w, p, k) && !w->early[k]) any = true, write_stored(w, k, output, &w->lane);
    output++;
  }
  write_stores(w, &stores);
  if (any) {
    if (rows) qn_open_loop(&row, p, w->holds, 0);
    if (p->piece) qn_open_piece(&row, p, w->wide);
    qn_move_text(&row, &w->step);
    if (p->schedule == QN_SCHEDULE_COLUMNS && !p->across) qn_text_add(&row, "if (whole) {\n");
    qn_close_lanes(w, p, &row);
    qn_move_text(&row, &stores);
    if (p->schedule == QN_SCHEDULE_COLUMNS && !p->across) qn_text_add(&row, "}\n");
    if (rows) qn_close_loop(&row, p);
    if (p->piece || has_idle_threads(p)) qn_text_add(&row, "}\n");
  }
  qn_move_text(&w->row, &row);
  qn_text_free(&stores);
  qn_memo_forget(w, QN_LEVEL_STEP);
  if (!rows) return;
  output = 0;
  w->once = true;
  for (int k = 0; k < w->fused->n; k++) {
    if (!w->fused->stored[k]) continue;
    if (!is_full(w, p, k)) write_stored(w, k, output, p->across ? &w->lane : &row);
    output++;
  }
  w->once = false;
  if (p->across) qn_wrap_lanes(w, p, &row);
  if (!row.length) return;
  qn_text_add(&w->row, "%s{\n",
              p->schedule == QN_SCHEDULE_THREAD || p->across ? ""
              : p->schedule == QN_SCHEDULE_COLUMNS           ? "if (whole && t == 0) "
                                                             : "if (t == 0) ");
  qn_move_text(&w->row, &row);
  qn_text_add(&w->row, "}\n");
}

/* ---- the whole ---- */
static void write_position(qn_writer *w, const qn_cut *p)
{
  const char *type = w->wide ? "long" : "int";
  qn_text *to = &w->row;
  switch (p->schedule) {
  case QN_SCHEDULE_FLAT:
    if (p->run) {
      const long long run = (long long)p->run, n = (long long)p->near_n, pieces = (long long)qn_pieces_of(p);
      qn_text_add(to, "const %s t = thread_position_in_grid.x;\n", w->wide ? "ulong" : "uint");
      qn_text_add(to, "const %s b = t / %lld, c = t / %lld %% %lld, ", type, run * n * pieces, run, n);
      if (pieces > 1) qn_text_add(to, "q = t / %lld %% %lld * %lld + t %% %lld;\n", run * n, pieces, run, run);
      if (pieces == 1) qn_text_add(to, "q = t %% %lld;\n", run);
      if (has_idle_threads(p)) qn_text_add(to, "if (q < %lld) {\n", (long long)p->near_apart);
    } else if (!p->piece)
      qn_text_add(to, "const %s q = thread_position_in_grid.x;\n", type);
    else if (p->near_n) {
      const long long n = (long long)p->near_n, apart = (long long)p->near_apart;
      const long long pieces = (long long)qn_pieces_of(p);
      qn_text_add(to, "const %s t = thread_position_in_grid.x, ", type);
      qn_text_add(to, "y = t / %lld * %lld + t %% %lld", n * apart * pieces, n * apart, n);
      if (apart > 1) qn_text_add(to, " * %lld + t / %lld %% %lld", apart, n * pieces, apart);
      if (pieces > 1) qn_text_add(to, ", from = t / %lld %% %lld * %lld", n, pieces, (long long)p->piece);
      qn_text_add(to, ";\n");
    } else if (p->piece == p->side)
      qn_text_add(to, "const %s y = thread_position_in_grid.x;\n", type);
    else {
      const long long pieces = (long long)qn_pieces_of(p);
      qn_text_add(to, "const %s t = thread_position_in_grid.x, y = t / %lld, from = t %% %lld * %lld;\n", type, pieces,
                  pieces, (long long)p->piece);
    }
    break;
  case QN_SCHEDULE_THREAD: qn_text_add(to, "const %s o = thread_position_in_grid.x;\n", type); break;
  case QN_SCHEDULE_SIMD:
    qn_text_add(to, "const %s o = thread_position_in_grid.x / %d;\nconst int t = thread_index_in_simdgroup %% %d;\n",
                type, (int)p->threads, (int)p->threads);
    break;
  case QN_SCHEDULE_GROUP:
    qn_text_add(to, "const %s o = threadgroup_position_in_grid.x;\nconst int t = thread_index_in_threadgroup;\n", type);
    break;
  default:
    if (p->across) {
      const long long pieces = (long long)qn_pieces_of(p);
      if (pieces == 1) {
        if (p->apart > 1)
          qn_text_add(to, "const %s b = thread_position_in_grid.x / %lld, c = thread_position_in_grid.x %% %lld;\n",
                      type, (long long)p->apart, (long long)p->apart);
        else
          qn_text_add(to, "const %s b = thread_position_in_grid.x;\n", type);
        break;
      }
      qn_text_add(to, "const %s t = thread_position_in_grid.x, b = t / %lld, from = t %% %lld * %d;\n", type, pieces,
                  pieces, p->width);
      if (p->tail)
        qn_text_add(to, "const int there = int(min(%s(%d), %s(%lld) - from));\n", type, p->width, type,
                    (long long)p->side);
      break;
    }
    qn_text_add(to,
                "const bool whole = threadgroup_position_in_grid.x * 32 + thread_index_in_simdgroup < %lldu;\n"
                "const %s o = whole ? threadgroup_position_in_grid.x * 32 + thread_index_in_simdgroup : 0;\n"
                "const int t = simdgroup_index_in_threadgroup;\n",
                (long long)p->rows, type);
  }
}

static qn_index variables(qn_writer *w, const qn_cut *p, qn_index *o)
{
  *o = qn_index_constant(&w->set, 0);
  if (p->run) {
    const qn_index b = qn_index_variable(&w->set, "b", p->length / (p->near_n * p->near_apart * p->width));
    const qn_index line = qn_index_add(&w->set, qn_index_variable(&w->set, "c", p->near_n), b, p->near_n);
    w->step_variable = qn_index_variable(&w->set, "q", p->near_apart);
    w->lane_variable = qn_index_variable(&w->set, "j", p->width);
    return qn_index_add(&w->set, w->lane_variable, qn_index_add(&w->set, w->step_variable, line, p->near_apart),
                        p->width);
  }
  if (p->piece) {
    const qn_index y = qn_index_variable(&w->set, "y", p->length / p->side);
    w->step_variable = qn_index_variable(&w->set, "x", p->side);
    return qn_index_add(&w->set, w->step_variable, y, p->side);
  }
  if (p->across) {
    w->lane_variable = qn_index_variable(&w->set, p->width == p->side ? "j" : "x", p->side);
    const qn_index b = qn_index_variable(&w->set, "b", p->rows / p->side / p->apart);
    *o = qn_index_add(&w->set, qn_index_variable(&w->set, "c", p->apart),
                      qn_index_add(&w->set, w->lane_variable, b, p->side), p->apart);
    return w->step_variable = qn_index_variable(&w->set, "q", p->length);
  }
  if (p->schedule != QN_SCHEDULE_FLAT) *o = qn_index_variable(&w->set, "o", p->rows);
  w->row_variable = *o;
  if (p->tail) return w->step_variable = w->lane_variable = qn_index_variable(&w->set, "r", p->length);
  w->step_variable = qn_index_variable(&w->set, "q", (p->length + p->width - 1) / p->width);
  w->lane_variable = qn_index_variable(&w->set, "j", p->width);
  return qn_index_add(&w->set, w->lane_variable, w->step_variable, p->width);
}

static void write_run(qn_writer *w, const qn_cut *p, int *known)
{
  const int values = w->graph->n_values;
  qn_index o;
  int last = 0;
  qn_text_free(&w->row), qn_text_free(&w->step), qn_text_free(&w->lane);
  qn_indices_free(&w->set);
  qn_body_free(w->body);
  w->n_memos = w->registers = 0;
  w->cost_row = w->cost_lane = 0;
  w->width = p->width;
  w->cut = p;
  memset(w->scanned, 0, sizeof w->scanned);
  memset(w->reduced, 0, sizeof w->reduced);
  memset(w->early, 0, sizeof w->early);
  w->misaligned = false;
  w->vectors = !p->tail && !p->on_cpu;
  w->body->n_inputs = 0;
  w->body->strided = 0;
  w->unit_row = w->unit_length = w->far_bytes = 0;
  qn_index_constant(&w->set, 0);
  w->lane_variable = w->step_variable = w->row_variable = 0;
  const qn_index r = variables(w, p, &o);
  qn_place_roots(w, p, o, r);
  write_position(w, p);
  for (int k = 0; k < values; k++) known[k] = -1;
  for (int k = 0; k < w->fused->n; k++)
    if (loop_of(w, w->fused->root[k], known) > last) last = known[w->fused->root[k]];
  if (!w->counting)
    for (int k = 0; k < w->n_held; k++) {
      if (w->held[k].last == w->held[k].first) continue;
      const int64_t steps = qn_steps_of(p), turns = (steps + p->threads - 1) / p->threads;
      qn_write_type(&w->row, qn_compute_type(at_value(w, w->held[k].value)->dtype));
      qn_text_add(&w->row, " h%d[%lld];\n", k, (long long)turns * p->width);
    }
  for (int loop = 1; loop <= last; loop++) qn_write_reductions(w, p, loop, known, o, r);
  w->loop = last + 1;
  write_results(w, p, w->fused->rows >= 0);
  w->wide |= qn_index_is_wide(&w->set);
}

static void count_work(const qn_writer *w, const qn_cut *p, qn_body *body)
{
  body->bytes = 0;
  for (int k = 0; k < body->n_inputs; k++) {
    const qn_graph_value *v = at_value(w, body->input[k]);
    body->bytes += v->n * (int64_t)qn_dtype_bytes(v->dtype);
  }
  for (int k = 0; k < w->fused->n; k++) {
    const qn_graph_value *v = at_value(w, w->fused->root[k]);
    if (w->fused->stored[k]) body->bytes += v->n * (int64_t)qn_dtype_bytes(v->dtype);
    if (qn_has_rows(v)) body->operations += p->rows * p->length;
  }
  body->operations += p->rows * (w->cost_row + p->length * w->cost_lane);
}

static void add_packs(qn_body *body)
{
  static const char packs[] =
      "template <typename T, int N> struct alignas(N * sizeof(T)) q_pack {\n  T at[N];\n};\n"
      "template <typename T, int N> inline q_pack<T, N> q_load(const device T *from, long at)\n{\n"
      "  if ((ulong)from % (N * sizeof(T)) == 0) return *(const device q_pack<T, N> *)(from + at);\n"
      "  q_pack<T, N> v;\n  for (int j = 0; j < N; j++) v.at[j] = from[at + j];\n  return v;\n}\n"
      "template <typename T, int N> inline void q_store(device T *to, long at, q_pack<T, N> v)\n{\n"
      "  if ((ulong)to % (N * sizeof(T)) == 0)\n    *(device q_pack<T, N> *)(to + at) = v;\n"
      "  else\n    for (int j = 0; j < N; j++) to[at + j] = v.at[j];\n}\n";
  if (body->source.at && strstr(body->source.at, "q_pack<")) qn_text_add_bytes(&body->header, packs, sizeof packs - 1);
}

static void write_body(qn_writer *w, qn_cut *p, int *known)
{
  qn_cut probe = *p;
  probe.schedule = p->schedule = w->fused->rows < 0 ? QN_SCHEDULE_FLAT : QN_SCHEDULE_THREAD;
  w->wide = false; /* until a place is found that is */
  w->counting = true;
  write_run(w, &probe, known);
  if (w->body->unfit || w->misaligned || w->set.failed) return;
  qn_cut_choose(w, p);
  const int64_t steps = qn_steps_of(p), turns = (steps + p->threads - 1) / p->threads;
  /* A thread that has a row to itself has more registers than one of a large group. */
  const bool alone = p->schedule == QN_SCHEDULE_THREAD || p->across;
  const int most = p->on_cpu ? HELD_ON_CPU : alone ? QN_HELD_ALONE : QN_HELD;
  w->holds = w->fused->rows >= 0 && turns * p->width <= most && (p->on_cpu || !p->tail);
  w->n_held = 0;
  write_run(w, p, known);
  int held = 0;
  for (int k = 0; k < w->n_held; k++) held += w->held[k].last > w->held[k].first;
  if (held * turns * p->width > (p->on_cpu ? most : most == QN_HELD_ALONE ? 128 : 96)) w->holds = false, w->n_held = 0;
  w->counting = false;
  write_run(w, p, known);
}

/* Columns: an element of each thread for each reduction, two for each scan. */
static int64_t shared_bytes(const qn_writer *w, const qn_cut *p)
{
  int64_t bytes = 0;
  for (int k = 0; k < w->fused->n; k++) {
    const qn_graph_value *v = at_value(w, w->fused->root[k]);
    const bool place = v->reduction == QN_GRAPH_REDUCE_ARGMAX || v->reduction == QN_GRAPH_REDUCE_ARGMIN;
    if (v->form == QN_FORM_REDUCE) bytes += (int64_t)qn_dtype_bytes(v->compute) + (place ? 8 : 0);
    if (v->form == QN_FORM_SCAN) bytes += 2 * (int64_t)qn_dtype_bytes(v->compute);
  }
  return p->schedule == QN_SCHEDULE_COLUMNS && !p->across ? bytes * (p->threads * QN_COLUMNS_APART + 32) : 0;
}

qn_status qn_body_write(const qn_graph *graph, const bool *is_root, const qn_fused *fused, qn_body *body)
{
  int *known = NULL;
  qn_writer *w = NULL;
  *body = (qn_body){0};
  qn_try(qn_try_allocate(&known, (size_t)graph->n_values * sizeof *known, "a body's loops"));
  w = qn_allocate_zero(1, sizeof *w);
  if (!w) {
    qn_release(known);
    return qn_fail(QN_NO_MEMORY, "no memory for a body");
  }
  w->graph = graph;
  w->is_root = is_root;
  w->fused = fused;
  w->body = body;
  qn_cut p = {.width = 1, .threads = 1, .apart = 1, .on_cpu = graph->on_cpu};
  qn_fused_domain(graph, fused, &p.rows, &p.length);
  w->neighbours = qn_neighbours_of(graph, fused);
  w->adds = true;
  for (int k = 0; k < fused->n; k++) {
    const qn_graph_value *v = &graph->value[fused->root[k]];
    p.scans |= v->form == QN_FORM_SCAN;
    w->adds &= v->form != QN_FORM_SCAN || v->reduction <= QN_GRAPH_REDUCE_PROD;
  }
  write_body(w, &p, known);
  if (shared_bytes(w, &p) > 48 * 1024 && !body->unfit) body->unfit = "it needs more than 48 KiB of shared memory";
  if (w->misaligned && !body->unfit) body->unfit = "a part needs what another part has at another place";
  if (w->set.failed && !body->unfit) body->unfit = "its places are too long";
  if (!body->n_inputs && !body->unfit) body->unfit = "it reads nothing";
  const bool failed = w->row.failed || body->header.failed;
  body->schedule = p.schedule;
  body->width = p.width;
  body->by_lines = p.near_n > 0;
  if (!body->unfit) {
    body->source = w->row;
    w->row = (qn_text){0};
    add_packs(body);
    qn_cut_launch(&p, body);
    count_work(w, &p, body);
  }
  qn_text_free(&w->row), qn_text_free(&w->step), qn_text_free(&w->lane);
  qn_indices_free(&w->set);
  qn_release(w->memo);
  qn_release(w);
  qn_release(known);
  if (!failed) return QN_OK;
  qn_body_free(body);
  return qn_fail(QN_NO_MEMORY, "no memory for a body");
}
