/* SPDX-License-Identifier: Apache-2.0 */
/* statements.c - the statements that compute a value at a place: views change the place, words and casts become a
 * constant each, memory is read. What was computed once is not computed again in the same loop; what does not depend on
 * the loop stands before it. Places outside of a tensor are in branches that are not taken there. */
#include "graph/body.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- registers ---- */
/* A part that could not be written makes the body fail. */
static void drop(qn_writer *w, qn_text *text)
{
  w->row.failed |= text->failed;
  qn_text_free(text);
}

static uint64_t varies(const qn_writer *w, const qn_index *at, int n)
{
  uint64_t bits = 0;
  for (int d = 0; d < n; d++) bits |= w->set.sum[at[d]].varies;
  return bits;
}

static int level_of(const qn_writer *w, const qn_index *at, int n)
{
  const uint64_t bits = varies(w, at, n);
  if (w->inner || bits & w->set.sum[w->lane_variable].varies ||
      (w->width == 1 && bits & w->set.sum[w->step_variable].varies))
    return QN_LEVEL_LANE;
  return bits & w->set.sum[w->step_variable].varies ? QN_LEVEL_STEP : QN_LEVEL_ROW;
}

static qn_text *stream(qn_writer *w, int level)
{
  if (w->inner) return w->inner;
  return level == QN_LEVEL_ROW ? &w->row : level == QN_LEVEL_STEP ? &w->step : &w->lane;
}

bool qn_same_places(const qn_index *a, const qn_index *b, int n)
{
  for (int d = 0; d < n; d++)
    if (a[d] != b[d]) return false;
  return true;
}

static int recall(const qn_writer *w, int value, const qn_index *at, int n)
{
  for (int k = w->n_memos - 1; k >= 0; k--)
    if (w->memo[k].value == value && w->memo[k].n == n && qn_same_places(w->memo[k].at, at, n)) return w->memo[k].name;
  return -1;
}

void qn_memo_add(qn_writer *w, int value, const qn_index *at, int n, int level, int name)
{
  if (w->n_memos == w->memos) {
    const int more = w->memos ? w->memos * 2 : 64;
    qn_memo *grown = qn_reallocate(w->memo, (size_t)more * sizeof *grown);
    if (!grown) {
      w->set.failed = true;
      return;
    }
    w->memo = grown;
    w->memos = more;
  }
  qn_memo *m = &w->memo[w->n_memos++];
  *m = (qn_memo){.value = value, .n = n, .level = level, .name = name};
  for (int d = 0; d < n; d++) m->at[d] = at[d];
}

void qn_memo_forget(qn_writer *w, int from_level)
{
  int kept = 0;
  for (int k = 0; k < w->n_memos; k++)
    if (w->memo[k].level < from_level) w->memo[kept++] = w->memo[k];
  w->n_memos = kept;
}

int qn_new_register(qn_writer *w)
{
  if (w->registers >= QN_FUSED_REGISTERS) w->body->unfit = "its body would be too long";
  return w->registers++;
}

int qn_root_of(const qn_writer *w, int value)
{
  for (int k = 0; k < w->fused->n; k++)
    if (w->fused->root[k] == value) return k;
  return -1;
}

/* ---- memory ---- */
static int input_of(qn_writer *w, int value)
{
  qn_body *body = w->body;
  for (int k = 0; k < body->n_inputs; k++)
    if (body->input[k] == value) return k;
  if (body->n_inputs == QN_FUSED_INPUTS) {
    body->unfit = "it would read more than 28 tensors";
    return 0;
  }
  body->input[body->n_inputs] = value;
  return body->n_inputs++;
}

static qn_index place_by(qn_writer *w, const qn_graph_value *v, const int64_t *strides, const qn_index *at)
{
  qn_index place = qn_index_constant(&w->set, 0);
  for (int d = v->ndim - 1; d >= 0; d--) place = qn_index_add(&w->set, place, at[d], strides[d]);
  return place;
}

qn_index qn_stored_place(qn_writer *w, const qn_graph_value *v, const qn_index *at)
{
  int64_t strides[QN_GRAPH_DIMS];
  int order[QN_GRAPH_DIMS];
  qn_stored_order(v, strides, order);
  return place_by(w, v, strides, at);
}

/* A tensor whose strides are not row-major is taken as it is. */
static qn_index place_of(qn_writer *w, int value, int input, const qn_index *at)
{
  const qn_graph_value *v = &w->graph->value[value];
  int64_t strides[QN_GRAPH_DIMS];
  int order[QN_GRAPH_DIMS];
  if (qn_is_memory(v))
    memcpy(strides, v->strides, sizeof strides);
  else
    qn_stored_order(v, strides, order);
  if (qn_is_in_order(v, strides, NULL)) return qn_index_flat(&w->set, v->ndim, v->shape, at);
  w->body->strided |= UINT64_C(1) << input;
  return place_by(w, v, strides, at);
}

/* The pack at a place, which is loaded once a step. */
static int load_pack(qn_writer *w, int value, int input, int name, qn_index first)
{
  const qn_dtype dtype = w->graph->value[value].dtype;
  const int known = recall(w, ~value, &first, 1);
  if (known >= 0) return known;
  qn_text_add(&w->step, "const q_pack<"), qn_write_type(&w->step, dtype);
  qn_text_add(&w->step, ", %d> p%d = q_load<", w->width, name), qn_write_type(&w->step, dtype);
  qn_text_add(&w->step, ", %d>(i%d, ", w->width, input);
  qn_index_write(&w->set, first, w->wide, &w->step);
  qn_text_add(&w->step, ");\n");
  qn_memo_add(w, ~value, &first, 1, QN_LEVEL_STEP, name);
  return name;
}

/* Whether the variable counts neighbours at this place. */
static bool are_neighbours(const qn_writer *w, qn_index place, qn_index variable, int64_t width)
{
  int64_t step;
  if (!variable) return false;
  if (qn_index_step(&w->set, place, variable, &step)) return llabs(step) == width;
  return qn_index_runs(&w->set, place, variable);
}

/* Quotients that lanes share stand before their loop, and as a pointer's distance: of an int that wraps gcc makes
 * gathers, where it takes two turns of the loop around. */
void qn_write_place(qn_writer *w, qn_index place, qn_text *to)
{
  bool divides = false;
  const qn_index shared = qn_index_shared(&w->set, place, w->set.sum[w->lane_variable].varies, &divides);
  if ((!divides && !w->inner) || !w->cut->on_cpu || w->width == 1) {
    qn_index_write(&w->set, place, w->wide, to);
    return;
  }
  const int name = qn_new_register(w);
  const bool in_step = varies(w, &shared, 1) & w->set.sum[w->step_variable].varies;
  qn_text *before = in_step ? &w->step : &w->row;
  w->shared |= in_step;
  qn_text_add(before, "const long v%d = ", name);
  qn_index_write(&w->set, shared, w->wide, before);
  qn_text_add(before, ";\n");
  qn_text_add(to, "v%d + ", name);
  qn_index_write(&w->set, qn_index_add(&w->set, place, shared, -1), w->wide, to);
}

/* Elements that are no neighbours along the loop, in a loop of their own before it: in one loop with them, compilers
 * make no vectors of what is computed. */
static void gather_before(qn_writer *w, int name, qn_dtype type, qn_text *loaded)
{
  const qn_cut *p = w->cut;
  qn_write_type(&w->row, type);
  qn_text_add(&w->row, " l%d[%lld];\n", name, (long long)p->piece);
  qn_open_piece(&w->row, p, w->wide);
  const char *at = p->piece == p->side ? "x" : "x - from";
  qn_text_add(&w->row, "l%d[%s] = ", name, at);
  qn_write_type(&w->row, type);
  qn_text_add(&w->row, "(%s);\n}\n", loaded->at ? loaded->at : "");
  drop(w, loaded);
  qn_text_add(loaded, "l%d[%s]", name, at);
}

static int write_load(qn_writer *w, int value, const qn_index *at)
{
  const qn_graph_value *v = &w->graph->value[value];
  const int k = input_of(w, value), name = qn_new_register(w);
  const qn_dtype type = qn_compute_type(v->dtype);
  int level = level_of(w, at, v->ndim);
  const qn_index place = place_of(w, value, k, at);
  if (v->n > INT32_MAX || w->set.sum[place].most > INT32_MAX) w->wide = true;
  const int64_t bytes = v->n * (int64_t)qn_dtype_bytes(v->dtype);
  if (are_neighbours(w, place, w->row_variable, 1)) w->unit_row += bytes;
  int64_t apart, n;
  const bool along = are_neighbours(w, place, w->step_variable, w->width);
  if (along)
    w->unit_length += bytes;
  else if (v->n >= w->cut->length && bytes > w->far_bytes && qn_index_far(&w->set, place, w->step_variable, &apart, &n))
    w->far_apart = apart, w->far_n = n, w->far_bytes = bytes;
  qn_index first = place;
  const int vector = w->width > 1 && level == QN_LEVEL_LANE && !w->inner && w->vectors
                         ? qn_index_access(&w->set, place, w->lane_variable, w->width, &first)
                         : 0;
  qn_text loaded = {0};
  if (vector) {
    qn_text_add(&loaded, vector > 0 ? "p%d.at[j]" : "p%d.at[%d - j]", load_pack(w, value, k, name, first),
                w->width - 1);
  } else if (v->ndim)
    qn_text_add(&loaded, "i%d[", k), qn_write_place(w, place, &loaded), qn_text_add(&loaded, "]");
  else
    qn_text_add(&loaded, "i%d", k);
  if (w->cut->gathers && level == QN_LEVEL_LANE && !along && !w->inner) gather_before(w, name, type, &loaded);
  qn_text *to = stream(w, level);
  qn_text_add(to, "const ");
  qn_write_type(to, type);
  qn_text_add(to, " v%d = ", name);
  qn_write_type(to, type);
  qn_text_add(to, "(%s);\n", loaded.at ? loaded.at : "");
  drop(w, &loaded);
  return name;
}

/* ---- values ---- */
/* An argument as a word's operand, of the type that it computes with. */
static void write_operand(qn_writer *w, int value, const qn_index *at, qn_dtype type, qn_text *operand)
{
  const qn_graph_value *v = &w->graph->value[value];
  char name[16];
  if (v->form == QN_FORM_CONSTANT) {
    const bool whole = !qn_is_real(v->dtype);
    const double real = whole ? (double)v->whole : v->real;
    qn_write_number(operand, type, real, whole ? v->whole : isfinite(real) && fabs(real) < 9e18 ? (int64_t)real : 0);
    return;
  }
  snprintf(name, sizeof name, "v%d", qn_write_value(w, value, at));
  qn_write_converted(operand, name, qn_compute_type(v->dtype), type);
}

static void broadcast_places(qn_writer *w, int value, int argument, const qn_index *at, qn_index *place)
{
  const qn_graph_value *v = &w->graph->value[value], *a = &w->graph->value[argument];
  const int skip = v->ndim - a->ndim;
  for (int d = 0; d < a->ndim; d++) place[d] = a->shape[d] == 1 ? qn_index_constant(&w->set, 0) : at[d + skip];
}

/* "const T vN = " and the value brought to the storage type's range where that is smaller. */
static void write_result(qn_writer *w, int level, int name, qn_dtype dtype, qn_dtype from, bool rounded,
                         const char *expression)
{
  qn_text *to = stream(w, level);
  const qn_dtype type = qn_compute_type(dtype);
  const bool narrow = dtype != type && (rounded || !qn_is_real(dtype));
  qn_text_add(to, "const ");
  qn_write_type(to, type);
  qn_text_add(to, " v%d = ", name);
  if (narrow) {
    qn_write_type(to, type);
    qn_text_add(to, "(");
    qn_write_type(to, dtype);
    qn_text_add(to, "(%s))", expression);
  } else if (type == from)
    qn_text_add(to, "%s", expression);
  else if (type == QN_BOOL)
    qn_text_add(to, "(%s) != 0", expression);
  else {
    qn_write_type(to, type);
    qn_text_add(to, "(%s)", expression);
  }
  qn_text_add(to, ";\n");
}

static int write_word(qn_writer *w, int value, const qn_index *at)
{
  const qn_graph_value v = w->graph->value[value];
  const qn_word_info *word = qn_word(v.word);
  qn_text operand[3] = {{0}}, expression = {0};
  for (int k = 0; k < v.n_arguments; k++) {
    qn_index place[QN_GRAPH_DIMS];
    const bool truth = word->kind == QN_WORD_LOGIC || (word->kind == QN_WORD_WHERE && k == 0);
    broadcast_places(w, value, v.argument[k], at, place);
    write_operand(w, v.argument[k], place, truth ? QN_BOOL : v.compute, &operand[k]);
  }
  const int name = qn_new_register(w), level = level_of(w, at, v.ndim);
  qn_write_formula(&expression, word->formula, operand);
  const bool truth = word->kind == QN_WORD_COMPARE || word->kind == QN_WORD_LOGIC;
  write_result(w, level, name, v.dtype, truth ? QN_BOOL : v.compute, false, expression.at ? expression.at : "");
  *(level == QN_LEVEL_ROW ? &w->cost_row : &w->cost_lane) += word->cost;
  for (int k = 0; k < 3; k++) drop(w, &operand[k]);
  drop(w, &expression);
  return name;
}

static int write_cast(qn_writer *w, int value, const qn_index *at)
{
  const qn_graph_value v = w->graph->value[value];
  qn_text operand = {0};
  const qn_dtype from = qn_compute_type(w->graph->value[v.argument[0]].dtype);
  write_operand(w, v.argument[0], at, from, &operand);
  const int name = qn_new_register(w);
  write_result(w, level_of(w, at, v.ndim), name, v.dtype, from, true, operand.at ? operand.at : "");
  drop(w, &operand);
  return name;
}

static int write_view(qn_writer *w, int value, const qn_index *at)
{
  const qn_graph_value *v = &w->graph->value[value], *a = &w->graph->value[v->argument[0]];
  qn_index place[QN_GRAPH_DIMS];
  if (v->form == QN_FORM_RESHAPE)
    qn_index_reshape(&w->set, v->ndim, v->shape, at, a->ndim, a->shape, place);
  else
    for (int d = 0; d < a->ndim; d++) {
      place[d] = qn_index_constant(&w->set, v->view[d].low);
      for (int k = 0; k < v->view[d].n; k++)
        place[d] = qn_index_add(&w->set, place[d], at[v->view[d].dim[k]], v->view[d].step[k]);
    }
  if (a->form == QN_FORM_CONSTANT) {
    qn_text number = {0};
    const int name = qn_new_register(w);
    write_operand(w, v->argument[0], place, qn_compute_type(v->dtype), &number);
    write_result(w, w->inner ? QN_LEVEL_LANE : QN_LEVEL_ROW, name, v->dtype, qn_compute_type(v->dtype), false,
                 number.at ? number.at : "");
    drop(w, &number);
    return name;
  }
  return qn_write_value(w, v->argument[0], place);
}

/* A branch: `if (condition) { ...; vN = value; }`. What is computed in it is known in it alone. */
static void write_branch(qn_writer *w, int level, const char *opening, int name, qn_dtype type, int argument,
                         const qn_index *at)
{
  qn_text inside = {0}, operand = {0}, *outer = w->inner;
  const int memos = w->n_memos;
  w->inner = &inside;
  write_operand(w, argument, at, type, &operand);
  w->inner = outer;
  w->n_memos = memos;
  qn_text *to = stream(w, level);
  qn_text_add(to, "%s {\n%s", opening, inside.at ? inside.at : "");
  qn_text_add(to, "v%d = %s;\n}", name, operand.at ? operand.at : "");
  drop(w, &inside);
  drop(w, &operand);
}

static int declare(qn_writer *w, int level, qn_dtype dtype)
{
  const int name = qn_new_register(w);
  qn_text *to = stream(w, level);
  qn_write_type(to, qn_compute_type(dtype));
  qn_text_add(to, " v%d;\n", name);
  return name;
}

/* `index >= low && index < high` where it may be otherwise. A GPU computes all and branches once. */
static void write_bounds(qn_writer *w, qn_text *text, qn_index index, int64_t low, int64_t high)
{
  const qn_index_sum s = w->set.sum[index];
  for (int k = 0; k < 2; k++) {
    if (k ? s.most < high : s.least >= low) continue;
    if (text->length) qn_text_add(text, w->graph->on_cpu ? " && " : " & ");
    qn_text_add(text, "(");
    qn_index_write(&w->set, index, w->wide, text);
    qn_text_add(text, k ? " < %lld)" : " >= %lld)", (long long)(k ? high : low));
  }
}

/* An index as a variable of its own, brought to the nearest one that is there. */
static qn_index nearest(qn_writer *w, qn_index index, int64_t extent)
{
  const qn_index_sum s = w->set.sum[index];
  if (s.least >= 0 && s.most < extent) return index;
  char name[24];
  snprintf(name, sizeof name, "r%d", qn_new_register(w));
  qn_text *to = stream(w, level_of(w, &index, 1));
  qn_text_add(to, "const int %s = clamp(int(", name);
  qn_index_write(&w->set, index, w->wide, to);
  qn_text_add(to, "), 0, %lld);\n", (long long)extent - 1);
  const qn_index made = qn_index_variable(&w->set, name, extent);
  if (!w->set.failed && extent > 1)
    w->set.atom[w->set.n_atoms - 1].varies |= s.varies, w->set.sum[made].varies |= s.varies;
  return made;
}

static int write_pad(qn_writer *w, int value, const qn_index *at)
{
  const qn_graph_value v = w->graph->value[value], *a = &w->graph->value[v.argument[0]];
  const int level = level_of(w, at, v.ndim);
  qn_text condition = {0}, opening = {0};
  qn_index place[QN_GRAPH_DIMS];
  for (int d = 0; d < v.ndim; d++) {
    write_bounds(w, &condition, at[d], v.low[d], v.low[d] + a->shape[d]);
    place[d] = qn_index_add(&w->set, at[d], qn_index_constant(&w->set, 1), -v.low[d]);
  }
  w->row.failed |= condition.failed;
  if (!condition.length) return qn_write_value(w, v.argument[0], place);
  const qn_dtype type = qn_compute_type(v.dtype);
  if (v.chosen) {
    qn_text element = {0}, around = {0};
    for (int d = 0; d < v.ndim; d++) place[d] = nearest(w, place[d], a->shape[d]);
    write_operand(w, v.argument[0], place, type, &element);
    write_operand(w, v.argument[1], NULL, type, &around);
    const int made = qn_new_register(w);
    qn_text_add(&opening, "(%s) ? %s : %s", condition.at, element.at ? element.at : "", around.at ? around.at : "");
    write_result(w, level, made, v.dtype, type, false, opening.at ? opening.at : "");
    drop(w, &element), drop(w, &around), drop(w, &condition), drop(w, &opening);
    return made;
  }
  const int name = declare(w, level, v.dtype);
  qn_text_add(&opening, "if (%s)", condition.at);
  write_branch(w, level, opening.at ? opening.at : "", name, type, v.argument[0], place);
  write_branch(w, level, " else", name, type, v.argument[1], NULL);
  qn_text_add(stream(w, level), "\n");
  drop(w, &condition);
  drop(w, &opening);
  return name;
}

static int write_cat(qn_writer *w, int value, const qn_index *at)
{
  const qn_graph_value v = w->graph->value[value];
  const int level = level_of(w, at, v.ndim);
  const int name = declare(w, level, v.dtype);
  int64_t low = 0;
  for (int k = 0; k < v.n_arguments; k++) {
    const int64_t extent = w->graph->value[v.arguments[k]].shape[v.dim];
    qn_index place[QN_GRAPH_DIMS];
    qn_text opening = {0};
    for (int d = 0; d < v.ndim; d++) place[d] = at[d];
    place[v.dim] = qn_index_add(&w->set, at[v.dim], qn_index_constant(&w->set, 1), -low);
    qn_text_add(&opening, k ? " else" : "");
    if (k < v.n_arguments - 1) {
      qn_text_add(&opening, k ? " if (" : "if (");
      qn_index_write(&w->set, at[v.dim], w->wide, &opening);
      qn_text_add(&opening, " < %lld)", (long long)(low + extent));
    }
    write_branch(w, level, opening.at ? opening.at : "", name, qn_compute_type(v.dtype), v.arguments[k], place);
    drop(w, &opening);
    low += extent;
  }
  qn_text_add(stream(w, level), "\n");
  return name;
}

/* A row that is not there gives NaN, of whole numbers 0: no memory outside is read. */
static int write_gather(qn_writer *w, int value, const qn_index *at)
{
  const qn_graph_value v = w->graph->value[value], *table = &w->graph->value[v.argument[0]];
  const int level = level_of(w, at, v.ndim);
  const int chosen = qn_write_value(w, v.argument[1], at), name = declare(w, level, v.dtype);
  char row[24];
  qn_text opening = {0}, *to;
  snprintf(row, sizeof row, "r%d", name);
  to = stream(w, level);
  qn_text_add(to, "const %s %s = v%d;\n", table->n > INT32_MAX ? "long" : "int", row, chosen);
  qn_index place[2] = {qn_index_variable(&w->set, row, table->shape[0]), at[v.ndim - 1]};
  const uint64_t bits = varies(w, at, v.ndim) | (w->inner ? w->set.sum[w->lane_variable].varies : 0);
  if (!w->set.failed && table->shape[0] > 1)
    w->set.atom[w->set.n_atoms - 1].varies |= bits, w->set.sum[place[0]].varies |= bits;
  qn_text_add(&opening, "if (v%d >= 0 && v%d < %lld)", chosen, chosen, (long long)table->shape[0]);
  write_branch(w, level, opening.at ? opening.at : "", name, qn_compute_type(v.dtype), v.argument[0], place);
  qn_text_add(stream(w, level), " else v%d = %s;\n", name, qn_is_real(v.dtype) ? "NAN" : "0");
  drop(w, &opening);
  return name;
}

static int write_iota(qn_writer *w, int value, const qn_index *at)
{
  const qn_graph_value v = w->graph->value[value];
  const int name = qn_new_register(w);
  qn_text expression = {0};
  qn_write_number(&expression, QN_I64, v.real, (int64_t)v.real);
  qn_text_add(&expression, " + ");
  qn_write_number(&expression, QN_I64, v.step, (int64_t)v.step);
  qn_text_add(&expression, " * long(");
  qn_index_write(&w->set, at[v.dim], w->wide, &expression);
  qn_text_add(&expression, ")");
  write_result(w, level_of(w, at, v.ndim), name, v.dtype, QN_I64, false, expression.at ? expression.at : "");
  drop(w, &expression);
  return name;
}

static int write_new(qn_writer *w, int value, const qn_index *at)
{
  const qn_graph_value *v = &w->graph->value[value];
  const int mine = qn_root_of(w, value);
  if (qn_is_memory(v) || (w->is_root[value] && mine < 0)) return write_load(w, value, at);
  if (mine >= 0 && !qn_same_places(at, w->own[mine], v->ndim)) w->misaligned = true;
  switch (v->form) {
  case QN_FORM_WORD: return write_word(w, value, at);
  case QN_FORM_CAST: return write_cast(w, value, at);
  case QN_FORM_AFFINE:
  case QN_FORM_RESHAPE: return write_view(w, value, at);
  case QN_FORM_PAD: return write_pad(w, value, at);
  case QN_FORM_CAT: return write_cat(w, value, at);
  case QN_FORM_GATHER: return write_gather(w, value, at);
  case QN_FORM_IOTA: return write_iota(w, value, at);
  case QN_FORM_REDUCE:
    if (w->cut->across && !w->misaligned && w->reduced[mine]) return qn_write_reduced(w, mine);
    break;
  case QN_FORM_SCAN: return w->misaligned ? qn_new_register(w) : qn_write_scan(w, mine);
  default: break;
  }
  w->misaligned = true; /* a reduction at another place, or before its loop */
  return qn_new_register(w);
}

int qn_write_value(qn_writer *w, int value, const qn_index *at)
{
  const qn_graph_value *v = &w->graph->value[value];
  const int n = v->ndim;
  if (w->body->unfit || w->set.failed) return 0;
  int name = recall(w, value, at, n);
  if (name >= 0) return name;
  const int level = level_of(w, at, n);
  if (qn_is_same_along(w, value, varies(w, at, n))) {
    name = qn_write_same_along(w, value, at);
    qn_memo_add(w, value, at, n, QN_LEVEL_LANE, name);
    return name;
  }
  const bool heldable = qn_is_heldable(w, value);
  name = heldable ? qn_recall_held(w, value, at, level) : -1;
  if (name >= 0) {
    qn_memo_add(w, value, at, n, QN_LEVEL_LANE, name);
    return name;
  }
  name = write_new(w, value, at);
  const bool constant = qn_is_view(v) && w->graph->value[v->argument[0]].form == QN_FORM_CONSTANT;
  const int kept = w->inner ? QN_LEVEL_LANE : constant ? QN_LEVEL_ROW : level;
  qn_memo_add(w, value, at, n, kept, name);
  if (heldable) qn_hold(w, value, at, level, name);
  return name;
}
