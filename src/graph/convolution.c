/* SPDX-License-Identifier: Apache-2.0 */
/* convolution.c - what a convolution's kernel is written from: its shapes, and how they are cut into blocks. The kernel
 * itself is convolution.cu. */
#include "core/source.h"
#include "graph/fuse.h"
#include "graph/lower.h"
#include <string.h>

enum {
  AXES = 3,
  MOST_TAPS = 32,          /* along an axis: a bit each */
  MOST_FILTER = 1024,      /* taps, of which shared memory has a table beside two turns of the smaller blocks */
  MOST_ALONE = 64,         /* taps of a filter for each channel alone, which a thread goes through */
  THREADS = 256,           /* of a block */
  DEEP = 16,               /* rows of both operands that a turn has */
  SHARED_BYTES = 48 << 10, /* of a block */
  FEW_BLOCKS = 528         /* four for each multiprocessor of an H100 */
};

typedef struct axis {
  int64_t in, out, kernel, stride, pad, apart, step; /* step: from one tap of a phase to the next */
  int64_t x, w, y;                                   /* elements from one place to the next */
} axis;

typedef struct convolution {
  int value[3], n_values; /* x, w, the bias */
  bool transposed;
  int64_t images, groups, channels, out_channels; /* channels: of a group */
  int64_t x_image, x_channel, w_in, w_out, w_group, y_image, y_channel;
  axis axis[AXES]; /* the last ones are there; those before have one place */
} convolution;

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }
static int64_t ratio_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* ---- from a node's arguments ---- */
static bool is_list(const qn_argument *list, int n, int64_t least)
{
  if (list->kind != QN_ARGUMENT_LIST || (list->n != n && list->n != 1)) return false;
  for (int k = 0; k < list->n; k++)
    if (list->list[k].kind != QN_ARGUMENT_INTEGER || list->list[k].integer < least) return false;
  return true;
}

static int64_t at_list(const qn_argument *list, int k) { return list->list[list->n == 1 ? 0 : k].integer; }

/* strides: of x, w and the result. False: the arguments are not those of a convolution. */
static bool read_axes(const qn_graph *graph, const qn_graph_node *node, const int64_t *const *strides, convolution *c)
{
  const qn_argument *a = node->argument;
  const qn_graph_value *x = &graph->value[c->value[0]], *w = &graph->value[c->value[1]],
                       *y = &graph->value[node->result[0]];
  const int n = x->ndim - 2;
  if (!is_list(&a[3], n, 1) || !is_list(&a[4], n, 0) || !is_list(&a[5], n, 1)) return false;
  for (int k = 0; k < AXES; k++) {
    const int d = k - (AXES - n), at = d + 2;
    axis *to = &c->axis[k];
    *to = (axis){1, 1, 1, 1, 0, 1, 1, 0, 0, 0};
    if (d < 0) continue;
    *to = (axis){.in = x->shape[at],
                 .out = y->shape[at],
                 .kernel = w->shape[at],
                 .stride = at_list(&a[3], d),
                 .pad = at_list(&a[4], d),
                 .apart = at_list(&a[5], d),
                 .x = strides[0][at],
                 .w = strides[1][at],
                 .y = strides[2][at]};
    to->step = c->transposed ? to->stride / gcd(to->stride, to->apart) : 1;
  }
  return true;
}

static const char *read_node(const qn_graph *graph, const qn_graph_node *node, const int64_t *const *strides,
                             convolution *c)
{
  const qn_argument *a = node->argument;
  *c = (convolution){.n_values = 2};
  if (node->n_arguments != 9 || node->n_keywords || a[0].kind != QN_ARGUMENT_VALUE || a[1].kind != QN_ARGUMENT_VALUE ||
      a[6].kind != QN_ARGUMENT_BOOL || a[8].kind != QN_ARGUMENT_INTEGER)
    return "arguments that are no convolution's";
  for (int k = 0; k < 3; k++) {
    if (a[k].kind != QN_ARGUMENT_VALUE) continue;
    const qn_graph_value *v = &graph->value[a[k].value];
    if (v->dtype != QN_F32 || !v->n) return "a convolution of other types than f32, or of no elements";
    c->value[k] = a[k].value;
    c->n_values = k + 1;
  }
  const qn_graph_value *x = &graph->value[c->value[0]], *w = &graph->value[c->value[1]],
                       *y = &graph->value[node->result[0]];
  c->transposed = a[6].integer != 0;
  c->groups = a[8].integer;
  if (x->ndim < 3 || x->ndim > 2 + AXES || w->ndim != x->ndim || y->ndim != x->ndim || y->dtype != QN_F32 || !y->n ||
      c->groups < 1 || x->shape[1] % c->groups || y->shape[1] % c->groups || x->shape[0] != y->shape[0])
    return "shapes that are no convolution's";
  c->images = x->shape[0];
  c->channels = x->shape[1] / c->groups;
  c->out_channels = y->shape[1] / c->groups;
  if (w->shape[0] != (c->transposed ? x->shape[1] : y->shape[1]) ||
      w->shape[1] != (c->transposed ? c->out_channels : c->channels))
    return "shapes that are no convolution's";
  if (c->n_values == 3 && (graph->value[c->value[2]].ndim != 1 || graph->value[c->value[2]].n != y->shape[1]))
    return "shapes that are no convolution's";
  c->x_image = strides[0][0], c->x_channel = strides[0][1];
  c->y_image = strides[2][0], c->y_channel = strides[2][1];
  c->w_in = strides[1][c->transposed ? 0 : 1], c->w_out = strides[1][c->transposed ? 1 : 0];
  c->w_group = strides[1][0] * (c->transposed ? c->channels : c->out_channels);
  if (!read_axes(graph, node, strides, c)) return "arguments that are no convolution's";
  for (int k = 0; k < AXES; k++) {
    const axis *d = &c->axis[k];
    const int64_t reach = d->apart * (d->kernel - 1) + 1;
    const int64_t more = c->transposed ? d->out - ((d->in - 1) * d->stride - 2 * d->pad + reach)
                                       : d->out - ((d->in + 2 * d->pad - reach) / d->stride + 1);
    if (more < 0 || more > (c->transposed ? d->stride + d->apart : 0)) return "shapes that are no convolution's";
  }
  return NULL;
}

static const char *refuses(const qn_graph *graph, const qn_graph_node *node, bool *alone)
{
  convolution c;
  if (!graph->convolutions) return "a convolution, which the graph does not ask for";
  const int64_t none[QN_GRAPH_DIMS] = {0};
  const int64_t *const strides[] = {none, none, none};
  const char *why = read_node(graph, node, strides, &c);
  if (why) return why;
  *alone = c.channels == 1 && c.out_channels == 1 && c.groups > 1;
  if (*alone && c.transposed) return "a transposed convolution of each channel alone";
  int64_t places = c.images, taps = 1;
  for (int k = 0; k < AXES; k++) {
    const axis *d = &c.axis[k];
    const int64_t phases = c.transposed ? d->stride : 1;
    if (d->kernel > MOST_TAPS) return "a filter of more than 32 elements along a dimension";
    if (d->pad > INT32_MAX / 4 || d->apart * d->kernel > INT32_MAX / 4 || d->stride > INT32_MAX / 4)
      return "a convolution of 2^31 places";
    places *= ratio_up(d->out, phases) * phases;
    taps *= d->kernel;
  }
  if (*alone && taps > MOST_ALONE) return "a filter of more than 64 elements for each channel alone";
  if (taps > MOST_FILTER) return "a filter of more than 1024 elements";
  for (int k = 0; k < 2; k++)
    if (graph->value[c.value[k]].n > INT32_MAX) return "a convolution of more than 2^31 elements";
  return places > INT32_MAX ? "a convolution of more than 2^31 places" : NULL;
}

/* ---- how it is cut ---- */
typedef struct cut {
  int64_t positions, columns, warps_down, stages, most_taps, phases, blocks, column_blocks;
  bool x_last, w_last, inside; /* inside: no tap reads outside of the input */
} cut;

static int64_t stage_bytes(const cut *p)
{
  const int64_t a = DEEP * (p->positions + (p->x_last ? 0 : 8));
  return 4 * (a + DEEP * (p->columns + 8));
}

static void choose_blocks(const convolution *c, cut *p)
{
  int64_t places = c->images;
  for (int k = 0; k < AXES; k++) places *= ratio_up(c->axis[k].out, c->transposed ? c->axis[k].stride : 1);
  p->blocks = ratio_up(places, p->positions) * p->phases;
  p->column_blocks = ratio_up(c->out_channels, p->columns);
  /* Warps stand over 32 places each where the block has as many, else side by side. */
  p->warps_down = p->positions == 256 || p->columns < 32 ? 8 : 4;
  p->stages = (SHARED_BYTES - 12 * p->most_taps) / stage_bytes(p);
  if (p->stages > 3) p->stages = 3;
}

static bool is_few(const convolution *c, const cut *p) { return p->blocks * p->column_blocks * c->groups < FEW_BLOCKS; }

static void choose_cut(const convolution *c, cut *p)
{
  *p = (cut){.phases = 1, .most_taps = 1};
  bool apart = true; /* all else than channels are 16 bytes apart */
  p->inside = !c->transposed;
  for (int k = 0; k < AXES; k++) {
    const axis *d = &c->axis[k];
    if (c->transposed) p->phases *= d->stride;
    p->most_taps *= ratio_up(d->kernel, d->step);
    p->inside = p->inside && !d->pad;
    apart = apart && d->x % 4 == 0;
  }
  p->x_last = c->x_channel == 1 && c->channels % 4 == 0 && apart && c->x_image % 4 == 0;
  p->w_last = c->w_out == 1 && c->out_channels % 4 == 0 && c->w_in % 4 == 0 && c->w_group % 4 == 0;
  for (int k = 0; k < AXES; k++) p->w_last = p->w_last && c->axis[k].w % 4 == 0;
  const int64_t n = c->out_channels;
  p->columns = n <= 8 ? 8 : n <= 16 ? 16 : n <= 32 ? 32 : n % 128 ? 64 : 128;
  p->positions = p->columns <= (p->x_last ? 32 : 64) ? 256 : 128;
  choose_blocks(c, p);
  if (p->positions == 256 && (is_few(c, p) || p->stages < 2)) p->positions = 128, choose_blocks(c, p);
  if (p->columns == 128 && (is_few(c, p) || p->stages < 2)) p->columns = 64, choose_blocks(c, p);
}

/* ---- the text ---- */
static void write_shape(const convolution *c, const cut *p, qn_text *text)
{
  qn_text_add(text, "struct q_shape {\n");
  for (int k = 0; k < AXES; k++) {
    const axis *d = &c->axis[k];
    qn_text_add(text, "  typedef q_axis<%s, %lld, %lld, %lld, %lld, %lld, %lld, %lld> axis%d;\n",
                c->transposed ? "true" : "false", (long long)d->in, (long long)d->out, (long long)d->kernel,
                (long long)d->stride, (long long)d->pad, (long long)d->apart, (long long)d->step, k);
  }
  const qn_constant ints[] =
      {{"images", c->images},         {"channels", c->channels},   {"out_channels", c->out_channels},
       {"bias", c->n_values == 3},    {"positions", p->positions}, {"columns", p->columns},
       {"warps_down", p->warps_down}, {"stages", p->stages},       {"most_taps", p->most_taps},
       {"inside", p->inside},         {"x_last", p->x_last},       {"w_last", p->w_last},
       {"x_channel", c->x_channel},   {"w_in", c->w_in},           {"w_out", c->w_out}},
                    longs[] = {{"x_image", c->x_image},
                               {"x_group", c->channels * c->x_channel},
                               {"w_group", c->w_group},
                               {"y_image", c->y_image},
                               {"y_channel", c->y_channel}};
  qn_write_constants(text, "int", ints, sizeof ints / sizeof *ints);
  qn_write_constants(text, "long", longs, sizeof longs / sizeof *longs);
  for (int k = 0; k < AXES; k++) {
    const axis *d = &c->axis[k];
    qn_text_add(text, "  enum : int { out%d = %lld, x%d = %lld, w%d = %lld };\n  enum : long { y%d = %lld };\n", k,
                (long long)d->out, k, (long long)d->x, k, (long long)d->w, k, (long long)d->y);
  }
  qn_text_add(text, "};\n");
}

static void write_kernel(const qn_fusion *f, const qn_graph_node *node, qn_body *body)
{
  int64_t stored[3][QN_GRAPH_DIMS];
  const int64_t *strides[3];
  for (int k = 0; k < 3; k++) {
    const int value = k < 2 ? node->argument[k].value : node->result[0];
    int order[QN_GRAPH_DIMS];
    qn_stored_order(&f->graph->value[value], stored[k], order);
    strides[k] = k < 2 && f->kernel_of[value] < 0 ? f->graph->value[value].strides : stored[k];
  }
  convolution c;
  cut p;
  *body = (qn_body){.what = "convolution", .why = "a product in tf32", .group = {THREADS, 1, 1}, .strided = 3};
  body->unfit = read_node(f->graph, node, strides, &c);
  choose_cut(&c, &p);
  const qn_graph_value *y = &f->graph->value[node->result[0]];
  body->operations = 2 * (c.transposed ? f->graph->value[c.value[0]].n * c.out_channels : y->n * c.channels);
  for (int k = 0; k < AXES; k++) body->operations *= c.axis[k].kernel;
  body->bytes = 4 * y->n;
  body->n_inputs = c.n_values;
  for (int k = 0; k < c.n_values; k++) {
    body->input[k] = c.value[k];
    body->bytes += 4 * f->graph->value[c.value[k]].n;
  }
  const qn_source *text = qn_source_find("graph/convolution.cu");
  qn_text_add_bytes(&body->header, text->text, text->bytes);
  write_shape(&c, &p, &body->header);
  qn_text_add(&body->source,
              "q_convolution<q_shape>(threadIdx.x, blockIdx.x, blockIdx.y * %lld, blockIdx.z, i0, i1, %s, o0);\n",
              (long long)p.columns, c.n_values == 3 ? "i2" : "nullptr");
  body->grid[0] = (uint64_t)(p.blocks * THREADS);
  body->grid[1] = (uint64_t)p.column_blocks;
  body->grid[2] = (uint64_t)c.groups;
}

/* ---- the rule ---- */
static void lower(qn_lowering *l, int which)
{
  bool alone = false;
  const char *why = refuses(l->graph, qn_node_of(l), &alone);
  (void)which;
  if (!why && alone) {
    qn_lower_channels_alone(l);
    return;
  }
  if (!why) qn_node_of(l)->own = write_kernel;
  qn_give_up(l, why ? why : "it has a kernel of its own");
}

const qn_graph_rule qn_graph_convolution_rules[] = {QN_ATEN("convolution", lower, 0), {0}};
