/* SPDX-License-Identifier: Apache-2.0 */
/* graph_random.h - graphs drawn at random: shapes, strides, types, views, sums. */
#ifndef QN_TESTS_GRAPH_RANDOM_H
#define QN_TESTS_GRAPH_RANDOM_H

typedef struct made {
  char name[16], dtype[8];
  int ndim;
  int64_t shape[4];
} made;

static void shape_text(const made *m, char *to, size_t bytes)
{
  size_t n = 0;
  to[0] = 0;
  for (int d = 0; d < m->ndim; d++)
    n += (size_t)snprintf(to + n, bytes - n, "%s%lld", d ? "," : "", (long long)m->shape[d]);
}

static void random_node(made *all, int n)
{
  static const char *const unary[] = {"aten.relu.default", "aten.tanh.default", "aten.neg.default",
                                      "aten.sigmoid.default"};
  static const char *const binary[] = {"aten.add.Tensor", "aten.mul.Tensor", "aten.maximum.default", "aten.sub.Tensor"};
  static const char *const reduce[] = {"aten.sum.dim_IntList", "aten.amax.default", "aten.mean.dim"};
  const made a = all[draw((uint64_t)n)];
  made *z = &all[n];
  char args[128], shape[64], strides[64];
  const char *op;
  *z = a;
  const int d = a.ndim ? (int)draw((uint64_t)a.ndim) : 0;
  switch (a.ndim ? draw(9) : 0) {
  case 1: {
    const made b = all[draw((uint64_t)n)];
    const int most = a.ndim > b.ndim ? a.ndim : b.ndim;
    bool fits = !strcmp(a.dtype, b.dtype);
    for (int k = 1; k <= most; k++) {
      const int64_t p = k <= a.ndim ? a.shape[a.ndim - k] : 1, q = k <= b.ndim ? b.shape[b.ndim - k] : 1;
      fits = fits && (p == q || p == 1 || q == 1);
      z->shape[most - k] = p == 1 ? q : p;
    }
    if (fits) {
      z->ndim = most;
      op = binary[draw(4)];
      snprintf(args, sizeof args, "$%s,$%s", a.name, b.name);
      break;
    }
    *z = a;
  } /* fall through */
  case 0:
  default:
    op = unary[draw(4)];
    snprintf(args, sizeof args, "$%s", a.name);
    break;
  case 2:
    op = reduce[draw(3)];
    z->shape[d] = 1;
    snprintf(args, sizeof args, "$%s,[%d],true", a.name, d);
    break;
  case 3:
    op = "aten._softmax.default";
    snprintf(args, sizeof args, "$%s,%d,false", a.name, d);
    break;
  case 4:
    op = "aten.permute.default";
    z->shape[0] = a.shape[a.ndim - 1];
    for (int k = 1; k < a.ndim; k++) z->shape[k] = a.shape[k - 1];
    snprintf(args, sizeof args, "$%s,[%d%s%s%s]", a.name, a.ndim - 1, a.ndim > 1 ? ",0" : "", a.ndim > 2 ? ",1" : "",
             a.ndim > 3 ? ",2" : "");
    break;
  case 5:
    op = "aten.view.default";
    z->ndim = 2;
    z->shape[0] = z->shape[1] = 1;
    for (int k = 0; k < a.ndim; k++) z->shape[k > d] *= a.shape[k];
    snprintf(args, sizeof args, "$%s,[%lld,%lld]", a.name, (long long)z->shape[0], (long long)z->shape[1]);
    break;
  case 7:
    op = "aten.cumsum.default";
    snprintf(args, sizeof args, "$%s,%d", a.name, d);
    break;
  case 8:
    op = "aten.flip.default";
    snprintf(args, sizeof args, "$%s,[%d]", a.name, d);
    break;
  case 6:
    op = "aten.constant_pad_nd.default";
    z->shape[a.ndim - 1] += 3;
    snprintf(args, sizeof args, "$%s,[1,2],0.5", a.name);
    break;
  }
  snprintf(z->name, sizeof z->name, "v%d", n);
  made s = *z; /* the first dimension the innermost */
  int64_t step = 1;
  for (int k = 0; k < z->ndim; k++) s.shape[k] = step, step *= z->shape[k];
  shape_text(&s, strides, sizeof strides);
  if (draw(3) == 0 && op[5] != 'p' && op[5] != 'v') laid = strides; /* no permute, no view */
  shape_text(z, shape, sizeof shape);
  node(z->name, op, args, z->dtype, shape);
}

static void random_graph(int seed)
{
  static const char *const types[] = {"f32", "f32", "f64", "f16"};
  made all[24];
  char shape[64], strides[64], outputs[64];
  state = (uint64_t)seed * 7919 + 1;
  describe(devices[seed % 2]);
  const char *dtype = types[draw(4)];
  int n = 0;
  for (; n < 3; n++) {
    made *m = &all[n];
    snprintf(m->name, sizeof m->name, "v%d", n);
    snprintf(m->dtype, sizeof m->dtype, "%s", dtype);
    static const int64_t extents[] = {1, 2, 3, 5, 8, 16, 33};
    m->ndim = n ? all[0].ndim : 1 + (int)draw(3);
    for (int d = 0; d < m->ndim; d++) m->shape[d] = n && draw(3) ? all[0].shape[d] : n ? 1 : extents[draw(7)];
    shape_text(m, shape, sizeof shape);
    made s = *m; /* every other input is strided: columns first, with a gap */
    int64_t step = 1;
    for (int d = 0; d < m->ndim; d++) s.shape[d] = step, step *= m->shape[d] + (int64_t)draw(2);
    shape_text(&s, strides, sizeof strides);
    input(m->name, dtype, shape, draw(2) ? strides : NULL);
  }
  const int more = 3 + (int)draw(8);
  for (int k = 0; k < more; k++, n++) random_node(all, n);
  shape_text(&all[n - 1], shape, sizeof shape);
  node("last", "aten.neg.default", (snprintf(strides, sizeof strides, "$%s", all[n - 1].name), strides), dtype, shape);
  shape_text(&all[n - 2], shape, sizeof shape);
  node("other", "aten.abs.default", (snprintf(strides, sizeof strides, "$%s", all[n - 2].name), strides), dtype, shape);
  snprintf(outputs, sizeof outputs, "\"last\",\"other\"");
  char what[32];
  snprintf(what, sizeof what, "random graph %d", seed);
  holds(what, ready(outputs), 0, seed % 5 == 0, 0);
}

static void random_graphs(void)
{
  for (int seed = 0; seed < 24; seed++) random_graph(seed);
}
#endif
