/* SPDX-License-Identifier: Apache-2.0 */
/* held.c - values of a row that several of its loops need: which are kept in an array from one loop to the next. And
 * values of rows side by side that are the same along them: these are computed in lanes of their own before the loop.
 */
#include "graph/body.h"
#include <string.h>

int qn_recall_held(qn_writer *w, int value, const qn_index *at, int level)
{
  const int n = w->graph->value[value].ndim;
  if (!w->holds || level == QN_LEVEL_ROW || w->inner || w->once) return -1;
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
  if (!w->holds || level == QN_LEVEL_ROW || w->inner || w->once) return;
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

/* ---- lanes of their own ---- */
bool qn_begin_lanes(qn_writer *w, qn_lanes *outer)
{
  const int n = w->n_memos;
  *outer = (qn_lanes){.lane = w->lane, .n = n, .memo = qn_allocate((size_t)(n + 1) * sizeof *outer->memo)};
  if (!outer->memo) {
    w->set.failed = true;
    return false;
  }
  if (n) memcpy(outer->memo, w->memo, (size_t)n * sizeof *outer->memo);
  qn_memo_forget(w, QN_LEVEL_LANE);
  w->lane = (qn_text){0};
  return true;
}

void qn_end_lanes(qn_writer *w, qn_lanes *outer)
{
  w->lane = outer->lane;
  qn_memo_forget(w, QN_LEVEL_LANE);
  for (int k = 0; k < outer->n; k++) {
    const qn_memo *m = &outer->memo[k];
    if (m->level == QN_LEVEL_LANE) qn_memo_add(w, m->value, m->at, m->n, m->level, m->name);
  }
  qn_release(outer->memo);
}

bool qn_is_same_along(const qn_writer *w, int value, uint64_t varies)
{
  const qn_graph_value *v = &w->graph->value[value];
  const uint64_t lane = w->set.sum[w->lane_variable].varies, step = w->set.sum[w->step_variable].varies;
  if (!w->cut->across || w->once || w->inner || !(varies & lane) || varies & step) return false;
  return v->form == QN_FORM_WORD || v->form == QN_FORM_CAST ||
         (v->form == QN_FORM_REDUCE && v->reduction == QN_GRAPH_REDUCE_SUM); /* its parts may be of a wider type */
}

int qn_write_same_along(qn_writer *w, int value, const qn_index *at)
{
  const int name = qn_new_register(w);
  qn_text type = {0};
  qn_lanes outer;
  if (!qn_begin_lanes(w, &outer)) return name;
  w->once = true;
  qn_text_add(&w->lane, "r%d[j] = v%d;\n", name, qn_write_value(w, value, at));
  w->once = false;
  qn_write_type(&type, qn_compute_type(w->graph->value[value].dtype));
  qn_text_add(&w->row, "%s r%d[%d];\n", type.at ? type.at : "", name, w->width);
  qn_wrap_lanes(w, w->cut, &w->row);
  qn_end_lanes(w, &outer);
  qn_text_add(&w->lane, "const %s v%d = r%d[j];\n", type.at ? type.at : "", name, name);
  w->row.failed |= type.failed;
  qn_text_free(&type);
  return name;
}
