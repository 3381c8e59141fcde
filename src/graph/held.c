/* SPDX-License-Identifier: Apache-2.0 */
/* held.c - values of a row that several of its loops need: which are kept in an array from one loop to the next. */
#include "graph/body.h"

int qn_recall_held(qn_writer *w, int value, const qn_index *at, int level)
{
  const int n = w->graph->value[value].ndim;
  if (!w->holds || level == QN_LEVEL_ROW || w->inner) return -1;
  for (int k = 0; k < w->n_held; k++) {
    qn_held *h = &w->held[k];
    if (h->value != value || h->n != n || !qn_same_places(h->at, at, n) || h->first >= w->loop) continue;
    h->last = w->loop;
    const int name = qn_new_register(w);
    qn_text *to = &w->lane;
    qn_text_add(to, "const ");
    qn_write_type(to, qn_compute_type(w->graph->value[value].dtype));
    qn_text_add(to, w->width > 1 ? " v%d = h%d[k * %d + j];\n" : " v%d = h%d[k];\n", name, k, w->width);
    return name;
  }
  return -1;
}

void qn_hold(qn_writer *w, int value, const qn_index *at, int level, int name)
{
  const int n = w->graph->value[value].ndim;
  if (!w->holds || level == QN_LEVEL_ROW || w->inner) return;
  for (int k = 0; k < w->n_held; k++) {
    const qn_held *h = &w->held[k];
    if (h->value == value && h->n == n && qn_same_places(h->at, at, n)) {
      if (!w->counting && h->last > h->first && h->first == w->loop) {
        if (w->width > 1)
          qn_text_add(&w->lane, "h%d[k * %d + j] = v%d;\n", k, w->width, name);
        else
          qn_text_add(&w->lane, "h%d[k] = v%d;\n", k, name);
      }
      return;
    }
  }
  if (!w->counting || w->n_held == 16) return;
  qn_held *h = &w->held[w->n_held++];
  *h = (qn_held){.value = value, .n = n, .first = w->loop, .last = w->loop};
  for (int d = 0; d < n; d++) h->at[d] = at[d];
}

/* A processor reads what is in its caches: it holds what is dear. */
bool qn_is_heldable(const qn_writer *w, int value)
{
  const qn_graph_value *v = &w->graph->value[value];
  if (w->cut->on_cpu)
    return (v->form == QN_FORM_WORD && qn_word(v->word)->cost > 2) ||
           (v->form == QN_FORM_SCAN && qn_root_of(w, value) >= 0);
  return v->form == QN_FORM_WORD || v->form == QN_FORM_CAST || qn_is_memory(v) || w->is_root[value];
}
