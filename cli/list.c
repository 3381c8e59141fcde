/* SPDX-License-Identifier: Apache-2.0 */
/* list.c - `quern list`: ops, their variants on each backend, which would run here and why; with --verbose the types
 * and parameters too. Everything comes from the ops' descriptions. --json is what CI compares the tests that ran
 * against. */
#include "cli/kernel.h"
#include "cli/list.h"
#include "workbench/op_check.h"
#include "workbench/term.h"
#include "workbench/record_inner.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct request {
  const char *op, *backend;
  bool verbose, json;
  qn_device device; /* the one whose choices are told */
} order;

static QN_READER(read_backend)
{
  order *o = to;
  if (qn_verb_device_name(text, &o->device) != QN_OK) argp_error(state, "%s", qn_last_error());
  o->backend = qn_device_kind_name(o->device.kind);
}

static const qn_verb_option options[] = {
    {"backend", 'b', "cpu|cuda|emulator", "Only the variants of this backend", 0, .read = read_backend},
    {"verbose", 'v', NULL, "Also types, parameters and launch shapes", 0, QN_TO_FLAG(verbose)},
    {"json", 0, NULL, "Print everything as JSON", 0, QN_TO_FLAG(json)},
    {0},
};

static bool wanted(const order *o, const qn_variant *variant)
{
  return !o->backend || !strcmp(o->backend, variant->backend);
}

/* ---- for people ---- */
/* A sentence about the machine is told once, whatever the number of ops. */
static const char *told(const char *why, char *shown, size_t bytes)
{
  static char longest[sizeof((qn_variant *)0)->why];
  snprintf(shown, bytes, "%s", why);
  if (!strcmp(why, longest)) snprintf(shown, bytes, "%.*s, as above", (int)strcspn(why, ":"), why);
  if (strlen(why) > strlen(longest)) snprintf(longest, sizeof longest, "%s", why);
  return shown;
}

/* Neighbours of one backend and one reason are one row; `v` is the first, `end` the name of the last. */
static void print_variant(const qn_variant *v, const char *end, const char *why)
{
  const bool plain = v->available && !v->chosen;
  char name[40];
  snprintf(name, sizeof name, strcmp(v->name, end) ? "%s to %s" : "%s", v->name, end);
  printf("  %s%s %-8s  %-15s  %-13s  ", plain ? "" : qn_term_colour(stdout, v->chosen ? QN_GREEN : QN_DIM),
         v->chosen ? ">" : " ", v->backend, name, v->state);
  qn_term_wrap(stdout, 45, why);
  printf("%s", plain ? "" : qn_term_colour(stdout, QN_PLAIN));
}

static void print_variants(const order *o, const qn_op_info *op)
{
  qn_variant v = {.size = sizeof v}, next = v;
  char last[sizeof v.why] = "", shown[sizeof v.why];
  const char *end;
  const size_t n = qn_op_variant_count(op);
  printf("  %s  backend   variant          state          why%s\n", qn_term_colour(stdout, QN_DIM),
         qn_term_colour(stdout, QN_PLAIN));
  for (size_t k = 0; k < n; k++) {
    if (qn_op_variant_at(op, k, &v) != QN_OK || !wanted(o, &v)) continue;
    end = v.name;
    for (; !v.available && k + 1 < n && qn_op_variant_at(op, k + 1, &next) == QN_OK; k++) {
      if (strcmp(next.backend, v.backend) || strcmp(next.state, v.state) || strcmp(next.why, v.why)) break;
      end = next.name;
    }
    print_variant(&v, end, strcmp(v.why, last) ? told(v.why, shown, sizeof shown) : "as above");
    memcpy(last, v.why, sizeof last);
  }
}

static const char *access_word(const qn_op_info *op, size_t row, size_t role)
{
  const qn_access access = op->types[row].tensor[role].access;
  if (op->tensors[role].written_where) return "read or written";
  return access == QN_READ ? "read" : access == QN_WRITE ? "written" : access == QN_READ_WRITE ? "updated" : "-";
}

static size_t row_bytes(const qn_op_info *op, const qn_op_types *row)
{
  size_t bytes = 0;
  for (size_t t = 0; t < op->n_tensors; t++) {
    int passes = !!(row->tensor[t].access & QN_READ) + !!(row->tensor[t].access & QN_WRITE);
    if (op->tensors[t].written_where) passes = 1;
    bytes += (size_t)passes * qn_dtype_bytes(row->tensor[t].dtype);
  }
  return bytes;
}

/* Has every role an element for each of the first role's? */
static bool has_like_roles(const qn_op_info *op)
{
  for (size_t t = 0; t < op->n_tensors; t++)
    if (op->tensors[t].shape) return false;
  return true;
}

static void print_types(const qn_op_info *op)
{
  const bool alike = has_like_roles(op);
  printf("\n  tensors\n");
  for (size_t t = 0; t < op->n_tensors; t++) printf("    %-10s %s\n", op->tensors[t].name, op->tensors[t].doc);
  printf("\n  types%s\n   ", alike ? ", and bytes per element" : "");
  for (size_t t = 0; t < op->n_tensors; t++) printf(" %-22s", op->tensors[t].name);
  printf("%s\n", alike ? " bytes" : "");
  for (size_t r = 0; r < op->n_types; r++) {
    printf("   ");
    for (size_t t = 0; t < op->n_tensors; t++) {
      qn_access access = op->types[r].tensor[t].access;
      printf(" %-6s %-15s", access ? qn_dtype_name(op->types[r].tensor[t].dtype) : "-",
             access ? access_word(op, r, t) : "");
    }
    if (alike) printf(" %5zu", row_bytes(op, &op->types[r]));
    printf("\n");
  }
}

static const char *type_word(qn_param_type type)
{
  switch (type) {
  case QN_PARAM_DOUBLE: return "double";
  case QN_PARAM_U64: return "u64";
  case QN_PARAM_BOOL: return "0 or 1";
  case QN_PARAM_ENUM: return "enum";
  case QN_PARAM_DEVICE_F32: return "device f32";
  case QN_PARAM_DEVICE_I64: return "device i64[]";
  case QN_PARAM_DEVICE_HYPER: return "device struct";
  case QN_PARAM_HOST_U64: return "host u64[]";
  case QN_PARAM_HOST_F64: return "host f64[]";
  case QN_PARAM_DEVICE_F32S: return "device f32[]";
  case QN_PARAM_HOST_STRUCT: return "host struct";
  }
  return "?";
}

/* "[0, 1)" of a double, "a|b" of an enum, "" where any value will do. */
static void range_text(const qn_op_param *param, char *text, size_t bytes)
{
  text[0] = 0;
  if (param->type == QN_PARAM_ENUM) snprintf(text, bytes, "%s", param->values);
  if (param->type != QN_PARAM_DOUBLE || (isinf(param->least) && isinf(param->most))) return;
  if (isinf(param->most))
    snprintf(text, bytes, "at least %g", param->least);
  else
    snprintf(text, bytes, "[%g, %g%c", param->least, param->most, param->below_most ? ')' : ']');
}

static bool is_pointer(const qn_op_param *param) { return param->type >= QN_PARAM_DEVICE_F32; }

static void default_text(const qn_op_info *op, const qn_op_param *param, char *text, size_t bytes)
{
  const double number = qn_op_param_default(op, param);
  snprintf(text, bytes, "%g", number);
  if (is_pointer(param)) snprintf(text, bytes, "NULL");
  if (param->type != QN_PARAM_ENUM) return;
  const char *value = param->values;
  for (int k = (int)number; k > 0 && strchr(value, '|'); k--) value = strchr(value, '|') + 1;
  snprintf(text, bytes, "%.*s", (int)strcspn(value, "|"), value);
}

static void print_params(const qn_op_info *op)
{
  printf("\n  parameters\n");
  for (size_t k = 0; k < op->n_params; k++) {
    char range[96], value[32];
    range_text(&op->params[k], range, sizeof range);
    default_text(op, &op->params[k], value, sizeof value);
    printf("    %-17s %-13s default %s%s%s\n    %-17s ", op->params[k].name, type_word(op->params[k].type), value,
           *range ? ", " : "", range, "");
    qn_term_wrap(stdout, 22, op->params[k].doc);
  }
}

static void print_op(const order *o, const qn_op_info *op)
{
  printf("%s%s%s - %s\n", qn_term_colour(stdout, QN_BOLD), op->name, qn_term_colour(stdout, QN_PLAIN), op->brief);
  print_variants(o, op);
  if (o->op || o->verbose) qn_list_print_launch_shape(qn_op_of(op), o->device);
  if (!o->verbose) return;
  print_types(op);
  print_params(op);
}

/* ---- for tools ---- */
static json_t *variants_json(const order *o, const qn_op_info *op)
{
  json_t *list = json_array();
  for (size_t k = 0; k < qn_op_variant_count(op); k++) {
    qn_variant v = {.size = sizeof v};
    if (qn_op_variant_at(op, k, &v) != QN_OK || !wanted(o, &v)) continue;
    json_array_append_new(list,
                          json_pack("{s:s, s:s, s:s, s:b, s:b, s:s}", "backend", v.backend, "name", v.name, "state",
                                    v.state, "available", v.available, "chosen", v.chosen, "why", v.why));
  }
  return list;
}

static json_t *types_json(const qn_op_info *op)
{
  json_t *list = json_array();
  for (size_t r = 0; r < op->n_types; r++) {
    json_t *row = json_object();
    for (size_t t = 0; t < op->n_tensors; t++) {
      if (!op->types[r].tensor[t].access) continue;
      json_object_set_new(row, op->tensors[t].name,
                          json_pack("{s:s, s:s}", "dtype", qn_dtype_name(op->types[r].tensor[t].dtype), "access",
                                    access_word(op, r, t)));
    }
    json_array_append_new(list,
                          json_pack("{s:o, s:I}", "tensors", row, "bytes", (json_int_t)row_bytes(op, &op->types[r])));
  }
  return list;
}

static json_t *params_json(const qn_op_info *op)
{
  json_t *list = json_array();
  for (size_t k = 0; k < op->n_params; k++) {
    const qn_op_param *p = &op->params[k];
    char value[32];
    default_text(op, p, value, sizeof value);
    json_t *param =
        json_pack("{s:s, s:s, s:s, s:s}", "name", p->name, "type", type_word(p->type), "default", value, "doc", p->doc);
    if (p->type == QN_PARAM_DOUBLE && !isinf(p->least)) json_object_set_new(param, "least", json_real(p->least));
    if (p->type == QN_PARAM_DOUBLE && !isinf(p->most))
      json_object_set_new(param, p->below_most ? "below" : "most", json_real(p->most));
    if (p->type == QN_PARAM_ENUM) json_object_set_new(param, "values", json_string(p->values));
    json_array_append_new(list, param);
  }
  return list;
}

/* Names of the op's own workloads; NULL: it runs over lists. */
static json_t *workloads_json(const qn_op *op)
{
  const qn_check_text *own = qn_op_check_of(op)->workloads;
  json_t *names = own ? json_array() : NULL;
  for (const qn_check_text *w = own; w && w->name; w++) json_array_append_new(names, json_string(w->name));
  return names;
}

static json_t *op_json(const order *o, const qn_op_info *op)
{
  json_t *tensors = json_array();
  for (size_t t = 0; t < op->n_tensors; t++)
    json_array_append_new(tensors,
                          json_pack("{s:s, s:s, s:s?, s:b}", "name", op->tensors[t].name, "doc", op->tensors[t].doc,
                                    "shape", op->tensors[t].shape, "single", op->tensors[t].single));
  return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o*, s:o*}", "name", op->name, "brief", op->brief, "variants",
                   variants_json(o, op), "tensors", tensors, "types", types_json(op), "params", params_json(op),
                   "launch", qn_list_launch_shape_json(qn_op_of(op), o->device), "workloads",
                   workloads_json(qn_op_of(op)));
}

static int run(int argc, char **argv)
{
  order o = {0};
  qn_verb_parse(&qn_verb_list, argc, argv, &o);
  const qn_op_info *only = NULL;
  if (o.op && qn_verb_op(o.op, &only) != QN_OK) return qn_complain(&qn_verb_list, QN_EXIT_USAGE, "%s", qn_last_error());
  if (!o.backend) o.device = qn_list_device();

  json_t *ops = json_array();
  for (size_t k = 0; k < qn_op_count(); k++) {
    const qn_op_info *op = qn_op_at(k);
    if (only && op != only) continue;
    if (o.json)
      json_array_append_new(ops, op_json(&o, op));
    else
      print_op(&o, op);
  }
  if (o.json) {
    json_t *all = json_pack("{s:s, s:O, s:o*}", "version", qn_version(), "ops", ops, "kernels",
                            only ? NULL : qn_list_shipped(false));
    qn_json_print(stdout, all, JSON_INDENT(2));
  }
  json_decref(ops);
  if (!o.json && !only) {
    printf("kernels from a body; `quern kernel new DIR --from NAME` copies one\n");
    json_decref(qn_list_shipped(true));
  }
  return QN_EXIT_OK;
}

const qn_verb qn_verb_list = {
    .name = "list",
    .brief = "list ops, variants and kernels: which would run here",
    .run = run,
    .options = options,
    .argument = {QN_TO_ONE(op)},
    .args_doc = "[OP|DIR]",
    .doc = "List ops and their variants on each backend: which would run here, and why; the kernels from a body that "
           "ship; or the contract of the kernel in the folder DIR.\v"
           "The state of a variant:\n"
           "  runs           it runs and is checked on this machine\n"
           "  compiled only  it is compiled; this machine lacks its device\n"
           "  emitted only   its source exists; nothing here compiles it\n"
           "A call on a backend uses the variant marked with >.\n"
           "With an OP: the launch shape of each tensor shape, its source, and the names that QUERN_LAUNCH_SHAPE (for "
           "products QUERN_GEMM) accepts.",
};
