/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - reductions along rows: what each thread adds up, and how the threads' parts are put together. Every sum is
 * in one order that depends on the shapes alone: along a thread in as many parts as it reads at once, these by pairs,
 * then by pairs of lanes, then by pairs of simdgroups. A processor's parts are sums of few elements in float, and their
 * sum is in double. */
#include "graph/body.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const qn_graph_value *at_value(const qn_writer *w, int value) { return &w->graph->value[value]; }

static bool is_place(const qn_graph_value *v)
{
  return v->reduction == QN_GRAPH_REDUCE_ARGMAX || v->reduction == QN_GRAPH_REDUCE_ARGMIN;
}

static void write_operand_of(qn_writer *w, const qn_graph_value *v, const qn_index *at, qn_text *operand)
{
  const qn_graph_value *a = at_value(w, v->argument[0]);
  char name[16];
  snprintf(name, sizeof name, "v%d", qn_write_value(w, v->argument[0], at));
  qn_write_converted(operand, name, qn_compute_type(a->dtype), v->compute);
}

/* `into` and its place take the other where it comes first; plain reductions combine. */
static void combine(qn_text *to, const qn_graph_value *v, const char *into, const char *into_place, const char *other,
                    const char *other_place)
{
  const char *name = qn_reduction(v->reduction)->name;
  if (is_place(v))
    qn_text_add(to, "if (q_%s(%s, %s, %s, %s)) { %s = %s; %s = %s; }\n", name, other, other_place, into, into_place,
                into, other, into_place, other_place);
  else
    qn_text_add(to, "%s = q_%s(%s, %s);\n", into, name, into, other);
}

void qn_write_function(qn_text *header, const qn_graph_value *v)
{
  const qn_reduction_info *info = qn_reduction(v->reduction);
  qn_text text = {0};
  qn_text type = {0};
  qn_write_type(&type, v->compute);
  const char *t = type.at ? type.at : "";
  if (is_place(v))
    qn_text_add(
        &text,
        "inline bool q_%s(%s a, long p, %s b, long q)\n{\n  return a != a ? b == b || p < q : b == b && (a %c b || (a "
        "== b && p < q));\n}\n",
        info->name, t, t, v->reduction == QN_GRAPH_REDUCE_ARGMAX ? '>' : '<');
  else
    qn_text_add(&text, "inline %s q_%s(%s a, %s b) { return %s; }\n", t, info->name, t, t, info->formula);
  if (text.at && !(header->at && strstr(header->at, text.at))) qn_text_add_bytes(header, text.at, text.length);
  header->failed |= text.failed || type.failed;
  qn_text_free(&text);
  qn_text_free(&type);
}

void qn_write_first(qn_text *text, const qn_graph_value *v)
{
  double first = qn_reduction(v->reduction)->first;
  const bool least = v->reduction == QN_GRAPH_REDUCE_MAX || v->reduction == QN_GRAPH_REDUCE_ARGMAX;
  int64_t whole = (int64_t)(isfinite(first) ? first : 0);
  if (isinf(first) && v->compute == QN_I64) whole = least ? INT64_MIN : INT64_MAX;
  if (isinf(first) && v->compute == QN_I32) whole = least ? INT32_MIN : INT32_MAX;
  if (isinf(first) && v->compute == QN_BOOL) first = least ? 0 : 1, whole = !least;
  qn_write_number(text, v->compute, first, whole);
}

enum { BLOCK = 32 }; /* elements of a sum in float */

static qn_dtype type_of_parts(const qn_cut *p, const qn_graph_value *v)
{
  const bool many = v->reduction == QN_GRAPH_REDUCE_SUM && qn_steps_of(p) > BLOCK;
  return p->on_cpu && many && v->compute == QN_F32 ? QN_F64 : v->compute;
}

/* Not of a single lane, whose turns are no loop. */
static bool in_blocks(const qn_cut *p, const qn_graph_value *v)
{
  return type_of_parts(p, v) != v->compute && (p->width > 1 || qn_steps_of(p) > QN_WHOLE);
}

/* The sum of a block is added to the row's, and the next one begins. */
static void close_block(const qn_cut *p, int k, qn_text *to)
{
  qn_keep_loop(to, p, p->width);
  qn_text_add(to, "for (int j = 0; j < %d; j++) {\na%d[j] = q_SUM(a%d[j], double(b%d[j]));\nb%d[j] = 0;\n}\n", p->width,
              k, k, k, k);
}

static void declare_accumulator(qn_writer *w, const qn_cut *p, int k)
{
  const qn_graph_value *v = at_value(w, w->fused->root[k]);
  qn_write_type(&w->row, type_of_parts(p, v));
  qn_text_add(&w->row, " a%d[%d];\n", k, p->width);
  if (in_blocks(p, v)) qn_text_add(&w->row, "float b%d[%d];\n", k, p->width);
  if (is_place(v)) qn_text_add(&w->row, "long n%d[%d];\n", k, p->width);
  qn_keep_loop(&w->row, p, p->width);
  qn_text_add(&w->row, "for (int j = 0; j < %d; j++) {\na%d[j] = ", p->width, k);
  qn_write_first(&w->row, v);
  qn_text_add(&w->row, ";\n");
  if (is_place(v)) qn_text_add(&w->row, "n%d[j] = %lldl;\n", k, (long long)p->length);
  if (in_blocks(p, v)) qn_text_add(&w->row, "b%d[j] = 0;\n", k);
  qn_text_add(&w->row, "}\n");
}

/* The part of each simdgroup, through threadgroup memory, to a lane of every simdgroup. */
static void exchange_parts(qn_text *to, const qn_graph_value *v, int k, long long parts, const char *a, const char *n)
{
  qn_text_add(to, "threadgroup "), qn_write_type(to, v->compute);
  qn_text_add(to, " s%d[32];\n", k);
  if (is_place(v)) qn_text_add(to, "threadgroup long m%d[32];\n", k);
  qn_text_add(to, "if (thread_index_in_simdgroup == 0) {\ns%d[simdgroup_index_in_threadgroup] = %s;\n", k, a);
  if (is_place(v)) qn_text_add(to, "m%d[simdgroup_index_in_threadgroup] = %s;\n", k, n);
  qn_text_add(to, "}\nthreadgroup_barrier(mem_flags::mem_threadgroup);\n");
  qn_text_add(to, "%s = s%d[thread_index_in_simdgroup %% %lld];\n", a, k, parts);
  if (is_place(v)) qn_text_add(to, "%s = m%d[thread_index_in_simdgroup %% %lld];\n", n, k, parts);
}

/* The parts of lanes by pairs; d is half of `parts` first. */
static void combine_lanes(qn_text *to, const qn_graph_value *v, int64_t parts, const char *a, const char *n)
{
  qn_text_add(to, "for (ushort d = %d; d > 0; d >>= 1) {\nconst ", (int)(parts / 2));
  qn_write_type(to, v->compute);
  qn_text_add(to, " x = simd_shuffle_xor(%s, d);\n", a);
  if (is_place(v)) qn_text_add(to, "const long y = simd_shuffle_xor(%s, d);\n", n);
  combine(to, v, a, n, "x", "y");
  qn_text_add(to, "}\n");
}

/* The parts of columns side by side: each simdgroup takes all parts of some of the 32 columns in its lanes, and every
 * simdgroup gets the results of all. */
static void exchange_columns(qn_text *to, const qn_graph_value *v, int k, int threads, const char *a, const char *n)
{
  const struct {
    const char *name, *parts, *results;
    qn_dtype type;
  } both[] = {{a, "s", "r", v->compute}, {n, "m", "u", QN_I64}}; /* the value, and its place */
  const int many = 1 + is_place(v), apart = QN_COLUMNS_APART;
  for (int j = 0; j < many; j++) {
    qn_text_add(to, "threadgroup "), qn_write_type(to, both[j].type);
    qn_text_add(to, " %s%d[%d], %s%d[32];\n", both[j].parts, k, threads * apart, both[j].results, k);
    qn_text_add(to, "%s%d[t * %d + thread_index_in_simdgroup] = %s;\n", both[j].parts, k, apart, both[j].name);
  }
  qn_text_add(to, "threadgroup_barrier(mem_flags::mem_threadgroup);\n{\n");
  qn_text_add(to, "const int c = t * %d + thread_index_in_simdgroup / %d, y = thread_index_in_simdgroup %% %d;\n",
              32 / threads, threads, threads);
  for (int j = 0; j < many; j++) qn_text_add(to, "%s = %s%d[y * %d + c];\n", both[j].name, both[j].parts, k, apart);
  combine_lanes(to, v, threads, a, n);
  qn_text_add(to, "if (y == 0) {\n");
  for (int j = 0; j < many; j++) qn_text_add(to, "%s%d[c] = %s;\n", both[j].results, k, both[j].name);
  qn_text_add(to, "}\n}\nthreadgroup_barrier(mem_flags::mem_threadgroup);\n");
  for (int j = 0; j < many; j++)
    qn_text_add(to, "%s = %s%d[thread_index_in_simdgroup];\n", both[j].name, both[j].results, k);
}

/* The parts of a thread by pairs, of the lanes by pairs, of the simdgroups in the same way. */
static void gather_parts(qn_writer *w, const qn_cut *p, int k)
{
  const qn_graph_value *v = at_value(w, w->fused->root[k]);
  qn_text *to = &w->row;
  char a[24], n[24], b[64], m[64];
  if (p->across) return;
  for (int half = p->width / 2; half; half /= 2) {
    if (half > 1) qn_keep_loop(to, p, half);
    qn_text_add(to, "for (int j = 0; j < %d; j++) {\n", half);
    snprintf(a, sizeof a, "a%d[j]", k), snprintf(n, sizeof n, "n%d[j]", k);
    snprintf(b, sizeof b, "a%d[j + %d]", k, half), snprintf(m, sizeof m, "n%d[j + %d]", k, half);
    combine(to, v, a, n, b, m);
    qn_text_add(to, "}\n");
  }
  snprintf(a, sizeof a, "a%d[0]", k), snprintf(n, sizeof n, "n%d[0]", k);
  if (p->schedule == QN_SCHEDULE_SIMD || p->schedule == QN_SCHEDULE_GROUP)
    combine_lanes(to, v, p->threads < 32 ? p->threads : 32, a, n);
  if (p->schedule == QN_SCHEDULE_GROUP && p->threads > 32) {
    exchange_parts(to, v, k, (long long)p->threads / 32, a, n);
    combine_lanes(to, v, p->threads / 32, a, n);
  }
  if (p->schedule == QN_SCHEDULE_COLUMNS && p->threads > 1) exchange_columns(to, v, k, (int)p->threads, a, n);
}

int qn_write_reduced(qn_writer *w, int k)
{
  const int name = qn_new_register(w);
  const qn_graph_value *v = at_value(w, w->fused->root[k]);
  const qn_dtype type = qn_compute_type(v->dtype);
  qn_text *to = !w->cut->across ? &w->row : w->inner ? w->inner : &w->lane;
  char a[24];
  snprintf(a, sizeof a, "%c%d[%s]", is_place(v) ? 'n' : 'a', k, w->cut->across ? "j" : "0");
  qn_text_add(to, "const ");
  qn_write_type(to, type);
  qn_text_add(to, " v%d = ", name);
  qn_write_converted(to, a, is_place(v) ? QN_I64 : type_of_parts(w->cut, v), type);
  qn_text_add(to, ";\n");
  return name;
}

/* Whether an element that is there twice changes the result. */
static bool counts_elements(const qn_graph_value *v)
{
  return v->reduction == QN_GRAPH_REDUCE_SUM || v->reduction == QN_GRAPH_REDUCE_PROD ||
         v->reduction == QN_GRAPH_REDUCE_LOGSUM;
}

/* Elements that the step before had. */
static void again_is_nothing(qn_writer *w, const qn_graph_value *v, const qn_cut *p, qn_text *operand)
{
  qn_text masked = {0};
  qn_text_add(&masked, "r >= q * %d ? %s : ", p->width, operand->at ? operand->at : "");
  qn_write_first(&masked, v);
  w->row.failed |= operand->failed;
  qn_text_free(operand);
  *operand = masked;
}

/* Elements first, and their sums in a loop behind: of one loop that is alone in another with quotients gcc makes no
 * vectors, since it takes two turns of the outer one together. */
static void combine_apart(qn_writer *w, const qn_cut *p, int k, const char *into, const char *operand, qn_text *apart)
{
  const qn_graph_value *v = at_value(w, w->fused->root[k]);
  char element[24], many[16];
  snprintf(element, sizeof element, "l%d[j]", k);
  snprintf(many, sizeof many, p->across && p->tail ? "there" : "%d", p->width);
  qn_write_type(&w->step, v->compute);
  qn_text_add(&w->step, " l%d[%d];\n", k, p->width);
  qn_text_add(&w->lane, "%s = %s;\n", element, operand);
  qn_keep_loop(apart, p, p->width);
  qn_text_add(apart, "for (int j = 0; j < %s; j++) {\n", many);
  combine(apart, v, into, "", element, "");
  qn_text_add(apart, "}\n");
}

void qn_write_reductions(qn_writer *w, const qn_cut *p, int loop, const int *known, qn_index o, qn_index r)
{
  const qn_fused *f = w->fused;
  qn_text row = {0}, apart = {0};
  uint32_t blocks = 0; /* bits of roots */
  w->loop = loop;
  w->shared = false;
  for (int k = 0; k < f->n; k++) {
    const qn_graph_value *v = at_value(w, f->root[k]);
    if (v->form != QN_FORM_REDUCE || known[f->root[k]] != loop) continue;
    qn_index at[QN_GRAPH_DIMS];
    qn_text operand = {0};
    char into[24], place[24], where[40];
    qn_spread_reduced(w, f->root[k], o, r, at);
    declare_accumulator(w, p, k);
    blocks |= (uint32_t)in_blocks(p, v) << k;
    if (at_value(w, v->argument[0])->form == QN_FORM_CONSTANT)
      w->body->unfit = "it reduces a constant";
    else
      write_operand_of(w, v, at, &operand);
    snprintf(into, sizeof into, p->width > 1 ? "%c%d[j]" : "%c%d[0]", in_blocks(p, v) ? 'b' : 'a', k);
    snprintf(place, sizeof place, p->width > 1 ? "n%d[j]" : "n%d[0]", k);
    snprintf(where, sizeof where, p->width > 1 && !p->across ? "long(q) * %d + j" : "long(q)", p->width);
    if (qn_cut_laps(p) && counts_elements(v)) again_is_nothing(w, v, p, &operand);
    if (w->shared)
      combine_apart(w, p, k, into, operand.at ? operand.at : "", &apart);
    else
      combine(&w->lane, v, into, place, operand.at ? operand.at : "", where);
    qn_graph_value of_parts = *v;
    of_parts.compute = type_of_parts(p, v);
    qn_write_function(&w->body->header, v);
    qn_write_function(&w->body->header, &of_parts);
    w->row.failed |= operand.failed;
    qn_text_free(&operand);
  }
  qn_store_early(w, p, loop, known);
  qn_open_loop(&row, p, w->holds, blocks ? BLOCK : 0);
  qn_close_lanes(w, p, &row);
  qn_move_text(&row, &apart);
  qn_close_loop(&row, p);
  for (int k = 0; k < f->n; k++)
    if (blocks >> k & 1) close_block(p, k, &row);
  if (blocks) qn_text_add(&row, "}\n");
  qn_move_text(&w->row, &row);
  qn_memo_forget(w, QN_LEVEL_STEP);
  for (int k = 0; k < f->n; k++) {
    const qn_graph_value *v = at_value(w, f->root[k]);
    if (v->form != QN_FORM_REDUCE || known[f->root[k]] != loop) continue;
    gather_parts(w, p, k);
    w->reduced[k] = true;
    if (!p->across) qn_memo_add(w, f->root[k], w->own[k], v->ndim, QN_LEVEL_ROW, qn_write_reduced(w, k));
  }
}
