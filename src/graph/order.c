/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - the steps of a plan, each behind those that it reads. */
#include "graph/fuse.h"
#include <stdlib.h>

static int last_node(const qn_fusion *f, const qn_fused *kernel)
{
  int last = 0;
  for (int r = 0; r < kernel->n; r++)
    if (f->graph->value[kernel->root[r]].node > last) last = f->graph->value[kernel->root[r]].node;
  return last;
}

typedef struct sorter {
  qn_fusion *f;
  qn_step *pending;
  int n;
  int *made_by; /* by value: the step that makes it; -1 */
  int *state;   /* by step: 0 to do, 1 being done, 2 done */
  bool circle;
} sorter;

static void do_step(sorter *s, int k);

static void do_value(sorter *s, int value)
{
  if (s->made_by[value] >= 0) do_step(s, s->made_by[value]);
}

static void do_arguments(sorter *s, const qn_argument *list, int n)
{
  for (int k = 0; k < n; k++)
    if (list[k].kind == QN_ARGUMENT_VALUE)
      do_value(s, list[k].value);
    else if (list[k].kind == QN_ARGUMENT_LIST)
      do_arguments(s, list[k].list, list[k].n);
}

static void do_step(sorter *s, int k)
{
  const qn_step *step = &s->pending[k];
  if (s->state[k]) {
    s->circle |= s->state[k] == 1;
    return;
  }
  s->state[k] = 1;
  if (step->kind == QN_STEP_KERNEL) {
    const qn_body *body = &s->f->body[step->kernel];
    for (int j = 0; j < body->n_inputs; j++) do_value(s, body->input[j]);
  } else {
    const qn_graph_node *node = &s->f->graph->node[step->node];
    do_arguments(s, node->argument, node->n_arguments);
    do_arguments(s, node->keyword, node->n_keywords);
  }
  s->state[k] = 2;
  s->f->step[s->f->n_steps++] = *step;
}

static int by_era(const void *a, const void *b)
{
  const qn_step *x = a, *y = b;
  return x->era != y->era ? x->era - y->era : x->place != y->place ? x->place - y->place : (int)x->kind - (int)y->kind;
}

/* Each step behind those that it reads, otherwise in the order of nodes; eras one behind the other. */
qn_status qn_fusion_order(qn_fusion *f)
{
  const qn_graph *graph = f->graph;
  const size_t most = (size_t)(f->n_kernels + graph->n_nodes) + 1;
  sorter s = {.f = f};
  s.pending = qn_allocate_zero(most, sizeof *s.pending);
  s.state = qn_allocate_zero(most, sizeof *s.state);
  s.made_by = qn_allocate((size_t)graph->n_values * sizeof *s.made_by);
  f->step = qn_allocate_zero(most, sizeof *f->step);
  if (s.pending && s.state && s.made_by && f->step) {
    for (int k = 0; k < f->n_kernels; k++)
      if (f->kernel[k].n)
        s.pending[s.n++] = (qn_step){QN_STEP_KERNEL, -1, k, f->kernel[k].era, last_node(f, &f->kernel[k])};
    for (int k = 0; k < graph->n_nodes; k++) {
      const qn_graph_node *node = &graph->node[k];
      bool any = node->has_effects, view = false;
      for (int j = 0; j < node->n_results; j++) {
        any |= node->is_extern && f->needed[node->result[j]];
        view |= f->needed[node->result[j]] && qn_is_callers_view(f, node->result[j]);
      }
      if (any || view) s.pending[s.n++] = (qn_step){any ? QN_STEP_EXTERN : QN_STEP_VIEW, k, -1, node->era, k};
    }
    qsort(s.pending, (size_t)s.n, sizeof *s.pending, by_era);
    for (int v = 0; v < graph->n_values; v++) s.made_by[v] = -1;
    for (int k = 0; k < s.n; k++) {
      const qn_step *step = &s.pending[k];
      if (step->kind == QN_STEP_KERNEL)
        for (int r = 0; r < f->kernel[step->kernel].n; r++) s.made_by[f->kernel[step->kernel].root[r]] = k;
      else
        for (int j = 0; j < graph->node[step->node].n_results; j++) s.made_by[graph->node[step->node].result[j]] = k;
    }
    for (int k = 0; k < s.n; k++) do_step(&s, k);
  }
  const bool failed = !s.pending || !s.state || !s.made_by || !f->step;
  qn_release(s.pending);
  qn_release(s.state);
  qn_release(s.made_by);
  if (failed) return qn_fail(QN_NO_MEMORY, "no memory for %zu steps", most);
  return s.circle ? qn_fail(QN_BAD_ARGUMENT, "graph: its kernels need each other in a circle") : QN_OK;
}
