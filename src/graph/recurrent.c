/* SPDX-License-Identifier: Apache-2.0 */
/* recurrent.c - what a recurrent net's kernel is written from: its shapes, and how it is cut into clusters, warps and
 * registers. The kernel itself is recurrent.cu. */
#include "core/source.h"
#include "graph/fuse.h"
#include "graph/lower.h"
#include <string.h>

enum {
  TALL = 16,         /* hidden units of a block */
  MOST_BLOCKS = 16,  /* of a cluster */
  PART_BYTES = 16,   /* of a tile, which has four for each sequence */
  ROW = 18,          /* floats of a row of sums: the loads of a warp, of 16 units and two sequences, are of 32 banks */
  OTHERS = 128,      /* threads that bring inputs and publish results */
  REGISTERS = 65536, /* of a multiprocessor */
  LEAST_OF_OTHERS = 24,    /* registers of a thread that brings inputs */
  MOST_OF_OTHERS = 56,     /* it uses no more */
  MOST_REGISTERS = 240,    /* of a thread that multiplies */
  OWN_REGISTERS = 48,      /* of a thread that multiplies, beside those of weights */
  SHARED_BYTES = 227 << 10 /* of a block */
};

typedef enum kind { TANH, RELU, LSTM, GRU, KINDS } kind;
static const struct {
  const char *name;
  int gates, warps;
} kinds[KINDS] = {{"tanh", 1, 8}, {"relu", 1, 8}, {"lstm", 4, 8}, {"gru", 3, 12}};

typedef struct net {
  kind kind;
  int64_t hidden, inputs, layers, directions, batch, steps;
  bool biased, batch_first;
  int64_t x_batch, x_time, x_element, out_batch, out_time, out_element; /* from one to the next in memory */
} net;

typedef struct cut {
  int64_t eights, blocks, cluster, tiles_h, most_tiles, threads, registers, few_registers, shared_bytes;
} cut;

static int64_t ratio_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static bool is_tensor(const qn_graph *graph, const qn_argument *a, int ndim)
{
  return a->kind == QN_ARGUMENT_VALUE && graph->value[a->value].dtype == QN_F32 && graph->value[a->value].ndim == ndim;
}

/* x, h0, c0 (or none), weights in one tensor, kind, hidden, layers, biased, bidirectional, batch first. NULL, or why
 * the node has no kernel. */
static const char *read_node(const qn_graph *graph, const qn_graph_node *node, net *r)
{
  const qn_argument *a = node->argument;
  *r = (net){.kind = KINDS};
  if (node->n_arguments != 10 || node->n_keywords || !is_tensor(graph, &a[0], 3) || !is_tensor(graph, &a[1], 3) ||
      !is_tensor(graph, &a[3], 1) || a[4].kind != QN_ARGUMENT_TEXT || a[5].kind != QN_ARGUMENT_INTEGER ||
      a[6].kind != QN_ARGUMENT_INTEGER)
    return "arguments that are no recurrent net's";
  for (int k = 7; k < 10; k++)
    if (a[k].kind != QN_ARGUMENT_BOOL) return "arguments that are no recurrent net's";
  for (int k = 0; k < KINDS; k++)
    if (!strcmp(a[4].text, kinds[k].name)) r->kind = (kind)k;
  const bool is_lstm = r->kind == LSTM;
  if (r->kind == KINDS || is_lstm != (a[2].kind == QN_ARGUMENT_VALUE) || (is_lstm && !is_tensor(graph, &a[2], 3)) ||
      node->n_results != (is_lstm ? 3 : 2))
    return "arguments that are no recurrent net's";
  r->hidden = a[5].integer, r->layers = a[6].integer;
  r->biased = a[7].integer, r->directions = a[8].integer ? 2 : 1, r->batch_first = a[9].integer;
  const qn_graph_value *x = &graph->value[a[0].value];
  r->batch = x->shape[r->batch_first ? 0 : 1], r->steps = x->shape[r->batch_first ? 1 : 0], r->inputs = x->shape[2];
  if (r->hidden < 1 || r->layers < 1 || !x->n) return "a recurrent net of no elements";
  const int64_t most = INT64_C(1) << 20;
  if (r->hidden > MOST_BLOCKS * TALL) return "a recurrent net of more than 256 hidden units";
  if (r->inputs > most || r->batch > most || r->steps > most || r->layers > most) return "a recurrent net too large";
  const int64_t rows = kinds[r->kind].gates * r->hidden, more = r->hidden + (r->biased ? 2 : 0);
  const int64_t weights =
      r->directions * rows * (r->inputs + more + (r->layers - 1) * (r->directions * r->hidden + more));
  const int64_t state[3] = {r->layers * r->directions, r->batch, r->hidden};
  const int64_t out[3] = {x->shape[0], x->shape[1], r->directions * r->hidden};
  for (int d = 0; d < 3; d++) {
    for (int k = 1; k <= (is_lstm ? 2 : 1); k++)
      if (graph->value[a[k].value].shape[d] != state[d] || graph->value[node->result[k]].shape[d] != state[d] ||
          graph->value[node->result[k]].ndim != 3)
        return "shapes that are no recurrent net's";
    if (graph->value[node->result[0]].ndim != 3 || graph->value[node->result[0]].shape[d] != out[d])
      return "shapes that are no recurrent net's";
  }
  return graph->value[a[3].value].n == weights ? NULL : "shapes that are no recurrent net's";
}

static const char *choose_cut(const net *r, cut *p)
{
  const int64_t gates = kinds[r->kind].gates, warps = kinds[r->kind].warps, slices = warps / gates;
  *p = (cut){.eights = r->batch > 8 ? 2 : 1, .cluster = 1, .tiles_h = ratio_up(r->hidden, TALL)};
  p->blocks = ratio_up(r->batch, 8 * p->eights);
  while (p->cluster < p->tiles_h) p->cluster *= 2;
  const int64_t tiles_0 = ratio_up(r->inputs, TALL), tiles_up = r->layers > 1 ? r->directions * p->tiles_h : 0;
  p->most_tiles = tiles_0 > tiles_up ? tiles_0 : tiles_up;
  p->threads = warps * 32 + OTHERS;
  /* Registers are handed over in eights, of those that a launch of so many threads has. */
  const int64_t all = REGISTERS / p->threads / 8 * 8 * p->threads, workers = p->threads - OTHERS;
  const int64_t kept = ratio_up(p->tiles_h, slices) + ratio_up(p->most_tiles, slices);
  p->few_registers = (all - (8 * kept + OWN_REGISTERS) * workers) / OTHERS / 8 * 8;
  if (p->few_registers > MOST_OF_OTHERS) p->few_registers = MOST_OF_OTHERS;
  if (p->few_registers < LEAST_OF_OTHERS) return "a recurrent net whose weights do not fit into registers";
  p->registers = (all - OTHERS * p->few_registers) / workers / 8 * 8;
  if (p->registers > MOST_REGISTERS) p->registers = MOST_REGISTERS;
  const int64_t sums = slices * (r->kind == GRU ? 4 : gates) * TALL * ROW * 4, barriers = 128;
  p->shared_bytes = 2 * (p->tiles_h + p->most_tiles) * 8 * p->eights * 4 * PART_BYTES + sums + barriers;
  if (p->shared_bytes > SHARED_BYTES) return "a recurrent net whose inputs do not fit into shared memory";
  const int64_t units = r->layers * r->directions * p->blocks;
  if (r->steps * tiles_0 * 8 * p->eights * 4 > INT32_MAX) return "a recurrent net too large";
  return units * p->cluster * p->threads > INT32_MAX ? "a recurrent net too large" : NULL;
}

/* ---- the text ---- */
static void write_shape(const net *r, const cut *p, qn_text *text)
{
  const qn_constant ints[] = {{"tanh", TANH},
                              {"relu", RELU},
                              {"lstm", LSTM},
                              {"gru", GRU},
                              {"kind", r->kind},
                              {"gates", kinds[r->kind].gates},
                              {"warps", kinds[r->kind].warps},
                              {"hidden", r->hidden},
                              {"inputs", r->inputs},
                              {"layers", r->layers},
                              {"directions", r->directions},
                              {"batch", r->batch},
                              {"steps", r->steps},
                              {"biased", r->biased},
                              {"eights", p->eights},
                              {"blocks", p->blocks},
                              {"tall", TALL},
                              {"row", ROW},
                              {"threads", p->threads},
                              {"cluster", p->cluster},
                              {"registers", p->registers},
                              {"few_registers", p->few_registers},
                              {"shared_bytes", p->shared_bytes}},
                    longs[] = {{"x_batch", r->x_batch},     {"x_time", r->x_time},     {"x_element", r->x_element},
                               {"out_batch", r->out_batch}, {"out_time", r->out_time}, {"out_element", r->out_element}};
  qn_text_add(text, "struct q_shape {\n");
  qn_write_constants(text, "int", ints, sizeof ints / sizeof *ints);
  qn_write_constants(text, "long", longs, sizeof longs / sizeof *longs);
  qn_text_add(text, "};\n");
}

static void write_kernel(const qn_fusion *f, const qn_graph_node *node, qn_body *body)
{
  net r;
  cut p;
  *body = (qn_body){.strided = 1};
  read_node(f->graph, node, &r); /* the rule has seen that both are fine */
  choose_cut(&r, &p);
  const int x = node->argument[0].value, batch = r.batch_first ? 0 : 1;
  int64_t stored[QN_GRAPH_DIMS];
  int order[QN_GRAPH_DIMS];
  qn_stored_order(&f->graph->value[x], stored, order);
  const int64_t *strides = f->kernel_of[x] < 0 ? f->graph->value[x].strides : stored;
  r.x_batch = strides[batch], r.x_time = strides[1 - batch], r.x_element = strides[2];
  qn_stored_order(&f->graph->value[node->result[0]], stored, order);
  r.out_batch = stored[batch], r.out_time = stored[1 - batch], r.out_element = stored[2];
  body->what = kinds[r.kind].gates > 1 ? kinds[r.kind].name : "rnn";
  body->why = "a cluster of blocks for each layer and direction";
  for (int k = 0; k < 4; k++)
    if (node->argument[k].kind == QN_ARGUMENT_VALUE) {
      body->input[body->n_inputs++] = node->argument[k].value;
      body->bytes += 4 * f->graph->value[node->argument[k].value].n;
    }
  for (int k = 0; k < node->n_results; k++) body->bytes += 4 * f->graph->value[node->result[k]].n;
  const int64_t rows = kinds[r.kind].gates * r.hidden, units = r.layers * r.directions * p.blocks;
  body->operations = 2 * r.batch * r.steps * r.directions * rows *
                     (r.inputs + r.hidden + (r.layers - 1) * (r.directions + 1) * r.hidden);
  /* What layers read, in tiles, and counters, the first of which gives clusters their numbers. */
  const int64_t tiles = ratio_up(r.inputs, TALL) + (r.layers - 1) * p.tiles_h;
  body->n_scratch = 2;
  body->scratch[0].dtype = QN_I32;
  body->scratch[0].n = r.directions * p.blocks * r.steps * tiles * 8 * p.eights * 4 * PART_BYTES / 4;
  body->scratch[1].dtype = QN_I32;
  body->scratch[1].n = 1 + units;
  body->scratch[1].zeroed = true;
  const qn_source *text = qn_source_find("graph/recurrent.cu");
  qn_text_add_bytes(&body->header, text->text, text->bytes);
  write_shape(&r, &p, &body->header);
  const bool lstm = r.kind == LSTM;
  qn_text_add(&body->source,
              "extern __shared__ uint4 q_memory[];\n"
              "using q_net = q_recurrent<q_shape>;\n"
              "q_net{i0, i1, %s, %s, o0, o1, %s, reinterpret_cast<uint4 *>(o%d), o%d,\n"
              "      reinterpret_cast<q_net::memory *>(q_memory)}.run();\n",
              lstm ? "i2" : "nullptr", lstm ? "i3" : "i2", lstm ? "o2" : "nullptr", node->n_results,
              node->n_results + 1);
  body->cluster = (uint32_t)p.cluster;
  body->shared_bytes = (uint32_t)p.shared_bytes;
  body->group[0] = (uint32_t)p.threads, body->group[1] = body->group[2] = 1;
  body->grid[0] = (uint64_t)(units * p.cluster * p.threads);
  body->grid[1] = body->grid[2] = 1;
}

static void lower(qn_lowering *l, int which)
{
  net r;
  cut p;
  const char *why = read_node(l->graph, qn_node_of(l), &r);
  (void)which;
  if (!why) why = choose_cut(&r, &p);
  if (!why && l->graph->on_cpu) why = "a recurrent net, whose kernel is a GPU's";
  if (!why) qn_node_of(l)->own = write_kernel;
  qn_give_up(l, why ? why : "it has a kernel of its own");
}

const qn_graph_rule qn_graph_recurrent_rules[] = {{"quern.recurrent.default", lower, 0}, {0}};
