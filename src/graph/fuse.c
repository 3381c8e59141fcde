/* SPDX-License-Identifier: Apache-2.0 */
/* fuse.c - decides which values are written to memory and which kernels write them. A value becomes memory if somebody
 * outside reads it, if it is a reduction or a scan, if several read it and computing it again would cost more traffic,
 * or (on a processor, and before a GPU's convolutions) if windows of it are read and it is dear. Then kernels are
 * joined while each value is computed at the same place for all that read it: these need no memory in between, unless
 * somebody else reads it too. So are small kernels that have nothing in common. Whether a join is possible is found out
 * by writing its body. */
#include "graph/fuse.h"
#include "quern/kernel.h"
#include <limits.h>
#include <string.h>

void qn_fusion_free(qn_fusion *f)
{
  for (int k = 0; f->body && k < f->n_kernels; k++) qn_body_free(&f->body[k]);
  qn_release(f->is_root);
  qn_release(f->needed);
  qn_release(f->live);
  qn_release(f->kernel);
  qn_release(f->body);
  qn_release(f->kernel_of);
  qn_release(f->step);
  *f = (qn_fusion){0};
}

static const qn_graph_value *value_of(const qn_fusion *f, int value) { return &f->graph->value[value]; }
static const qn_graph_node *node_of(const qn_fusion *f, int value)
{
  const int node = value_of(f, value)->node;
  return node < 0 ? NULL : &f->graph->node[node];
}

/* A view that the caller makes where it is needed: its memory is its argument's. */
bool qn_is_callers_view(const qn_fusion *f, int value)
{
  const qn_graph_node *node = node_of(f, value);
  return value_of(f, value)->named && qn_is_view(value_of(f, value)) && node && node->is_view;
}

/* ---- what is needed ---- */
static void need(qn_fusion *f, int value);

static void need_arguments(qn_fusion *f, const qn_argument *list, int n)
{
  for (int k = 0; k < n; k++)
    if (list[k].kind == QN_ARGUMENT_VALUE)
      need(f, list[k].value);
    else if (list[k].kind == QN_ARGUMENT_LIST)
      need_arguments(f, list[k].list, list[k].n);
}

static void live(qn_fusion *f, int value)
{
  const qn_graph_value *v = value_of(f, value);
  if (f->live[value]) return;
  f->live[value] = true;
  if (qn_is_memory(v)) {
    if (v->form == QN_FORM_EXTERN) need(f, value);
    return;
  }
  for (int k = 0; k < v->n_arguments; k++) live(f, qn_arguments_of(v)[k]);
}

static void need(qn_fusion *f, int value)
{
  if (f->needed[value]) return;
  f->needed[value] = true;
  live(f, value);
  const qn_graph_node *node = node_of(f, value);
  if (value_of(f, value)->form == QN_FORM_EXTERN || qn_is_callers_view(f, value)) {
    need_arguments(f, node->argument, node->n_arguments);
    need_arguments(f, node->keyword, node->n_keywords);
  }
}

/* ---- which values are memory ---- */
typedef struct uses {
  int *readers; /* by value: how many that are no views read it, by views too */
  bool *far;    /* by value: somebody of another era reads it */
  bool *window; /* by value: windows of it are read */
} uses;

static int era_of(const qn_fusion *f, int value)
{
  const qn_graph_node *node = node_of(f, value);
  return node ? node->era : 0;
}

static bool has_windows(const qn_fusion *f, const qn_graph_value *view)
{
  for (int d = 0; view->form == QN_FORM_AFFINE && d < value_of(f, view->argument[0])->ndim; d++)
    if (view->view[d].n > 1) return true;
  return false;
}

static void count_reader(const qn_fusion *f, uses *u, int value, int era, bool window)
{
  u->readers[value]++;
  if (era_of(f, value) != era) u->far[value] = true;
  if (window) u->window[value] = true;
  const qn_graph_value *v = value_of(f, value);
  if (qn_is_view(v)) count_reader(f, u, v->argument[0], era, window || has_windows(f, v));
}

/* Computing it again reads no more than reading it would, and does little. */
static bool is_cheap(const qn_fusion *f, int value, int depth)
{
  const qn_graph_value *v = value_of(f, value);
  if (v->form == QN_FORM_CONSTANT || v->form == QN_FORM_IOTA) return true;
  if (v->form != QN_FORM_WORD || qn_word(v->word)->cost > 2 || depth > 2) return false;
  int big = 0;
  for (int k = 0; k < v->n_arguments; k++) {
    int a = v->argument[k];
    while (qn_is_view(value_of(f, a))) a = value_of(f, a)->argument[0];
    const qn_graph_value *of = value_of(f, a);
    if (of->form == QN_FORM_CONSTANT) continue;
    const bool large = of->n * (int64_t)qn_dtype_bytes(of->dtype) * 16 > v->n * (int64_t)qn_dtype_bytes(v->dtype);
    if (large && !qn_is_memory(of) && !f->is_root[a] && !is_cheap(f, a, depth + 1)) return false;
    if (k == 0 || a != v->argument[0]) big += large;
  }
  return big <= 1;
}

static void find_roots(qn_fusion *f, const uses *u, bool fuse)
{
  enum { MOST = 60 }; /* words of a kernel */
  /* Operations of an element that windows shall not repeat: a GPU's pools do. */
  const int dear = f->graph->on_cpu ? 16 : f->graph->convolutions ? 20 : INT_MAX;
  int *size = qn_allocate_zero((size_t)f->graph->n_values, sizeof *size);
  int *cost = qn_allocate_zero((size_t)f->graph->n_values, sizeof *cost);
  for (int v = 0; v < f->graph->n_values; v++) {
    const qn_graph_value *value = value_of(f, v);
    if (!f->live[v] || qn_is_memory(value) || value->form == QN_FORM_CONSTANT || qn_is_callers_view(f, v)) continue;
    const bool computes = value->form == QN_FORM_WORD || value->form == QN_FORM_CAST || qn_has_rows(value);
    bool root = f->needed[v] || qn_has_rows(value) || u->far[v] || (!fuse && value->named);
    int mine = computes, operations = value->form == QN_FORM_WORD ? qn_word(value->word)->cost : 0;
    for (int k = 0; k < value->n_arguments; k++) {
      const int a = qn_arguments_of(value)[k];
      if (size && !f->is_root[a] && a < v) mine += size[a];
      if (cost && !f->is_root[a] && a < v) operations += cost[a];
    }
    if (computes && u->readers[v] > 1 && !is_cheap(f, v, 0)) root = true;
    if (computes && mine > MOST) root = true;
    if (computes && u->window[v] && operations >= dear) root = true;
    f->is_root[v] = root;
    if (size) size[v] = root ? 0 : mine;
    if (cost) cost[v] = root ? 0 : operations;
  }
  qn_release(size);
  qn_release(cost);
}

/* ---- kernels ---- */
static qn_status add_kernel(qn_fusion *f, int root)
{
  if (f->n_kernels == f->kernels) {
    const int more = f->kernels ? f->kernels * 2 : 64;
    qn_fused *kernel = qn_reallocate(f->kernel, (size_t)more * sizeof *kernel);
    if (kernel) f->kernel = kernel;
    qn_body *body = kernel ? qn_reallocate(f->body, (size_t)more * sizeof *body) : NULL;
    if (body) f->body = body;
    if (!body) return qn_fail(QN_NO_MEMORY, "no memory for %d kernels", more);
    f->kernels = more;
  }
  f->kernel[f->n_kernels] = (qn_fused){.n = 1,
                                       .root = {root},
                                       .stored = {true},
                                       .rows = qn_has_rows(value_of(f, root)) ? root : -1,
                                       .era = era_of(f, root)};
  f->body[f->n_kernels] = (qn_body){0};
  f->kernel_of[root] = f->n_kernels++;
  return QN_OK;
}

/* Roots in the order of arguments before what reads them. */
static qn_status visit(qn_fusion *f, int value, bool *seen)
{
  if (seen[value]) return QN_OK;
  seen[value] = true;
  const qn_graph_value *v = value_of(f, value);
  if (!qn_is_memory(v))
    for (int k = 0; k < v->n_arguments; k++) qn_try(visit(f, qn_arguments_of(v)[k], seen));
  return f->is_root[value] ? add_kernel(f, value) : QN_OK;
}

/* Calls with each root or memory that a value is made of. */
static void each_source(const qn_fusion *f, int value, bool top, void (*found)(void *user, int value), void *user,
                        bool *seen)
{
  const qn_graph_value *v = value_of(f, value);
  if (!top && seen[value]) return;
  seen[value] = true;
  if (!top && (qn_is_memory(v) || f->is_root[value])) {
    found(user, value);
    return;
  }
  for (int k = 0; k < v->n_arguments; k++) each_source(f, qn_arguments_of(v)[k], false, found, user, seen);
}

typedef struct sources {
  int n, value[64];
} sources;

static void add_source(void *user, int value)
{
  sources *s = user;
  if (s->n < 64) s->value[s->n++] = value;
}

static void sources_of(const qn_fusion *f, int value, sources *s, bool *seen)
{
  memset(seen, 0, (size_t)f->graph->n_values * sizeof *seen);
  s->n = 0;
  each_source(f, value, true, add_source, s, seen);
}

/* ---- dependence: does a kernel read, by way of others, what another makes? ---- */
typedef struct search {
  const qn_fusion *f;
  int from, to; /* kernels */
  bool *seen;   /* by value, twice: reached by way of others, and not */
  bool found;
} search;

static void follow(search *s, int value, bool direct);

static void follow_arguments(search *s, const qn_argument *list, int n)
{
  for (int k = 0; k < n; k++)
    if (list[k].kind == QN_ARGUMENT_VALUE)
      follow(s, list[k].value, false);
    else if (list[k].kind == QN_ARGUMENT_LIST)
      follow_arguments(s, list[k].list, list[k].n);
}

static void follow_values(search *s, const qn_graph_value *v, bool direct)
{
  for (int k = 0; k < v->n_arguments; k++) follow(s, qn_arguments_of(v)[k], direct);
}

static void follow(search *s, int value, bool direct)
{
  const qn_fusion *f = s->f;
  const int kernel = f->kernel_of[value];
  if (s->found || s->seen[2 * value + direct] || kernel == s->from) return;
  s->seen[2 * value + direct] = true;
  if (kernel == s->to)
    s->found = !direct;
  else if (kernel >= 0) /* all roots of a kernel are made at once */
    for (int r = 0; r < f->kernel[kernel].n; r++) follow_values(s, value_of(f, f->kernel[kernel].root[r]), false);
  else if (value_of(f, value)->form == QN_FORM_EXTERN) {
    follow_arguments(s, node_of(f, value)->argument, node_of(f, value)->n_arguments);
    follow_arguments(s, node_of(f, value)->keyword, node_of(f, value)->n_keywords);
  } else
    follow_values(s, value_of(f, value), direct);
}

/* Kernel b needs something that needs a: then they cannot be one. */
static bool depends_by_others(const qn_fusion *f, int b, int a, bool *seen)
{
  search s = {.f = f, .from = b, .to = a, .seen = seen};
  memset(seen, 0, 2 * (size_t)f->graph->n_values * sizeof *seen);
  for (int r = 0; r < f->kernel[b].n; r++) follow_values(&s, value_of(f, f->kernel[b].root[r]), true);
  return s.found;
}

/* ---- joining ---- */
static bool domains_fit(const qn_fusion *f, const qn_fused *a, const qn_fused *b)
{
  int64_t rows[2], length[2];
  qn_fused_domain(f->graph, a, &rows[0], &length[0]);
  qn_fused_domain(f->graph, b, &rows[1], &length[1]);
  if (a->rows >= 0 && b->rows >= 0) return rows[0] == rows[1] && length[0] == length[1];
  if (a->rows < 0 && b->rows < 0) return length[0] == length[1];
  const int64_t n = a->rows < 0 ? length[0] : length[1], r = a->rows < 0 ? rows[1] : rows[0],
                l = a->rows < 0 ? length[1] : length[0];
  return n == r * l || n == r;
}

/* Roots of both, each behind what it reads: kernels' numbers grow with the order in which roots were found. */
static bool join(const qn_fused *a, const qn_fused *b, qn_fused *both)
{
  if (a->n + b->n > QN_FUSED_ROOTS || a->era != b->era) return false;
  *both = *a;
  memcpy(both->root + a->n, b->root, (size_t)b->n * sizeof *b->root);
  both->n = a->n + b->n;
  both->rows = a->rows >= 0 ? a->rows : b->rows;
  for (int k = 0; k < both->n; k++) both->stored[k] = true;
  return true;
}

static bool try_join(qn_fusion *f, int a, int b, bool *seen)
{
  qn_fused both;
  qn_body body;
  if (a == b || !f->kernel[a].n || !f->kernel[b].n) return false;
  if (!domains_fit(f, &f->kernel[a], &f->kernel[b]) || !join(&f->kernel[a], &f->kernel[b], &both)) return false;
  if (depends_by_others(f, b, a, seen) || depends_by_others(f, a, b, seen)) return false;
  if (qn_body_write(f->graph, f->is_root, &both, &body)) return false;
  const bool fits = !body.unfit && body.n_inputs + both.n <= QN_KERNEL_MAX_TENSORS;
  qn_body_free(&body);
  if (!fits) return false;
  f->kernel[a] = both;
  f->kernel[b].n = 0;
  for (int k = 0; k < both.n; k++) f->kernel_of[both.root[k]] = a;
  return true;
}

/* Each kernel with those whose values it reads; then those that read the same large tensor. */
static void join_all(qn_fusion *f, bool *seen)
{
  const int n = f->n_kernels;
  sources s;
  for (int b = 0; b < n; b++) {
    const qn_fused mine = f->kernel[b];
    for (int r = 0; r < mine.n; r++) {
      sources_of(f, mine.root[r], &s, seen);
      for (int k = 0; k < s.n; k++) {
        const int a = f->kernel_of[s.value[k]], now = f->kernel_of[mine.root[r]];
        if (a >= 0) try_join(f, a, now, seen);
      }
    }
  }
  int *reader = qn_allocate((size_t)f->graph->n_values * sizeof *reader);
  for (int k = 0; reader && k < f->graph->n_values; k++) reader[k] = -1;
  for (int b = 0; reader && b < n; b++) {
    const qn_fused mine = f->kernel[b];
    for (int r = 0; r < mine.n; r++) {
      sources_of(f, mine.root[r], &s, seen);
      for (int k = 0; k < s.n; k++) {
        const int now = f->kernel_of[mine.root[r]], other = reader[s.value[k]];
        const int before = other >= 0 ? f->kernel_of[other] : -1;
        if (value_of(f, s.value[k])->n * 2 < value_of(f, mine.root[r])->n) continue;
        if (before >= 0 && before != now) try_join(f, before, now, seen);
        reader[s.value[k]] = mine.root[r];
      }
    }
  }
  qn_release(reader);
}

/* Kernels of as many elements, and few: together they take no longer than one of them alone. */
static void join_small(qn_fusion *f, bool *seen)
{
  enum { SMALL = 1024 };
  for (int b = 1; b < f->n_kernels; b++) {
    if (!f->kernel[b].n || f->kernel[b].rows >= 0 || value_of(f, f->kernel[b].root[0])->n > SMALL) continue;
    for (int a = b - 1, tried = 0; a >= 0 && !tried; a--) {
      tried = f->kernel[a].n && f->kernel[a].rows < 0 && domains_fit(f, &f->kernel[a], &f->kernel[b]);
      if (tried) try_join(f, a, b, seen);
    }
  }
}

/* A root that only its own kernel reads is not stored. */
static void find_stored(qn_fusion *f, bool *seen)
{
  sources s;
  for (int k = 0; k < f->n_kernels; k++)
    for (int r = 0; r < f->kernel[k].n; r++) f->kernel[k].stored[r] = f->needed[f->kernel[k].root[r]];
  for (int k = 0; k < f->n_kernels; k++)
    for (int r = 0; r < f->kernel[k].n; r++) {
      sources_of(f, f->kernel[k].root[r], &s, seen);
      for (int j = 0; j < s.n; j++) {
        const int other = f->kernel_of[s.value[j]];
        if (other < 0 || other == k) continue;
        for (int q = 0; q < f->kernel[other].n; q++)
          f->kernel[other].stored[q] |= f->kernel[other].root[q] == s.value[j];
      }
    }
}

static qn_status make_kernels(qn_fusion *f, bool fuse, bool *seen)
{
  const int n = f->graph->n_values;
  uses u = {.readers = qn_allocate_zero((size_t)n, sizeof *u.readers),
            .far = qn_allocate_zero((size_t)n, sizeof *u.far),
            .window = qn_allocate_zero((size_t)n, sizeof *u.window)};
  const bool failed = !u.readers || !u.far || !u.window;
  if (!failed) {
    for (int v = n - 1; v >= 0; v--) { /* readers before what they read */
      const qn_graph_value *value = value_of(f, v);
      if (!f->live[v] || qn_is_memory(value) || qn_is_view(value)) continue;
      for (int k = 0; k < value->n_arguments; k++) {
        const int a = qn_arguments_of(value)[k];
        bool again = false;
        for (int j = 0; j < k; j++) again |= qn_arguments_of(value)[j] == a;
        if (!again) count_reader(f, &u, a, era_of(f, v), value->form == QN_FORM_PAD && u.window[v]);
      }
    }
    find_roots(f, &u, fuse);
  }
  qn_release(u.window);
  qn_release(u.readers);
  qn_release(u.far);
  if (failed) return qn_fail(QN_NO_MEMORY, "no memory for %d values", n);
  memset(seen, 0, (size_t)n * sizeof *seen);
  for (int v = 0; v < n; v++)
    if (f->is_root[v]) qn_try(visit(f, v, seen));
  if (fuse) {
    join_all(f, seen);
    join_small(f, seen);
  }
  find_stored(f, seen);
  for (int k = 0; k < f->n_kernels; k++)
    if (f->kernel[k].n) qn_try(qn_body_write(f->graph, f->is_root, &f->kernel[k], &f->body[k]));
  return QN_OK;
}

/* ---- the whole ---- */
static void *zeros(const qn_graph *graph, size_t bytes) { return qn_allocate_zero((size_t)graph->n_values + 1, bytes); }

static qn_status make_once(qn_graph *graph, bool fuse, qn_fusion *f)
{
  *f = (qn_fusion){.graph = graph};
  f->is_root = zeros(graph, sizeof *f->is_root);
  f->needed = zeros(graph, sizeof *f->needed);
  f->live = zeros(graph, sizeof *f->live);
  f->kernel_of = zeros(graph, sizeof *f->kernel_of);
  bool *seen = zeros(graph, 2 * sizeof *seen); /* room for two marks a value */
  qn_status status = QN_OK;
  if (!f->is_root || !f->needed || !f->live || !f->kernel_of || !seen)
    status = qn_fail(QN_NO_MEMORY, "no memory for %d values", graph->n_values);
  else {
    for (int v = 0; v < graph->n_values; v++) f->kernel_of[v] = -1;
    for (int k = 0; k < graph->n_outputs; k++) need(f, graph->output[k]);
    for (int k = 0; k < graph->n_nodes; k++) {
      if (!graph->node[k].has_effects) continue;
      for (int j = 0; j < graph->node[k].n_results; j++) need(f, graph->node[k].result[j]);
    }
    status = make_kernels(f, fuse, seen);
  }
  qn_release(seen);
  return status;
}

/* Gives the value's node back to the caller; if it is the caller's already, those that share the value with it. */
static bool give_node_back(qn_graph *graph, int value, const char *why)
{
  const int n = graph->value[value].node;
  if (n < 0) return false;
  if (!graph->node[n].is_extern) {
    graph->node[n].is_extern = true;
    graph->node[n].why = why;
    return true;
  }
  bool any = false;
  for (int v = 0; v < graph->n_values; v++) {
    const qn_graph_value *reader = &graph->value[v];
    const bool memory = reader->named && reader->node >= 0 && graph->node[reader->node].is_extern;
    for (int k = 0; k < reader->n_arguments && !memory; k++)
      if (qn_arguments_of(reader)[k] == value) any |= give_node_back(graph, v, why);
  }
  return any;
}

/* Nodes of a kernel that cannot be: they go back to the caller, with their described results. */
static bool give_back(qn_graph *graph, qn_fusion *f)
{
  bool any = false;
  for (int k = 0; k < f->n_kernels; k++) {
    if (!f->kernel[k].n || !f->body[k].unfit) continue;
    for (int r = 0; r < f->kernel[k].n; r++) any |= give_node_back(graph, f->kernel[k].root[r], f->body[k].unfit);
  }
  for (int v = 0; any && v < graph->n_values; v++) {
    qn_graph_value *value = &graph->value[v];
    if (value->named && value->node >= 0 && graph->node[value->node].is_extern) value->form = QN_FORM_EXTERN;
  }
  return any;
}

qn_status qn_fusion_make(qn_graph *graph, bool fuse, qn_fusion *f)
{
  for (;;) {
    qn_status status = make_once(graph, fuse, f);
    if (!status && give_back(graph, f)) {
      qn_fusion_free(f);
      continue;
    }
    if (!status) status = qn_fusion_order(f);
    if (status) qn_fusion_free(f);
    return status;
  }
}
