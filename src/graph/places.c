/* SPDX-License-Identifier: Apache-2.0 */
/* places.c - where in its domain of rows a kernel computes each of its values. */
#include "graph/body.h"
#include <string.h>

static const qn_graph_value *at_value(const qn_writer *w, int value) { return &w->graph->value[value]; }

/* Rows are counted first along the dimension whose elements lie side by side, where all reductions agree on it. */
int qn_neighbours_of(const qn_graph *graph, const qn_fused *fused)
{
  const qn_graph_value *first = fused->rows < 0 ? NULL : &graph->value[fused->rows];
  for (int k = 0; first && k < fused->n; k++) {
    const qn_graph_value *v = &graph->value[fused->root[k]];
    if (!qn_has_rows(v)) continue;
    const qn_graph_value *a = &graph->value[v->argument[0]], *b = &graph->value[first->argument[0]];
    const bool same = a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
    if (v->form != QN_FORM_REDUCE || !same || v->reduced != first->reduced || v->dim != first->dim) return 0;
  }
  const bool kept = first && first->dim < graph->value[first->argument[0]].ndim && !(first->reduced >> first->dim & 1);
  return kept ? first->dim : 0;
}

/* Places in a reduction's or scan's argument, of row `o` and element `r`; r < 0: in a reduction's result. */
void qn_spread_reduced(qn_writer *w, int value, qn_index o, qn_index r, qn_index *at)
{
  const qn_graph_value *v = at_value(w, value), *a = at_value(w, v->argument[0]);
  int64_t extents[2][QN_GRAPH_DIMS];
  int dims[2][QN_GRAPH_DIMS], n[2] = {0};
  qn_index place[2][QN_GRAPH_DIMS];
  for (int d = 0; d < a->ndim; d++) {
    const int part = v->reduced >> d & 1;
    if (part || d != w->neighbours || !d) dims[part][n[part]++] = d;
  }
  if (w->neighbours) dims[0][n[0]++] = w->neighbours;
  for (int part = 0; part < 2; part++)
    for (int k = 0; k < n[part]; k++) extents[part][k] = a->shape[dims[part][k]];
  qn_index_spread(&w->set, o, n[0], extents[0], place[0]);
  if (r >= 0) qn_index_spread(&w->set, r, n[1], extents[1], place[1]);
  for (int part = 0; part < 2; part++)
    for (int k = 0; k < n[part]; k++)
      at[dims[part][k]] = part && r < 0 ? qn_index_constant(&w->set, 0) : place[part][k];
}

/* The dimensions that a view of the same shape runs through backwards; false: it is another view. */
static bool is_mirror(const qn_graph_value *v, uint32_t *dims)
{
  for (int d = 0; d < v->ndim; d++) {
    const qn_view_index *x = &v->view[d];
    if (x->n != 1 || x->dim[0] != d) return false;
    if (x->step[0] == -1 && x->low == v->shape[d] - 1)
      *dims ^= UINT32_C(1) << d;
    else if (x->step[0] != 1 || x->low)
      return false;
  }
  return true;
}

/* Whether words and mirrors make the value of an earlier root of the same shape, and the dimensions that are mirrored
 * between the domain and the value. */
static bool find_mirror(const qn_writer *w, int value, int root, uint32_t *dims)
{
  const qn_graph_value *v = at_value(w, value);
  for (int k = 0; k < root; k++)
    if (w->fused->root[k] == value) {
      *dims ^= w->mirror[k];
      return true;
    }
  if (qn_is_memory(v) || (w->is_root[value] && w->fused->root[root] != value)) return false;
  uint32_t mine = *dims;
  if (v->form == QN_FORM_AFFINE ? !is_mirror(v, &mine) : v->form != QN_FORM_WORD && v->form != QN_FORM_CAST)
    return false;
  for (int k = 0; k < v->n_arguments; k++) {
    const qn_graph_value *a = at_value(w, v->argument[k]);
    uint32_t found = mine;
    if (a->ndim != v->ndim || memcmp(a->shape, v->shape, (size_t)v->ndim * sizeof *v->shape)) continue;
    if (find_mirror(w, v->argument[k], root, &found)) return *dims = found, true;
  }
  return false;
}

/* A mirror of a scan is computed where the scan is: neither is turned around in memory. */
static void mirror_places(qn_writer *w, int k)
{
  const qn_graph_value *v = at_value(w, w->fused->root[k]);
  uint32_t dims = 0;
  w->mirror[k] = find_mirror(w, w->fused->root[k], k, &dims) ? dims : 0;
  for (int d = 0; d < v->ndim; d++)
    if (w->mirror[k] >> d & 1)
      w->places[k][d] = qn_index_add(&w->set, qn_index_constant(&w->set, v->shape[d] - 1), w->places[k][d], -1);
}

/* Element r of the memory that the value is stored in. */
static void spread_stored(qn_writer *w, const qn_graph_value *v, qn_index r, qn_index *at)
{
  int64_t strides[QN_GRAPH_DIMS], extents[QN_GRAPH_DIMS];
  int order[QN_GRAPH_DIMS];
  qn_index place[QN_GRAPH_DIMS];
  qn_stored_order(v, strides, order);
  for (int k = 0; k < v->ndim; k++) extents[k] = v->shape[order[k]];
  qn_index_spread(&w->set, r, v->ndim, extents, place);
  for (int k = 0; k < v->ndim; k++) at[order[k]] = place[k];
}

void qn_place_roots(qn_writer *w, const qn_cut *p, qn_index o, qn_index r)
{
  const qn_fused *f = w->fused;
  qn_index domain[QN_GRAPH_DIMS], row[QN_GRAPH_DIMS];
  int64_t kept[QN_GRAPH_DIMS];
  const qn_graph_value *of = f->rows < 0 ? NULL : at_value(w, at_value(w, f->rows)->argument[0]);
  if (of) {
    qn_spread_reduced(w, f->rows, o, r, domain);
    qn_spread_reduced(w, f->rows, o, -1, row);
    for (int d = 0; d < of->ndim; d++) kept[d] = at_value(w, f->rows)->reduced >> d & 1 ? 1 : of->shape[d];
  }
  for (int k = 0; k < f->n; k++) {
    const qn_graph_value *v = at_value(w, f->root[k]);
    w->own[k] = w->places[k];
    w->mirror[k] = 0;
    if (qn_has_rows(v))
      qn_spread_reduced(w, f->root[k], o, v->form == QN_FORM_SCAN ? r : -1, w->places[k]);
    else if (!of) {
      spread_stored(w, v, r, w->places[k]);
      mirror_places(w, k);
    } else if (v->n == p->rows * p->length) {
      qn_index_reshape(&w->set, of->ndim, of->shape, domain, v->ndim, v->shape, w->places[k]);
      mirror_places(w, k);
    } else
      qn_index_reshape(&w->set, of->ndim, kept, row, v->ndim, v->shape, w->places[k]);
  }
}
