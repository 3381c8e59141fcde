/* SPDX-License-Identifier: Apache-2.0 */
/* cut.c - how the work of a kernel is cut: threads along rows or across them, lanes of a thread, and the launch. */
#include "graph/body.h"

enum { QN_PIECE = 4096 }; /* elements of a thread on a processor */

static int64_t power_above(int64_t n)
{
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

/* Whether some place has this quotient or remainder: of the variable, or (0) of anything. */
static bool divides(const qn_index_atom *atom, qn_index variable)
{
  return atom->kind != QN_INDEX_VARIABLE && atom->written && (!variable || atom->of == variable);
}

/* Whether it is of quotients alone: it is the same within each of these, whatever their divisors are. */
static bool is_of_quotients(const qn_writer *w, const qn_index_atom *atom)
{
  const qn_index_sum *of = &w->set.sum[atom->of];
  for (int k = 0; k < of->n; k++)
    if (w->set.atom[of->term[k].atom].kind != QN_INDEX_QUOTIENT) return false;
  return true;
}

/* The extent along x of a domain on the processor: the smallest divisor of places that is long enough, so that no
 * quotient is left in the loop that the compiler turns into vectors. */
static int64_t side_of(const qn_writer *w, int64_t length, qn_index variable, int64_t least)
{
  int64_t side = length;
  for (int k = 0; k < w->set.n_atoms; k++) {
    const qn_index_atom *atom = &w->set.atom[k];
    if (divides(atom, variable) && atom->by >= least && atom->by < side && length % atom->by == 0 &&
        !is_of_quotients(w, atom))
      side = atom->by;
  }
  return side;
}

int64_t qn_pieces_of(const qn_cut *p)
{
  if (p->run) return (p->near_apart + p->run - 1) / p->run;
  const int64_t piece = p->piece ? p->piece : p->width;
  return (p->side + piece - 1) / piece;
}

enum { ABREAST = 64 }; /* the most that a thread has side by side */

/* As many for each thread of a side, in whole vectors where there is more than one thread. */
static int64_t even_piece(int64_t side)
{
  enum { VECTOR = 8 };
  const int64_t pieces = (side + ABREAST - 1) / ABREAST, even = (side + pieces - 1) / pieces;
  return pieces == 1 ? side : (even + VECTOR - 1) / VECTOR * VECTOR;
}

/* How many rows a thread of a processor has side by side, all of them on one side. False: quotients of places are left
 * among them. least: of a side. */
static bool find_width(const qn_writer *w, qn_cut *p, int64_t least)
{
  bool plain = true;
  p->side = side_of(w, p->rows, w->row_variable, least);
  for (int k = 0; k < w->set.n_atoms; k++) {
    const qn_index_atom *atom = &w->set.atom[k];
    plain = plain && (!divides(atom, w->row_variable) || atom->by % p->side == 0);
  }
  p->width = (int)even_piece(p->side);
  return plain;
}

/* Where a tensor's neighbours are of elements far apart, each thread writes a line of memory or a few, and the threads
 * behind it those that read the neighbours, whose lines are at hand then. */
static bool choose_lines(const qn_writer *w, qn_cut *p)
{
  enum { LEAST = 8, FEW = 256, DEAR = 4 };
  const int64_t apart = w->far_apart;
  if (!w->far_bytes || apart < LEAST || p->length % (apart * w->far_n)) return false;
  p->side = side_of(w, apart, 0, 16);
  int64_t best = p->side <= ABREAST ? p->side : 0;
  for (int64_t of = 16; of && !best; of /= 2) /* all of one length, of the largest power of 2 that fits */
    for (int64_t n = ABREAST; n >= ABREAST / 2 && !best; n--)
      if (n % of == 0 && p->side % n == 0) best = n;
  if (!best && w->far_n > FEW) return false; /* pieces off the lines of memory */
  p->piece = best ? best : even_piece(p->side);
  p->near_n = w->far_n;
  p->near_apart = apart / p->side;
  p->gathers = w->cost_lane >= DEAR;
  return true;
}

/* The same for threads of a GPU: a few of them write a piece of a line, the next ones those of the lines that read its
 * neighbours. So both are whole sectors of memory. */
static bool choose_pieces_of_lines(const qn_writer *w, qn_cut *p, size_t bytes)
{
  enum { SECTORS = 64, LEAST = 4, MANY = 1 << 17 };
  const int64_t apart = w->far_apart;
  if (!w->far_bytes || p->length < MANY || w->far_n < LEAST || p->length % (apart * w->far_n)) return false;
  while (apart % p->width) p->width /= 2;
  p->near_n = w->far_n;
  p->near_apart = apart / p->width;
  p->run = SECTORS / (p->width * (int64_t)bytes);
  if (p->run < LEAST) p->run = LEAST;
  if (p->run > p->near_apart) p->run = p->near_apart;
  return true;
}

/* Whether rows are windows of several dimensions. */
static bool is_window(const qn_writer *w)
{
  for (int k = 0; k < w->set.n_atoms; k++)
    if (divides(&w->set.atom[k], w->step_variable)) return true;
  return false;
}

static bool sums(const qn_writer *w)
{
  for (int k = 0; k < w->fused->n; k++) {
    const qn_graph_value *v = &w->graph->value[w->fused->root[k]];
    if (v->form == QN_FORM_REDUCE && v->reduction == QN_GRAPH_REDUCE_SUM) return true;
  }
  return false;
}

/* A thread a row, its lanes neighbours of the row; or several rows a thread, a lane each. A scan's lanes are a piece
 * that is scanned before what stands before it is known: few, so that products of them neither overflow nor vanish. */
static void choose_on_cpu(const qn_writer *w, qn_cut *p, bool along)
{
  const bool summed = sums(w); /* a thread a row is fast then: no element decides a branch */
  p->window = is_window(w);
  /* What is read; what is written are neighbours. Of rows that are no windows, what compilers read as one vector. */
  const bool apart = !p->scans && p->length <= (!p->window ? 4 : summed ? 16 : 64);
  const bool neighbours = w->unit_row > 0 && w->unit_row >= w->unit_length; /* of windows both are */
  if ((apart || neighbours) && p->rows >= 16 && (find_width(w, p, p->window && !summed ? 4 : 16) || p->length >= 32)) {
    p->schedule = QN_SCHEDULE_COLUMNS;
    p->across = true;
    p->tail = p->side % p->width != 0;
    return;
  }
  p->schedule = QN_SCHEDULE_THREAD;
  p->width = p->length < 512 ? 32 : 64;
  if (!along && p->length < QN_WHOLE) p->width = 1;
  if (along && p->length < 64) p->width = p->length < 5 ? 1 : p->length < 8 ? 4 : p->length < 16 ? 8 : 16;
  if (p->scans) p->width = p->length < 64 || !w->adds ? 1 : 4; /* additions of several short rows overlap */
  p->tail = p->length % p->width != 0;
}

/* Lanes of a simdgroup that take a row together: some four steps each, or fewer where rows are few. */
static int64_t team_of(const qn_cut *p, int64_t steps)
{
  enum { STEPS = 4, LANES = 32, MANY = 1 << 19 };
  int64_t team = p->scans ? LANES : power_above((steps + STEPS - 1) / STEPS);
  while (team < LANES && team < steps && p->rows * team < MANY) team *= 2;
  return team < LANES ? team : LANES;
}

/* Whether lanes of a GPU's rows, `line` rows apart, have no quotients. */
static bool are_lines(const qn_writer *w, int64_t line, int64_t lanes)
{
  for (int k = 0; k < w->set.n_atoms; k++) {
    const qn_index_atom *atom = &w->set.atom[k];
    if (!divides(atom, 0) || !(atom->varies & w->set.sum[w->row_variable].varies)) continue;
    if (atom->of == w->row_variable ? atom->by != line && atom->by % (line * lanes) : atom->by % lanes) return false;
  }
  return true;
}

/* Windows that overlap: a thread has those of several lines, one below the other, and finds their places once. Their
 * elements are neighbours for the threads beside it, and in the cache for the next line. */
static bool choose_lines_of_windows(const qn_writer *w, qn_cut *p)
{
  enum { MANY = 1 << 20, LANES = 4, MANY_TAPS = 2 * QN_HELD_ALONE };
  const int64_t most = w->graph->convolutions && sums(w) ? MANY_TAPS : QN_HELD_ALONE; /* taps of a thread */
  const int64_t line = side_of(w, p->rows, w->row_variable, 2);
  int64_t read = 0;
  for (int k = 0; k < w->body->n_inputs; k++)
    if (w->graph->value[w->body->input[k]].n > read) read = w->graph->value[w->body->input[k]].n;
  if (!is_window(w) || p->rows < MANY || line == p->rows || read * 2 > p->rows * p->length) return false;
  int lanes = LANES;
  while (lanes > 1 && (p->length * lanes > most || p->rows % (line * lanes) || !are_lines(w, line, lanes))) lanes /= 2;
  if (lanes == 1) return false;
  p->schedule = QN_SCHEDULE_COLUMNS;
  p->across = true;
  p->side = p->width = lanes;
  p->apart = line;
  return true;
}

/* Rows that lie along memory are read by neighbouring threads, columns side by side. loops: over each row; a
 * threadgroup holds the columns that it reads several times, and few columns are more threads so. */
static void choose_on_gpu(qn_cut *p, bool along, int loops)
{
  enum { MANY = 32768, ENOUGH = 1 << 18 };
  const int64_t steps = (p->length + p->width - 1) / p->width;
  const int64_t alone = !along || p->scans ? 16 : 8; /* the longest row that a thread takes, but for many rows */
  const bool short_or_scanned = p->length <= QN_HELD_ALONE || p->scans, held = loops > 1 && p->length <= QN_HELD * 32;
  const bool many = along              ? p->scans && p->length <= 64 && p->rows >= 65536
                    : short_or_scanned ? p->rows >= MANY
                                       : !held && p->rows >= ENOUGH;
  if (p->length <= alone || many) {
    p->schedule = QN_SCHEDULE_THREAD;
    p->width = 1;
  } else if (!along && p->rows >= 32) {
    p->schedule = QN_SCHEDULE_COLUMNS;
    p->width = p->scans ? 8 : 1; /* a piece of a column for each thread */
    p->threads = power_above(p->length / 8);
    if (p->threads > 32) p->threads = 32;
  } else if (steps <= 32 || (steps <= 256 && p->rows >= 512)) {
    p->schedule = QN_SCHEDULE_SIMD;
    p->threads = team_of(p, steps);
  } else {
    p->schedule = QN_SCHEDULE_GROUP;
    p->threads = power_above(steps / 4);
    p->threads = p->threads < 64 ? 64 : p->threads > 1024 ? 1024 : p->threads;
  }
  p->tail = p->length % p->width != 0;
}

void qn_cut_choose(const qn_writer *w, qn_cut *p)
{
  size_t widest = 1;
  for (int k = 0; k < w->body->n_inputs; k++) {
    const size_t bytes = qn_dtype_bytes(w->graph->value[w->body->input[k]].dtype);
    if (bytes > widest) widest = bytes;
  }
  const int vector = widest <= 2 ? 8 : widest <= 4 ? 4 : 2;
  const bool along = w->unit_length > 0 && w->unit_length >= w->unit_row;
  if (w->fused->rows < 0) {
    p->schedule = QN_SCHEDULE_FLAT;
    p->width = p->on_cpu || p->length % vector || p->length < (1 << 17) ? 1 : vector;
    if (p->on_cpu ? choose_lines(w, p) : choose_pieces_of_lines(w, p, widest)) return;
    p->side = p->on_cpu ? side_of(w, p->length, 0, 16) : 0;
    p->piece = p->side < QN_PIECE ? p->side : QN_PIECE;
    return;
  }
  if (!p->on_cpu && !p->scans && choose_lines_of_windows(w, p)) return;
  p->width = along && (p->scans ? p->length >= 32 * vector : p->length % vector == 0) ? vector : 1;
  if (p->on_cpu)
    choose_on_cpu(w, p, along);
  else
    choose_on_gpu(p, along, w->loop - 1);
}

void qn_cut_launch(const qn_cut *p, qn_body *body)
{
  const int64_t threads = p->run     ? p->length / (p->width * p->near_apart) * qn_pieces_of(p) * p->run
                          : p->piece ? p->length / p->side * qn_pieces_of(p)
                          : p->schedule == QN_SCHEDULE_FLAT    ? p->length / p->width
                          : p->schedule == QN_SCHEDULE_THREAD  ? p->rows
                          : p->across                          ? p->rows / p->side * qn_pieces_of(p)
                          : p->schedule == QN_SCHEDULE_COLUMNS ? (p->rows + 31) / 32 * 32 * p->threads
                                                               : p->rows * p->threads;
  body->grid[0] = (uint64_t)threads;
  body->grid[1] = body->grid[2] = body->group[1] = body->group[2] = 1;
  body->group[0] = p->across                            ? 128
                   : p->schedule == QN_SCHEDULE_COLUMNS ? (uint32_t)p->threads * 32
                   : p->schedule == QN_SCHEDULE_GROUP   ? (uint32_t)p->threads
                   : p->schedule == QN_SCHEDULE_SIMD    ? 256
                   : p->schedule == QN_SCHEDULE_FLAT    ? 256
                                                        : 128;
  const int64_t piece = p->piece    ? p->piece
                        : p->across ? p->length * p->width
                                    : p->length; /* of a thread: some QN_PIECE elements are a group */
  if (p->on_cpu) body->group[0] = piece < 4 ? 1024 : piece < QN_PIECE ? (uint32_t)(QN_PIECE / piece) : 1;
  if (threads > INT32_MAX) body->unfit = "it has more than 2^31 threads";
}
