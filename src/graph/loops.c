/* SPDX-License-Identifier: Apache-2.0 */
/* loops.c - the loops of a body: along rows, over the lanes of a step, and over the elements of a processor's thread.
 */
#include "graph/body.h"
#include <stdio.h>
#include <string.h>

int64_t qn_steps_of(const qn_cut *p) { return p->across ? p->length : (p->length + p->width - 1) / p->width; }

/* Where threads scan a row together, all of them are at each turn's barriers: those behind the last step repeat it, and
 * neither store nor reduce. */
static bool is_clamped(const qn_cut *p)
{
  const int64_t steps = qn_steps_of(p);
  return p->scans && p->threads > 1 && steps % p->threads;
}

bool qn_cut_laps(const qn_cut *p) { return p->tail && p->on_cpu && !p->across && !p->scans; }

void qn_open_loop(qn_text *text, const qn_cut *p, bool unrolled, int block)
{
  const int64_t steps = qn_steps_of(p), turns = (steps + p->threads - 1) / p->threads;
  if ((unrolled || p->across) && !p->on_cpu) qn_text_add(text, "_Pragma(\"unroll\")\n");
  enum { SIDE_BY_SIDE = 32 };
  const int most = p->width == 1 ? QN_WHOLE : p->across && p->window ? SIDE_BY_SIDE : 0;
  if (p->on_cpu && !p->scans && turns <= most) /* places in a window become numbers */
    qn_text_add(text, "_Pragma(\"GCC unroll %d\")\n", QN_WHOLE);
  const char *type = p->length > INT32_MAX ? "long" : "int";
  if (block)
    qn_text_add(text,
                "for (%s y = 0; y < %lld; y += %d) {\nfor (%s k = y, to = min(%s(y + %d), %s(%lld)); k < to; k++) {\n",
                type, (long long)turns, block, type, type, block, type, (long long)turns);
  else
    qn_text_add(text, "for (%s k = 0; k < %lld; k++) {\n", type, (long long)turns);
  if (p->threads == 1)
    qn_text_add(text, "const %s q = k;\n", type);
  else if (is_clamped(p))
    qn_text_add(text, "const %s q = min(%s(k * %lld + t), %s(%lld));\n", type, type, (long long)p->threads, type,
                (long long)steps - 1);
  else
    qn_text_add(text, "const %s q = k * %lld + t;\n", type, (long long)p->threads);
  if (turns * p->threads != steps && !is_clamped(p)) qn_text_add(text, "if (q < %lld) {\n", (long long)steps);
}

void qn_close_loop(qn_text *text, const qn_cut *p)
{
  const int64_t steps = qn_steps_of(p), turns = (steps + p->threads - 1) / p->threads;
  qn_text_add(text, turns * p->threads != steps ? "}\n}\n" : "}\n");
}

void qn_move_text(qn_text *to, qn_text *from)
{
  if (from->length) qn_text_add_bytes(to, from->at, from->length);
  to->failed |= from->failed;
  qn_text_free(from);
}

void qn_close_lanes(qn_writer *w, const qn_cut *p, qn_text *to)
{
  qn_move_text(to, &w->step);
  if (is_clamped(p)) {
    const int64_t steps = qn_steps_of(p);
    qn_text_add(to, "if (k * %lld + t < %lld) {\n", (long long)p->threads, (long long)steps);
  }
  qn_wrap_lanes(w, p, to);
}

void qn_keep_loop(qn_text *text, const qn_cut *p, int n)
{
  enum { UNROLLED = 16 }; /* the longest that gcc unrolls; of a longer one it may take two turns of the loop around */
  if (!p->on_cpu || n == 1 || (p->scans && !p->across)) return;
  qn_text_add(text, "_Pragma(\"%s\")\n", n > UNROLLED ? "clang loop unroll(disable)" : "GCC unroll 1");
}

/* A loop over lanes, and what they do; `many` are there. */
static void write_lanes(const qn_cut *p, const char *type, const char *many, const char *lanes, qn_text *to)
{
  qn_keep_loop(to, p, p->width);
  if (!p->on_cpu) qn_text_add(to, "_Pragma(\"unroll\")\n");
  qn_text_add(to, "for (int j = 0; j < %s; j++) {\n", many);
  if (qn_cut_laps(p))
    qn_text_add(to, "const %s r = min(%s(q * %d), %s(%lld)) + j;\n", type, type, p->width, type,
                (long long)p->length - p->width);
  else if (p->tail && !p->across)
    qn_text_add(to, "const %s r = q * %d + j;\n", type, p->width);
  else if (p->across && p->width < p->side)
    qn_text_add(to, "const %s x = from + j;\n", p->side > INT32_MAX ? "long" : "int");
  qn_text_add(to, "%s}\n", lanes);
}

void qn_wrap_lanes(qn_writer *w, const qn_cut *p, qn_text *to)
{
  w->row.failed |= w->lane.failed;
  if (!w->lane.length) return;
  const char *type = p->length > INT32_MAX ? "long" : "int";
  const bool short_last = p->tail && p->on_cpu && !qn_cut_laps(p) && !p->across; /* whole steps in a loop without it */
  char whole[16], last[64];
  snprintf(whole, sizeof whole, "%d", p->width);
  snprintf(last, sizeof last, "%lld", (long long)(p->length % p->width));
  if (p->across)
    write_lanes(p, type, p->tail ? "there" : whole, w->lane.at, to);
  else if (short_last) {
    qn_text_add(to, "if (q < %lld) {\n", (long long)(p->length / p->width));
    write_lanes(p, type, whole, w->lane.at, to);
    qn_text_add(to, "} else {\n");
    write_lanes(p, type, last, w->lane.at, to);
    qn_text_add(to, "}\n");
  } else if (p->width == 1)
    qn_text_add_bytes(to, w->lane.at, w->lane.length);
  else if (p->tail && !p->on_cpu) {
    qn_text lanes = {0};
    qn_text_add(&lanes, "if (r < %lld) {\n%s}\n", (long long)p->length, w->lane.at);
    write_lanes(p, type, whole, lanes.at ? lanes.at : "", to);
    w->row.failed |= lanes.failed;
    qn_text_free(&lanes);
  } else
    write_lanes(p, type, whole, w->lane.at, to);
  qn_text_free(&w->lane);
}

/* The loop along x that the compiler turns into vectors. */
void qn_open_piece(qn_text *to, const qn_cut *p, bool wide)
{
  const char *type = wide ? "long" : "int";
  const long long side = (long long)p->side, piece = (long long)p->piece;
  if (p->piece == p->side)
    qn_text_add(to, "for (%s x = 0; x < %lld; x++) {\n", type, side);
  else if (p->side % p->piece == 0)
    qn_text_add(to, "for (%s x = from; x < from + %lld; x++) {\n", type, piece);
  else
    qn_text_add(to, "for (%s x = from, to = min(%s(from + %lld), %s(%lld)); x < to; x++) {\n", type, type, piece, type,
                side);
}
