/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - scans along rows. A thread that has rows of its own goes through them: on a GPU through one, on a processor
 * through several side by side or through pieces of one, so that an addition need not wait for the one before. Threads
 * that share a row scan pieces of it, as long as what each reads at once: each thread its piece, then the totals of the
 * pieces by a tree over lanes, those of the simdgroups in their order, and what was there before the turn. So a loop's
 * step has parts: the lanes up to each scan, what the threads tell each other, and the lanes behind it. */
#include "graph/body.h"
#include <stdio.h>
#include <string.h>

static const qn_graph_value *of_root(const qn_writer *w, int k) { return &w->graph->value[w->fused->root[k]]; }

static bool has_pieces(const qn_cut *p) { return p->threads > 1 || (p->on_cpu && p->width > 1 && !p->across); }

/* What the row has before this loop's first turn. */
static void write_carry(qn_writer *w, int k, int64_t shared)
{
  const qn_graph_value *v = of_root(w, k);
  if (!w->scanned[k]) {
    qn_write_function(&w->body->header, v);
    if (shared) {
      qn_text_add(&w->row, "threadgroup "), qn_write_type(&w->row, v->compute);
      qn_text_add(&w->row, " z%d[%lld];\n", k, (long long)shared);
    }
    qn_write_type(&w->row, v->compute);
    if (w->cut->across)
      qn_text_add(&w->row, " a%d[%d];\n", k, w->cut->width);
    else
      qn_text_add(&w->row, " ");
  }
  if (w->cut->across)
    qn_text_add(&w->row, "for (int j = 0; j < %d; j++) a%d[j] = ", w->cut->width, k);
  else
    qn_text_add(&w->row, "a%d = ", k);
  qn_write_first(&w->row, v);
  qn_text_add(&w->row, ";\n");
}

/* The argument in the scan's type, computed in the lanes. */
static void write_element(qn_writer *w, int k, qn_text *operand)
{
  const qn_graph_value *v = of_root(w, k), *a = &w->graph->value[v->argument[0]];
  char name[16];
  snprintf(name, sizeof name, "v%d", qn_write_value(w, v->argument[0], w->own[k]));
  qn_write_converted(operand, name, qn_compute_type(a->dtype), v->compute);
}

/* An element for each simdgroup that all can read. Turns take the two halves of the shared memory by turns, so that one
 * barrier a turn is enough; between two loops is a reduction's. */
static void write_totals(int k, const char *when, long long parts, const char *stride, qn_text *to)
{
  qn_text_add(to, "%sz%d[(k %% 2 * %lld + simdgroup_index_in_threadgroup)%s] = x%d;\n", when, k, parts, stride, k);
  qn_text_add(to, "threadgroup_barrier(mem_flags::mem_threadgroup);\n");
}

/* `name` in each of the first lanes becomes the total up to this lane, by a tree. */
static void write_lanes(const char *name, int k, long long lanes, const char *function, const char *type, qn_text *to)
{
  qn_text_add(to, "for (ushort d = 1; d < %lld; d <<= 1) {\nconst %s y = simd_shuffle_up(%s%d, d);\n", lanes, type,
              name, k);
  qn_text_add(to, "if (thread_index_in_simdgroup >= d) %s%d = %s(y, %s%d);\n}\n", name, k, function, name, k);
}

/* The lanes of each simdgroup scan the totals of all of them. */
static void write_groups(const qn_cut *p, int k, const char *function, const char *type, qn_text *to)
{
  const long long parts = (long long)(p->threads / 32);
  write_totals(k, "if (thread_index_in_simdgroup == 31) ", parts, "", to);
  qn_text_add(to, "%s g%d = z%d[k %% 2 * %lld + thread_index_in_simdgroup %% %lld];\n", type, k, k, parts, parts);
  write_lanes("g", k, parts, function, type, to);
  qn_text_add(to, "const %s y%d = simd_shuffle(g%d, max(int(simdgroup_index_in_threadgroup), 1) - 1);\n", type, k, k);
  qn_text_add(to, "e%d = %s(simdgroup_index_in_threadgroup ? %s(a%d, y%d) : a%d, e%d);\n", k, function, function, k, k,
              k, k);
  qn_text_add(to, "a%d = %s(a%d, simd_shuffle(g%d, %lld));\n", k, function, k, k, parts - 1);
}

/* Columns: each lane adds up the totals of its own, in their order. */
static void write_columns(const qn_cut *p, int k, const char *function, const char *type, qn_text *to)
{
  const char *stride = " * 32 + thread_index_in_simdgroup";
  write_totals(k, "", (long long)p->threads, stride, to);
  qn_text_add(to, "%s e%d = a%d;\nfor (int y = 0; y < %lld; y++) {\n", type, k, k, (long long)p->threads);
  qn_text_add(to, "if (y == int(simdgroup_index_in_threadgroup)) e%d = a%d;\n", k, k);
  qn_text_add(to, "a%d = %s(a%d, z%d[(k %% 2 * %lld + y)%s]);\n}\n", k, function, k, k, (long long)p->threads, stride);
}

/* From each thread's total x to e, the total of all that is before its piece. */
static void write_together(qn_writer *w, int k, const char *function, const char *type)
{
  const qn_graph_value *v = of_root(w, k);
  const qn_cut *p = w->cut;
  qn_text *to = &w->step;
  if (p->schedule == QN_SCHEDULE_THREAD) {
    qn_text_add(to, "const %s e%d = a%d;\na%d = %s(e%d, x%d);\n", type, k, k, k, function, k, k);
    return;
  }
  if (p->schedule == QN_SCHEDULE_COLUMNS) {
    write_columns(p, k, function, type, to);
    return;
  }
  write_lanes("x", k, 32, function, type, to);
  qn_text_add(to, "%s e%d = simd_shuffle_up(x%d, 1);\nif (thread_index_in_simdgroup == 0) e%d = ", type, k, k, k);
  qn_write_first(to, v);
  qn_text_add(to, ";\n");
  if (p->schedule != QN_SCHEDULE_SIMD) {
    write_groups(p, k, function, type, to);
    return;
  }
  qn_text_add(to, "e%d = %s(a%d, e%d);\n", k, function, k, k);
  qn_text_add(to, "a%d = %s(a%d, simd_shuffle(x%d, 31));\n", k, function, k, k);
}

/* The lanes up to the scan as a part of their own, in front of those that are being written. */
static void write_piece(qn_writer *w, int k, const char *function, const char *type)
{
  const qn_cut *p = w->cut;
  qn_lanes outer;
  qn_text operand = {0};
  if (!qn_begin_lanes(w, &outer)) return;
  write_element(w, k, &operand);
  qn_text_add(&w->lane, "x%d = %s(x%d, %s);\nc%d[%s] = x%d;\n", k, function, k, operand.at ? operand.at : "", k,
              p->width > 1 ? "j" : "0", k);
  qn_text_add(&w->step, "%s c%d[%d], x%d = ", type, k, p->width, k);
  qn_write_first(&w->step, of_root(w, k));
  qn_text_add(&w->step, ";\n");
  qn_wrap_lanes(w, p, &w->step);
  write_together(w, k, function, type);
  w->row.failed |= operand.failed;
  qn_text_free(&operand);
  qn_end_lanes(w, &outer);
}

/* The element's register, of `from` in the scan's type. */
static int write_scanned(qn_writer *w, const qn_graph_value *v, const char *from, qn_text *to)
{
  const int name = qn_new_register(w);
  const qn_dtype type = qn_compute_type(v->dtype);
  qn_text_add(to, "const "), qn_write_type(to, type);
  qn_text_add(to, " v%d = ", name), qn_write_converted(to, from, v->compute, type);
  qn_text_add(to, ";\n");
  return name;
}

int qn_write_scan(qn_writer *w, int k)
{
  const qn_graph_value *v = of_root(w, k);
  const qn_cut *p = w->cut;
  const bool pieces = has_pieces(p);
  char from[64];
  char function[24];
  qn_text type = {0}, operand = {0};
  qn_write_type(&type, v->compute);
  const char *t = type.at ? type.at : "";
  snprintf(function, sizeof function, "q_%s", qn_reduction(v->reduction)->name);
  if (w->scanned[k] != w->loop) {
    if (w->inner) w->misaligned = true; /* not every element of the row would be in the branch */
    const int64_t parts = p->schedule == QN_SCHEDULE_COLUMNS ? p->threads * 32 : p->threads / 32;
    write_carry(w, k, p->threads > 1 && p->schedule != QN_SCHEDULE_SIMD ? 2 * parts : 0);
    w->scanned[k] = w->loop;
    if (pieces)
      write_piece(w, k, function, t);
    else {
      write_element(w, k, &operand);
      snprintf(from, sizeof from, p->across ? "a%d[j]" : "a%d", k);
      qn_text_add(&w->lane, "%s = %s(%s, %s);\n", from, function, from, operand.at ? operand.at : "");
      w->scan[k] = write_scanned(w, v, from, &w->lane);
    }
  }
  if (pieces) {
    snprintf(from, sizeof from, "%s(e%d, c%d[%s])", function, k, k, p->width > 1 ? "j" : "0");
    w->scan[k] = write_scanned(w, v, from, w->inner ? w->inner : &w->lane);
  }
  w->row.failed |= type.failed || operand.failed;
  qn_text_free(&type);
  qn_text_free(&operand);
  return w->scan[k];
}
