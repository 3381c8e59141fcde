/* SPDX-License-Identifier: Apache-2.0 */
/* loops.c - the loops of a body: along rows, over the lanes of a step, and over the elements of a processor's thread.
 */
#include "graph/body.h"
#include <string.h>

int64_t qn_steps_of(const qn_cut *p) { return p->across ? p->length : (p->length + p->width - 1) / p->width; }

/* Where threads scan a row together, all of them are at each turn's barriers: those behind the last step repeat it, and
 * neither store nor reduce. */
static bool is_clamped(const qn_cut *p)
{
  const int64_t steps = qn_steps_of(p);
  return p->scans && p->threads > 1 && steps % p->threads;
}

void qn_open_loop(qn_text *text, const qn_cut *p, bool unrolled)
{
  const int64_t steps = qn_steps_of(p), turns = (steps + p->threads - 1) / p->threads;
  if (unrolled) qn_text_add(text, "_Pragma(\"clang loop unroll(full)\")\n");
  const char *type = p->length > INT32_MAX ? "long" : "int";
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

void qn_wrap_lanes(qn_writer *w, const qn_cut *p, qn_text *to)
{
  w->row.failed |= w->lane.failed;
  if (!w->lane.length) return;
  const char *type = p->length > INT32_MAX ? "long" : "int";
  const bool bounded = p->tail && p->on_cpu; /* a loop of fewer lanes: a branch in it would keep vectors away */
  if (p->across)
    qn_text_add(to, p->tail ? "for (int j = 0; j < there; j++) {\n" : "for (int j = 0; j < %d; j++) {\n", p->width);
  else if (bounded)
    qn_text_add(to, "for (int j = 0, n = int(min(%s(%d), %s(%lld) - q * %d)); j < n; j++) {\n", type, p->width, type,
                (long long)p->length, p->width);
  else if (p->width > 1)
    qn_text_add(to, "%sfor (int j = 0; j < %d; j++) {\n", p->on_cpu ? "" : "_Pragma(\"clang loop unroll(full)\")\n",
                p->width);
  if (p->tail && !p->across) qn_text_add(to, "const %s r = q * %d + j;\n", type, p->width);
  if (p->tail && !bounded) qn_text_add(to, "if (r < %lld) {\n", (long long)p->length);
  qn_move_text(to, &w->lane);
  qn_text_add(to, "%s%s", p->tail && !bounded ? "}\n" : "", p->width > 1 ? "}\n" : "");
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
