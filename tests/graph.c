/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - plans of graphs: each generated body is compiled and run on the processor, in the cut for a GPU too, and
 * held against the same values in double, computed one by one; what must be one kernel is; refusals. */
#include "graph_reference.h"
#include "core/json.h"
#include "graph/index.h"
#include "kernel_use.h"

/* ---- a description, a part at a time ---- */
/* Whether the next case's plan is run: one of as many as QN_GRAPHS_APART says, since an emulated processor is slow. */
static bool taken(void)
{
  static int cases;
  const char *apart = getenv("QN_GRAPHS_APART");
  return !apart || cases++ % atoi(apart) == 0;
}

static qn_text text;
static bool has_nodes;

static void describe(const char *device)
{
  text.length = 0;
  has_nodes = false;
  qn_text_add(&text, "{\"device\":\"%s\",\"inputs\":[", device);
}

static void input(const char *name, const char *dtype, const char *shape, const char *strides)
{
  qn_text_add(&text, "%s{\"name\":\"%s\",\"dtype\":\"%s\",\"shape\":[%s]", text.at[text.length - 1] == '[' ? "" : ",",
              name, dtype, shape);
  if (strides) qn_text_add(&text, ",\"strides\":[%s]", strides);
  qn_text_add(&text, "}");
}

static const char *laid; /* the strides of the next node's result; NULL: row-major */

static void node(const char *name, const char *op, const char *args, const char *dtype, const char *shape)
{
  qn_text_add(&text, "%s{\"name\":\"%s\",\"op\":\"%s\",\"args\":[", has_nodes ? "," : "],\"nodes\":[", name, op);
  for (const char *s = args; *s; s++) /* $x is a reference to x */
    if (*s == '$') {
      const size_t n = strspn(s + 1, "abcdefghijklmnopqrstuvwxyz_0123456789");
      qn_text_add(&text, "{\"ref\":\"%.*s\"}", (int)n, s + 1);
      s += n;
    } else
      qn_text_add(&text, "%c", *s);
  qn_text_add(&text, "],\"kwargs\":{},\"dtype\":\"%s\",\"shape\":[%s]", dtype, shape);
  if (laid) qn_text_add(&text, ",\"strides\":[%s]", laid);
  qn_text_add(&text, "}");
  has_nodes = true;
  laid = NULL;
}

static const char *ready(const char *outputs)
{
  qn_text_add(&text, "%s],\"outputs\":[%s]}", has_nodes ? "" : "],\"nodes\":[", outputs);
  return text.at;
}

/* ---- memory ---- */
typedef struct memory {
  const char *name;
  int result;
  qn_dtype dtype;
  int ndim;
  int64_t shape[QN_GRAPH_DIMS], strides[QN_GRAPH_DIMS], n;
  char *data;
} memory;
static memory store[128];
static int n_store;

static double get_number(const memory *m, int64_t at)
{
  uint16_t h;
  uint32_t bits;
  float f;
  switch (m->dtype) {
  case QN_F32: return (double)((const float *)m->data)[at];
  case QN_F64: return ((const double *)m->data)[at];
  case QN_I64: return (double)((const int64_t *)m->data)[at];
  case QN_I32: return (double)((const int32_t *)m->data)[at];
  case QN_BOOL: return (double)((const uint8_t *)m->data)[at];
  case QN_F16:
    h = ((const uint16_t *)m->data)[at];
    if ((h & 0x7c00) == 0x7c00) return h & 0x3ff ? (double)NAN : h >> 15 ? -(double)INFINITY : (double)INFINITY;
    return (h >> 15 ? -1.0 : 1.0) *
           ((h & 0x7c00) ? ldexp(1024 + (h & 0x3ff), (h >> 10 & 31) - 25) : ldexp(h & 0x3ff, -24));
  default:
    bits = (uint32_t)((const uint16_t *)m->data)[at] << 16;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
  }
}

/* What a 16-bit real holds exactly is given: quarters. */
static void put_number(memory *m, int64_t at, double x)
{
  switch (m->dtype) {
  case QN_F32: ((float *)m->data)[at] = (float)x; break;
  case QN_F64: ((double *)m->data)[at] = x; break;
  case QN_I64: ((int64_t *)m->data)[at] = (int64_t)x; break;
  case QN_I32: ((int32_t *)m->data)[at] = (int32_t)x; break;
  case QN_BOOL: ((uint8_t *)m->data)[at] = x > 0; break;
  case QN_F16: {
    const double a = fabs(x);
    const int e = a > 0 && isfinite(a) ? ilogb(a) : 0;
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    const int rest = isnan(x)   ? 0x7e00
                     : isinf(x) ? 0x7c00
                     : a == 0   ? 0
                                : (e + 15) << 10 | ((int)ldexp(a, 10 - e) & 0x3ff);
    ((uint16_t *)m->data)[at] = (uint16_t)(sign | rest);
    break;
  }
  default: {
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    ((uint16_t *)m->data)[at] = (uint16_t)(bits >> 16 | (isnan(x) ? 0x40 : 0));
  }
  }
}

static memory *find(const char *name, int result)
{
  for (int k = 0; k < n_store; k++)
    if (!strcmp(store[k].name, name) && store[k].result == result) return &store[k];
  return NULL;
}

static memory *allocate(const char *name, int result, qn_dtype dtype, int ndim, const int64_t *shape,
                        const int64_t *strides)
{
  memory *m = &store[n_store++];
  *m = (memory){.name = name, .result = result, .dtype = dtype, .ndim = ndim, .n = 1};
  int64_t far = 1;
  for (int d = 0; d < ndim; d++) {
    m->shape[d] = shape[d];
    m->strides[d] = strides[d];
    m->n *= shape[d];
    far += (shape[d] - 1) * m->strides[d];
  }
  m->data = calloc((size_t)(far > m->n ? far : m->n), qn_dtype_bytes(dtype));
  return m;
}

static void clear(void)
{
  while (n_store) free(store[--n_store].data);
}

static uint64_t state = 1;
static uint64_t draw(uint64_t below)
{
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % below;
}

static int64_t strided_place(const memory *m, int64_t flat)
{
  int64_t at = 0;
  for (int d = m->ndim - 1; d >= 0; d--) {
    at += flat % m->shape[d] * m->strides[d];
    flat /= m->shape[d];
  }
  return at;
}

static bool eighths = true; /* few bits: products and short sums of them are exact */

/* Inputs of the graph, the same in both; odd: NaN and infinities among them. */
static void fill_inputs(reference *r, bool odd)
{
  for (int k = 0; k < r->graph.n_values; k++) {
    const qn_graph_value *v = &r->graph.value[k];
    if (v->form != QN_FORM_INPUT) continue;
    memory *m = allocate(v->name, -1, v->dtype, v->ndim, v->shape, v->strides);
    r->value[k] = malloc((size_t)v->n * sizeof(double));
    for (int64_t j = 0; j < v->n; j++) {
      double x = qn_is_real(v->dtype) ? ((double)draw(33) - 16) / 8 : (double)draw(4);
      if (!eighths) x = ((double)draw(1 << 24) - (1 << 23)) / (1 << 22);
      if (odd && qn_is_real(v->dtype) && draw(9) == 0)
        x = draw(3) ? draw(2) ? (double)INFINITY : -(double)INFINITY : (double)NAN;
      put_number(m, strided_place(m, j), x);
      r->value[k][j] = get_number(m, strided_place(m, j));
    }
  }
}

/* ---- running a plan's kernels ---- */
static const char *text_of(const qn_json *part, const char *key)
{
  const qn_json *one = qn_json_get(part, key);
  return qn_json_is(one, QN_JSON_STRING) ? one->string : "";
}

static int64_t number_of(const qn_json *part, const char *key, int k)
{
  const qn_json *one = qn_json_get(part, key);
  if (qn_json_is(one, QN_JSON_INTEGER)) return one->integer;
  for (one = qn_json_first(one); one && k; k--) one = one->next;
  return one ? one->integer : -1;
}

static bool run_kernel(const qn_json *step, int check_bodies)
{
  const char *in_names[32], *out_names[32];
  qn_tensor in[32], out[32];
  int n_in = 0, n_out = 0;
  uint64_t strided = 0;
  const qn_json *ins = qn_json_get(step, "inputs"), *outs = qn_json_get(step, "outputs");
  for (const qn_json *one = qn_json_first(ins); one; one = one->next, n_in++) {
    const memory *m = find(text_of(one, "ref"), (int)number_of(one, "index", 0));
    if (!check(m != NULL, "%s was there before it is read", text_of(one, "ref"))) return false;
    in[n_in] = (qn_tensor){m->data, m->dtype, m->ndim, m->shape, m->strides, cpu};
    in_names[n_in] = text_of(one, "parameter");
    for (const qn_json *s = qn_json_first(qn_json_get(step, "strided")); s; s = s->next)
      if (!strcmp(s->string, in_names[n_in])) strided |= UINT64_C(1) << n_in;
  }
  for (const qn_json *one = qn_json_first(outs); one; one = one->next, n_out++) {
    int64_t shape[QN_GRAPH_DIMS], strides[QN_GRAPH_DIMS];
    const int ndim = (int)qn_json_count(qn_json_get(one, "shape"));
    for (int d = 0; d < ndim; d++) shape[d] = number_of(one, "shape", d), strides[d] = number_of(one, "strides", d);
    const memory *m = allocate(text_of(one, "name"), (int)number_of(one, "index", 0),
                               qn_dtype_from_name(text_of(one, "dtype")), ndim, shape, strides);
    out[n_out] = (qn_tensor){m->data, m->dtype, 1, &m->n, NULL, cpu};
    out_names[n_out] = text_of(one, "parameter");
  }
  const qn_kernel_source source = {.size = sizeof source,
                                   .name = text_of(step, "name"),
                                   .body = text_of(step, "source"),
                                   .header = text_of(step, "header"),
                                   .dialect =
                                       strcmp(text_of(step, "dialect"), "cuda") ? QN_DIALECT_METAL : QN_DIALECT_CUDA,
                                   .n_inputs = (size_t)n_in,
                                   .n_outputs = (size_t)n_out,
                                   .inputs = in_names,
                                   .outputs = out_names,
                                   .strided = strided};
  qn_kernel_call call = CALL(.inputs = in, .outputs = out, .check = check_bodies);
  for (int k = 0; k < 3; k++) {
    call.grid[k] = (uint64_t)number_of(step, "grid", k);
    call.group[k] = (uint32_t)number_of(step, "threadgroup", k);
  }
  qn_kernel *kernel = NULL;
  qn_status status = qn_kernel_create(&kernel, &source);
  if (!status) status = qn_kernel_launch(kernel, &serial, &call);
  qn_kernel_destroy(&kernel);
  return !status || check(false, "%s runs: %s\n%s", source.name, qn_last_error(), source.body);
}

/* How many kernels the plan has; -1 where a step is no kernel or one fails. */
static int run_plan(const char *plan, int check_bodies, qn_json_tree *tree)
{
  int n = 0;
  if (!check(!qn_json_read(plan, strlen(plan), "plan", tree), "the plan is JSON")) return -1;
  const qn_json *steps = qn_json_get(tree->root, "steps");
  for (const qn_json *one = qn_json_first(steps); one; one = one->next, n++)
    if (strcmp(text_of(one, "kind"), "kernel") || !run_kernel(one, check_bodies)) return -1;
  return n;
}

static double tolerance(qn_dtype dtype)
{
  return dtype == QN_F16 ? 4e-3 : dtype == QN_BF16 ? 3e-2 : dtype == QN_F64 ? 1e-12 : dtype == QN_F32 ? 4e-6 : 0;
}

static bool alike(double got, double want, double scale, qn_dtype dtype)
{
  if (isnan(want)) return isnan(got);
  if (isinf(want)) return got == want;
  const double t = tolerance(dtype);
  return fabs(got - want) <= t * (fabs(want) + scale);
}

static bool same_values(reference *r, int output)
{
  const qn_graph_value *v = &r->graph.value[output];
  const memory *m = v->node >= 0 ? find(r->graph.node[v->node].name, v->result) : NULL;
  if (!check(m && m->n == v->n && m->dtype == v->dtype, "an output is there")) return false;
  compute(r, output);
  double scale = 0;
  for (int64_t k = 0; k < v->n; k++)
    if (isfinite(r->value[output][k]) && fabs(r->value[output][k]) > scale) scale = fabs(r->value[output][k]);
  for (int64_t k = 0; k < v->n; k++)
    if (!alike(get_number(m, strided_place(m, k)), r->value[output][k], scale, v->dtype))
      return check(false, "%s[%lld] is %.9g, and %.9g in double", r->graph.node[v->node].name, (long long)k,
                   get_number(m, strided_place(m, k)), r->value[output][k]);
  return true;
}

/* kernels: how many there must be; 0: any number. odd: with NaN and infinities. */
static bool holds(const char *what, const char *graph, int kernels, bool odd, int check_bodies)
{
  reference r;
  qn_graph_plan *plan = NULL;
  qn_json_tree tree = {0};
  bool good = !reference_read(&r, graph) && !qn_graph_plan_create(&plan, graph, strlen(graph), NULL);
  if (!good) check(false, "%s: a plan is made\n%s", what, graph);
  if (good) fill_inputs(&r, odd); /* of a case that is not taken too: the next one has its own numbers */
  if (good && taken()) {
    const int n = run_plan(qn_graph_plan_text(plan), check_bodies, &tree);
    good = n >= 0 && (!kernels || n == kernels);
    for (int k = 0; good && k < r.graph.n_outputs; k++) good = same_values(&r, r.graph.output[k]);
    check(good, "%s: %d kernels give what the formulas give in double%s%s", what, n, good ? "" : "\n",
          good ? "" : qn_graph_plan_text(plan));
  }
  clear();
  qn_json_free(&tree);
  qn_graph_plan_destroy(&plan);
  reference_free(&r);
  return good;
}

static void refused(const char *graph, qn_status status, const char *words)
{
  qn_graph_plan *plan = NULL;
  refuses(qn_graph_plan_create(&plan, graph, strlen(graph), NULL), status, words);
  qn_graph_plan_destroy(&plan);
}

#include "graph_cases.h"
#include "graph_random.h"
#include "graph_convolutions.h"
#include "graph_processor.h"
#include "graph_device.h"

/* ---- refusals ---- */
static void refusals(void)
{
#define X "{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[4]}"
  refused("{", QN_BAD_FILE, "graph:1:2");
  refused("[1, 2,]", QN_BAD_FILE, "graph:1:7");
  refused("[]", QN_BAD_ARGUMENT, "no object");
  refused("{\"inputs\":[]}", QN_BAD_ARGUMENT, "no list of nodes");
  refused("{\"inputs\":[" X "],\"nodes\":[],\"outputs\":[]}", QN_BAD_ARGUMENT, "no outputs");
  refused("{\"inputs\":[" X "],\"nodes\":[],\"outputs\":[\"y\"]}", QN_BAD_ARGUMENT, "no value \"y\"");
  refused("{\"inputs\":[" X "," X "],\"nodes\":[],\"outputs\":[\"x\"]}", QN_BAD_ARGUMENT, "two values are named x");
  refused("{\"device\":\"tpu\",\"inputs\":[" X "],\"nodes\":[],\"outputs\":[\"x\"]}", QN_BAD_ARGUMENT, "device");
  refused("{\"inputs\":[{\"name\":\"x\",\"dtype\":\"f33\",\"shape\":[4]}],\"nodes\":[],\"outputs\":[\"x\"]}",
          QN_BAD_ARGUMENT, "f33");
  refused("{\"inputs\":[{\"name\":\"x y\",\"dtype\":\"f32\",\"shape\":[4]}],\"nodes\":[],\"outputs\":[\"x\"]}",
          QN_BAD_ARGUMENT, "no identifier");
  refused("{\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[-4]}],\"nodes\":[],\"outputs\":[\"x\"]}",
          QN_BAD_ARGUMENT, "extent of -4");
  refused("{\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[4],\"strides\":[1,1]}],\"nodes\":[],\"outputs\":["
          "\"x\"]}",
          QN_BAD_ARGUMENT, "1 extents and 2 strides");
  refused("{\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[9223372036854775807,2]}],\"nodes\":[],\"outputs\":"
          "[\"x\"]}",
          QN_BAD_ARGUMENT, "2^48");
  refused("{\"inputs\":[" X
          "],\"nodes\":[{\"name\":\"y\",\"op\":\"aten.relu.default\",\"args\":[{\"ref\":\"y\"}],\"dtype\":"
          "\"f32\",\"shape\":[4]}],\"outputs\":[\"y\"]}",
          QN_BAD_ARGUMENT, "no value \"y\" before it");
  refused("{\"inputs\":[" X
          "],\"nodes\":[{\"name\":\"y\",\"op\":\"aten.relu.default\",\"args\":[{\"ref\":\"x\",\"index\":1}],"
          "\"dtype\":\"f32\",\"shape\":[4]}],\"outputs\":[\"y\"]}",
          QN_BAD_ARGUMENT, "no result of that index");
  qn_graph_plan *plan = NULL;
  const qn_graph_options wrong = {.size = 1};
  refuses(qn_graph_plan_create(&plan, "{}", 2, &wrong), QN_BAD_ARGUMENT, "bytes");
  refuses(qn_graph_plan_create(NULL, "{}", 2, NULL), QN_BAD_ARGUMENT, "NULL");
  qn_graph_plan_destroy(NULL);
}

static void kept(void)
{
  static const char graph[] =
      "{\"inputs\":[" X
      "],\"nodes\":[{\"name\":\"y\",\"op\":\"aten.relu.default\",\"args\":[{\"ref\":\"x\"}],\"extern\":true,"
      "\"dtype\":\"f32\",\"shape\":[4]}],\"outputs\":[\"y\"]}";
  qn_graph_plan *plan = NULL;
  check(!qn_graph_plan_create(&plan, graph, strlen(graph), NULL), "a graph with a node that its caller keeps");
  const char *told = qn_graph_plan_text(plan);
  check(strstr(told, "{\"kind\":\"extern\",\"node\":\"y\"}") && strstr(told, "the caller keeps it"), "it stays");
  qn_graph_plan_destroy(&plan);
  static const char products[] =
      "{\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[2,2]}],\"nodes\":["
      "{\"name\":\"y\",\"op\":\"aten.mm.default\",\"args\":[{\"ref\":\"x\"},{\"ref\":\"x\"}],\"dtype\":\"f32\","
      "\"shape\":[2,2]},"
      "{\"name\":\"z\",\"op\":\"aten.mmm.default\",\"args\":[{\"ref\":\"x\"}],\"dtype\":\"f32\",\"shape\":[2,2]}],"
      "\"outputs\":[\"y\",\"z\"]}";
  check(!qn_graph_plan_create(&plan, products, strlen(products), NULL), "a product, and an op that nobody knows");
  told = qn_graph_plan_text(plan);
  check(strstr(told, "\"y\",\"why\":\"a product") && strstr(told, "\"z\",\"why\":\"the planner has no rule"), "%s",
        told);
  qn_graph_plan_destroy(&plan);
  refused("{\"inputs\":[" X "],\"nodes\":[{\"name\":\"y\",\"op\":\"aten.relu.default\",\"args\":[{\"ref\":\"x\"}],"
          "\"extern\":1,\"dtype\":\"f32\",\"shape\":[4]}],\"outputs\":[\"y\"]}",
          QN_BAD_ARGUMENT, "extern is neither true nor false");
  refused("{\"inputs\":[" X "],\"nodes\":[{\"name\":\"y\",\"op\":\"aten.relu.default\",\"args\":[{\"ref\":\"x\"}],"
          "\"random\":1,\"dtype\":\"f32\",\"shape\":[4]}],\"outputs\":[\"y\"]}",
          QN_BAD_ARGUMENT, "random is neither true nor false");
  static const char draws[] =
      "{\"inputs\":[" X "],\"nodes\":["
      "{\"name\":\"a\",\"op\":\"aten.exp.default\",\"args\":[{\"ref\":\"x\"}],\"dtype\":\"f32\",\"shape\":[4]},"
      "{\"name\":\"r\",\"op\":\"aten.relu.default\",\"args\":[{\"ref\":\"a\"}],\"random\":true,\"dtype\":\"f32\","
      "\"shape\":"
      "[4]},{\"name\":\"b\",\"op\":\"aten.sin.default\",\"args\":[{\"ref\":\"x\"}],\"dtype\":\"f32\",\"shape\":[4]}],"
      "\"outputs\":[\"a\",\"b\",\"r\"]}";
  check(!qn_graph_plan_create(&plan, draws, strlen(draws), NULL), "a graph with a node that draws random numbers");
  told = qn_graph_plan_text(plan);
  const char *kernel = strstr(told, "k0_exp"), *draw = strstr(told, "\"extern\",\"node\":\"r\"");
  check(kernel && draw && kernel < draw && strstr(draw, "_sin") && strstr(told, "it draws random numbers"),
        "it keeps its place: %s", told);
  qn_graph_plan_destroy(&plan);
}

/* A remainder is the index itself exactly where all of it is below the divisor, and a quotient then 0. */
static void indices(void)
{
  int wrong = 0;
  for (int64_t extent = 2; extent < 12; extent++)
    for (int64_t by = 2; by < 12; by++) {
      qn_indices set = {0};
      const qn_index zero = qn_index_constant(&set, 0), x = qn_index_variable(&set, "x", extent);
      wrong += (qn_index_remainder(&set, x, by) == x) != (extent <= by);
      wrong += (qn_index_quotient(&set, x, by) == zero) != (extent <= by);
      const qn_index whole = qn_index_add(&set, qn_index_remainder(&set, x, by), qn_index_quotient(&set, x, by), by);
      wrong += whole != x;
      const qn_index y = qn_index_variable(&set, "y", 1000), low = qn_index_remainder(&set, y, by),
                     high = qn_index_remainder(&set, qn_index_quotient(&set, y, by), extent);
      wrong += qn_index_add(&set, low, high, by) != qn_index_remainder(&set, y, by * extent);
      qn_indices_free(&set);
    }
  check(!wrong, "quotients and remainders of indices: %d wrong", wrong);
}

/* What a reduction or a scan begins with changes nothing. */
static void first_values(void)
{
  static const double some[] = {0, 1, -2.5, 3, (double)INFINITY, -(double)INFINITY};
  for (int k = 0; k < QN_GRAPH_REDUCTION_COUNT; k++) {
    const qn_reduction_info *info = qn_reduction((qn_graph_reduction)k);
    const bool truth = k == QN_GRAPH_REDUCE_ANY || k == QN_GRAPH_REDUCE_ALL;
    int wrong = 0;
    for (int j = 0; j < (truth ? 2 : 6); j++) wrong += info->reference(info->first, some[j]) != some[j];
    check(!wrong, "%s of its first value and another is the other", info->name);
  }
}

int main(void)
{
  indices();
  first_values();
  refusals();
  words();
  views();
  reductions();
  short_rows();
  pieces();
  kept();
  convolutions();
  scans();
  scan_fusions();
  fusions();
  strays();
  precise();
  lengths();
  tanh_of_softplus();
  side_by_side();
  gathered();
  stored_early();
  alone();
  dear();
  once_a_row();
  places_of_largest();
  variances();
  shared_variances();
  lines_of_windows();
  pieces_of_lines();
  columns();
  wide_places();
  layouts();
  random_graphs();
  qn_text_free(&text);
  return test_end();
}
