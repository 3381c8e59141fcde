/* SPDX-License-Identifier: Apache-2.0 */
/* index.c - the algebra of indices. Two rules undo what a reshape and its inverse do:
 * by * (a / by) + a % by = a, and (by * a + b) / by = a for b below by. */
#include "graph/index.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void qn_indices_free(qn_indices *set)
{
  qn_release(set->atom);
  qn_release(set->sum);
  *set = (qn_indices){0};
}

static void measure(const qn_indices *set, qn_index_sum *s)
{
  s->least = s->most = s->constant;
  s->varies = 0;
  for (int k = 0; k < s->n; k++) {
    const qn_index_atom *atom = &set->atom[s->term[k].atom];
    const int64_t far = s->term[k].step * atom->most;
    if (far < 0)
      s->least += far;
    else
      s->most += far;
    s->varies |= atom->varies;
  }
}

static bool same_sum(const qn_index_sum *a, const qn_index_sum *b)
{
  if (a->constant != b->constant || a->n != b->n) return false;
  for (int k = 0; k < a->n; k++)
    if (a->term[k].atom != b->term[k].atom || a->term[k].step != b->term[k].step) return false;
  return true;
}

static bool grow(qn_indices *set, void *array, int n, int *room, size_t bytes)
{
  void **at = array;
  if (n < *room) return true;
  const int more = *room ? *room * 2 : 64;
  void *grown = qn_reallocate(*at, (size_t)more * bytes);
  if (!grown) {
    set->failed = true;
    return false;
  }
  *at = grown;
  *room = more;
  return true;
}

static qn_index keep_sum(qn_indices *set, qn_index_sum *s)
{
  if (set->failed) return 0;
  if (!set->n_sums) {
    if (!grow(set, &set->sum, 0, &set->sums, sizeof *set->sum)) return 0;
    set->sum[set->n_sums++] = (qn_index_sum){0};
  }
  for (int k = 0; k < set->n_sums; k++)
    if (same_sum(&set->sum[k], s)) return k;
  measure(set, s);
  if (!grow(set, &set->sum, set->n_sums, &set->sums, sizeof *set->sum)) return 0;
  set->sum[set->n_sums] = *s;
  return set->n_sums++;
}

static qn_index_sum get(const qn_indices *set, qn_index a) { return a < set->n_sums ? set->sum[a] : (qn_index_sum){0}; }

qn_index qn_index_constant(qn_indices *set, int64_t value)
{
  qn_index_sum s = {.constant = value};
  return keep_sum(set, &s);
}

static int find_atom(const qn_indices *set, qn_index_kind kind, qn_index of, int64_t by)
{
  for (int k = 0; k < set->n_atoms; k++)
    if (set->atom[k].kind == kind && set->atom[k].of == of && set->atom[k].by == by) return k;
  return -1;
}

static int keep_atom(qn_indices *set, const qn_index_atom *atom)
{
  const int k = atom->kind == QN_INDEX_VARIABLE ? -1 : find_atom(set, atom->kind, atom->of, atom->by);
  if (k >= 0) return k;
  if (!grow(set, &set->atom, set->n_atoms, &set->atoms, sizeof *set->atom)) return -1;
  set->atom[set->n_atoms] = *atom;
  return set->n_atoms++;
}

static qn_index of_atom(qn_indices *set, int atom)
{
  if (atom < 0) return 0;
  qn_index_sum s = {.n = 1};
  s.term[0].atom = atom;
  s.term[0].step = 1;
  return keep_sum(set, &s);
}

qn_index qn_index_variable(qn_indices *set, const char *name, int64_t extent)
{
  if (extent == 1) return qn_index_constant(set, 0);
  if (set->n_variables >= 64) {
    set->failed = true;
    return 0;
  }
  qn_index_atom atom = {.kind = QN_INDEX_VARIABLE, .most = extent - 1, .varies = UINT64_C(1) << set->n_variables++};
  snprintf(atom.name, sizeof atom.name, "%s", name);
  return of_atom(set, keep_atom(set, &atom));
}

/* s += step * atom, in the order of atoms; terms of 0 go. */
static bool add_term(qn_index_sum *s, int atom, int64_t step)
{
  int k = 0;
  while (k < s->n && s->term[k].atom < atom) k++;
  if (k < s->n && s->term[k].atom == atom) {
    s->term[k].step += step;
    if (!s->term[k].step) {
      memmove(&s->term[k], &s->term[k + 1], (size_t)(s->n - k - 1) * sizeof s->term[0]);
      s->n--;
    }
    return true;
  }
  if (!step) return true;
  if (s->n == QN_INDEX_TERMS) return false;
  memmove(&s->term[k + 1], &s->term[k], (size_t)(s->n - k) * sizeof s->term[0]);
  s->term[k].atom = atom;
  s->term[k].step = step;
  s->n++;
  return true;
}

static bool add_sum(qn_index_sum *s, const qn_index_sum *b, int64_t step)
{
  s->constant += step * b->constant;
  for (int k = 0; k < b->n; k++)
    if (!add_term(s, b->term[k].atom, step * b->term[k].step)) return false;
  return true;
}

/* One pair step * (a % by) + step * by * (a / by % n) becomes step * (a % (by * n)). */
static bool join_remainders(qn_indices *set, qn_index_sum *s)
{
  for (int k = 0; k < s->n; k++) {
    const qn_index_atom low = set->atom[s->term[k].atom];
    const int64_t step = s->term[k].step;
    if (low.kind != QN_INDEX_REMAINDER) continue;
    for (int j = 0; j < s->n; j++) {
      const qn_index_atom high = set->atom[s->term[j].atom];
      if (high.kind != QN_INDEX_REMAINDER || s->term[j].step != step * low.by) continue;
      if (high.of != qn_index_quotient(set, low.of, low.by)) continue;
      const int atoms[2] = {s->term[k].atom, s->term[j].atom};
      const qn_index_sum both = get(set, qn_index_remainder(set, low.of, low.by * high.by));
      return add_term(s, atoms[0], -step) && add_term(s, atoms[1], -step * low.by) && add_sum(s, &both, step);
    }
  }
  return false;
}

/* One pair step * by * (a / by) + step * (a % by) becomes step * a. */
static bool join_pair(qn_indices *set, qn_index_sum *s)
{
  for (int k = 0; k < s->n; k++) {
    const qn_index_atom rest = set->atom[s->term[k].atom];
    const int64_t step = s->term[k].step;
    if (rest.kind != QN_INDEX_REMAINDER) continue;
    const qn_index_sum whole = get(set, qn_index_quotient(set, rest.of, rest.by));
    if (whole.n != 1 || whole.constant || whole.term[0].step != 1) continue;
    for (int j = 0; j < s->n; j++) {
      if (s->term[j].atom != whole.term[0].atom || s->term[j].step != step * rest.by) continue;
      const qn_index_sum of = get(set, rest.of);
      const int atom = s->term[k].atom;
      return add_term(s, whole.term[0].atom, -step * rest.by) && add_term(s, atom, -step) && add_sum(s, &of, step);
    }
  }
  return false;
}

qn_index qn_index_add(qn_indices *set, qn_index a, qn_index b, int64_t step)
{
  qn_index_sum s = get(set, a);
  const qn_index_sum other = get(set, b);
  if (!add_sum(&s, &other, step)) set->failed = true;
  while (!set->failed && (join_pair(set, &s) || join_remainders(set, &s))) continue;
  return keep_sum(set, &s);
}

/* The parts of a that are multiples of by, over by; *rest has the others. */
static qn_index_sum split(const qn_indices *set, qn_index a, int64_t by, qn_index_sum *rest)
{
  const qn_index_sum s = get(set, a);
  qn_index_sum whole = {.constant = s.constant / by};
  *rest = (qn_index_sum){.constant = s.constant % by};
  if (rest->constant < 0) rest->constant += by, whole.constant--;
  for (int k = 0; k < s.n; k++)
    if (s.term[k].step % by == 0)
      add_term(&whole, s.term[k].atom, s.term[k].step / by);
    else
      add_term(rest, s.term[k].atom, s.term[k].step);
  measure(set, rest);
  return whole;
}

static int64_t common(int64_t a, int64_t b)
{
  while (b) {
    const int64_t c = a % b;
    a = b;
    b = c;
  }
  return a < 0 ? -a : a;
}

/* The largest g above 1 that divides `by`, such that all of s but a part from 0 to g - 1 are multiples of g; 1: none.
 */
static int64_t grain(const qn_indices *set, const qn_index_sum *s, int64_t by)
{
  int64_t best = 1;
  for (int k = 0; k < s->n; k++) {
    const int64_t g = common(by, s->term[k].step);
    if (g <= best) continue;
    int64_t most = s->constant % g;
    bool fits = most >= 0;
    for (int j = 0; j < s->n && fits; j++) {
      if (s->term[j].step % g == 0) continue;
      fits = s->term[j].step > 0;
      most += s->term[j].step * set->atom[s->term[j].atom].most;
      fits = fits && most < g;
    }
    if (fits && most < g) best = g;
  }
  return best;
}

static qn_index plain(qn_indices *set, qn_index_kind kind, qn_index of, int64_t by)
{
  const qn_index_sum s = get(set, of);
  const qn_index_atom atom = {.kind = kind,
                              .of = of,
                              .by = by,
                              .most = kind == QN_INDEX_QUOTIENT ? (s.most > 0 ? s.most / by : 0) : by - 1,
                              .varies = s.varies};
  return of_atom(set, keep_atom(set, &atom));
}

/* The single atom that s is, or -1. */
static int single(const qn_index_sum *s)
{
  return s->n == 1 && !s->constant && s->term[0].step == 1 ? s->term[0].atom : -1;
}

static qn_index quotient_of_rest(qn_indices *set, qn_index rest, int64_t by)
{
  const qn_index_sum s = get(set, rest);
  if (s.least >= 0 && s.most < by) return qn_index_constant(set, 0);
  const int64_t g = s.least >= 0 ? grain(set, &s, by) : 1;
  if (g > 1) {
    qn_index_sum below, whole = split(set, rest, g, &below);
    return qn_index_quotient(set, keep_sum(set, &whole), by / g);
  }
  const int k = single(&s);
  if (k >= 0) {
    const qn_index_atom atom = set->atom[k];
    if (atom.kind == QN_INDEX_QUOTIENT) return qn_index_quotient(set, atom.of, atom.by * by);
    if (atom.kind == QN_INDEX_REMAINDER && atom.by % by == 0)
      return qn_index_remainder(set, qn_index_quotient(set, atom.of, by), atom.by / by);
  }
  return plain(set, QN_INDEX_QUOTIENT, rest, by);
}

qn_index qn_index_quotient(qn_indices *set, qn_index a, int64_t by)
{
  if (by == 1 || set->failed) return a;
  qn_index_sum rest, whole = split(set, a, by, &rest);
  if (rest.least < 0) return plain(set, QN_INDEX_QUOTIENT, a, by);
  const qn_index left = keep_sum(set, &whole), right = quotient_of_rest(set, keep_sum(set, &rest), by);
  return qn_index_add(set, left, right, 1);
}

static qn_index remainder_of_rest(qn_indices *set, qn_index rest, int64_t by)
{
  const qn_index_sum s = get(set, rest);
  if (s.least >= 0 && s.most < by) return rest;
  const int64_t g = s.least >= 0 ? grain(set, &s, by) : 1;
  if (g > 1) {
    qn_index_sum below, whole = split(set, rest, g, &below);
    const qn_index inner = qn_index_remainder(set, keep_sum(set, &whole), by / g);
    return qn_index_add(set, keep_sum(set, &below), inner, g);
  }
  const int k = single(&s);
  if (k >= 0 && set->atom[k].kind == QN_INDEX_REMAINDER && set->atom[k].by % by == 0)
    return qn_index_remainder(set, set->atom[k].of, by);
  return plain(set, QN_INDEX_REMAINDER, rest, by);
}

qn_index qn_index_remainder(qn_indices *set, qn_index a, int64_t by)
{
  if (by == 1 || set->failed) return qn_index_constant(set, 0);
  qn_index_sum rest;
  split(set, a, by, &rest);
  if (rest.least < 0) {
    const qn_index_sum s = get(set, a);
    return s.least >= 0 && s.most < by ? a : plain(set, QN_INDEX_REMAINDER, a, by);
  }
  return remainder_of_rest(set, keep_sum(set, &rest), by);
}

qn_index qn_index_flat(qn_indices *set, int n, const int64_t *extents, const qn_index *at)
{
  qn_index flat = qn_index_constant(set, 0);
  int64_t step = 1;
  for (int d = n - 1; d >= 0; d--) {
    flat = qn_index_add(set, flat, at[d], step);
    step *= extents[d];
  }
  return flat;
}

void qn_index_spread(qn_indices *set, qn_index flat, int n, const int64_t *extents, qn_index *at)
{
  for (int d = n - 1; d >= 0; d--) {
    at[d] = d ? qn_index_remainder(set, flat, extents[d]) : flat;
    if (extents[d] == 1) at[d] = qn_index_constant(set, 0);
    flat = qn_index_quotient(set, flat, extents[d]);
  }
}

/* Blocks of extents with equal products are spread apart from each other: indices stay short. */
void qn_index_reshape(qn_indices *set, int n_from, const int64_t *from, const qn_index *at, int n_to, const int64_t *to,
                      qn_index *place)
{
  int i = n_from, j = n_to;
  while (j > 0) {
    int begin = i, first = j - 1;
    int64_t a = 1, b = to[first];
    while (a != b)
      if (a < b && begin > 0)
        a *= from[--begin];
      else if (a > b && first > 0)
        b *= to[--first];
      else
        break;
    const qn_index flat = qn_index_flat(set, i - begin, from + begin, at + begin);
    qn_index_spread(set, flat, j - first, to + first, place + first);
    i = begin;
    j = first;
  }
}

qn_index qn_index_shared(qn_indices *set, qn_index a, uint64_t varies, bool *divides)
{
  const qn_index_sum s = get(set, a);
  qn_index_sum shared = {0};
  *divides = false;
  for (int k = 0; k < s.n; k++) {
    const qn_index_atom *atom = &set->atom[s.term[k].atom];
    if (atom->varies & varies) continue;
    add_term(&shared, s.term[k].atom, s.term[k].step);
    *divides |= atom->kind != QN_INDEX_VARIABLE;
  }
  return keep_sum(set, &shared);
}

static int atom_of(const qn_indices *set, qn_index variable)
{
  const qn_index_sum s = get(set, variable);
  return single(&s);
}

bool qn_index_step(const qn_indices *set, qn_index a, qn_index variable, int64_t *step)
{
  const qn_index_sum s = get(set, a);
  const int atom = atom_of(set, variable);
  *step = 0;
  for (int k = 0; k < s.n; k++)
    if (s.term[k].atom == atom)
      *step = s.term[k].step;
    else if (atom >= 0 && set->atom[s.term[k].atom].varies & set->atom[atom].varies)
      return false;
  return true;
}

bool qn_index_runs(const qn_indices *set, qn_index a, qn_index variable)
{
  const qn_index_sum s = get(set, a);
  for (int k = 0; k < s.n; k++) {
    const qn_index_atom *atom = &set->atom[s.term[k].atom];
    if (atom->kind == QN_INDEX_REMAINDER && atom->by >= 16 && atom->of == variable && llabs(s.term[k].step) == 1)
      return true;
  }
  return false;
}

bool qn_index_far(const qn_indices *set, qn_index a, qn_index variable, int64_t *apart, int64_t *n)
{
  const qn_index_sum s = get(set, a);
  for (int k = 0; k < s.n; k++) {
    const qn_index_atom *atom = &set->atom[s.term[k].atom], *quotient = atom;
    if (s.term[k].step != 1 || atom->kind == QN_INDEX_VARIABLE) continue;
    if (atom->kind == QN_INDEX_REMAINDER) {
      const qn_index_sum of = get(set, atom->of);
      const int only = single(&of);
      if (only < 0) continue;
      quotient = &set->atom[only];
    }
    if (quotient->kind != QN_INDEX_QUOTIENT || quotient->of != variable) continue;
    *apart = quotient->by;
    *n = atom->most + 1;
    return true;
  }
  return false;
}

int qn_index_access(qn_indices *set, qn_index a, qn_index variable, int64_t width, qn_index *first)
{
  int64_t step;
  if (!qn_index_step(set, a, variable, &step) || (step != 1 && step != -1)) return 0;
  *first = qn_index_add(set, a, variable, -step);
  if (step < 0) *first = qn_index_add(set, *first, qn_index_constant(set, 1), 1 - width);
  const qn_index_sum s = get(set, *first);
  for (int k = 0; k < s.n; k++)
    if (s.term[k].step % width) return 0;
  return s.constant % width == 0 ? (int)step : 0;
}

/* Quotients of what is never negative: unsigned, which is cheaper. */
static void write_atom(const qn_indices *set, const qn_index_atom *atom, bool wide, qn_text *text)
{
  if (atom->kind == QN_INDEX_VARIABLE) {
    qn_text_add(text, "%s", atom->name);
    return;
  }
  qn_text_add(text, wide ? "long(ulong(" : "int(uint(");
  qn_index_write(set, atom->of, wide, text);
  qn_text_add(text, ") %c %lld%s)", atom->kind == QN_INDEX_QUOTIENT ? '/' : '%', (long long)atom->by,
              wide ? "ul" : "u");
}

void qn_index_write(const qn_indices *set, qn_index a, bool wide, qn_text *text)
{
  const qn_index_sum s = get(set, a);
  const char *l = wide ? "l" : "";
  bool first = true;
  for (int k = 0; k < s.n; k++) {
    const int64_t step = s.term[k].step;
    if (!first || step < 0) qn_text_add(text, first ? "-" : step < 0 ? " - " : " + ");
    set->atom[s.term[k].atom].written = true;
    write_atom(set, &set->atom[s.term[k].atom], wide, text);
    if (step != 1 && step != -1) qn_text_add(text, " * %lld%s", (long long)(step < 0 ? -step : step), l);
    first = false;
  }
  if (first)
    qn_text_add(text, "%lld%s", (long long)s.constant, l);
  else if (s.constant)
    qn_text_add(text, " %c %lld%s", s.constant < 0 ? '-' : '+', (long long)(s.constant < 0 ? -s.constant : s.constant),
                l);
}

bool qn_index_is_wide(const qn_indices *set)
{
  for (int k = 0; k < set->n_atoms; k++) {
    const qn_index_atom *atom = &set->atom[k];
    if (atom->kind != QN_INDEX_VARIABLE && atom->written && set->sum[atom->of].most > INT32_MAX) return true;
  }
  return false;
}
