/* SPDX-License-Identifier: Apache-2.0 */
/* emit.c - `quern emit`: an op's device kernel as one file of CUDA C, HIP C or Metal, to keep or to hand to another
 * build. Nothing is compiled here. Kernels from a body are kernel_emit.c's. */
#include "cli/kernel.h"
#include "workbench/bench.h"
#include "workbench/settings.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SETTINGS = 32 };

typedef struct request {
  const char *op, *types, *out, *setting[MOST_SETTINGS];
  size_t n_settings;
  int form;
} request;

static const struct argp_option options[] = {
    {"form", 'f', "cuda|hip|metal|mlx", 0, "The language; default: cuda; mlx is for a kernel's folder", 0},
    {"types", 't', "TYPES", 0, "A row of storage types, as in `quern bench`; default: the first", 0},
    {"set", 's', "NAME=VALUE", 0, "A parameter of the op; may be repeated", 0},
    {"out", 'o', "FILE", 0, "Write there; default: standard output", 0},
    {0},
};

static int form_from_name(const char *name)
{
  for (int form = 0; form < QN_EMIT_COUNT; form++)
    if (!strcmp(name, qn_emit_name((qn_emit)form))) return form;
  return -1;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
  request *order = state->input;
  switch (key) {
  case 'f':
    order->form = form_from_name(arg);
    if (order->form < 0) argp_error(state, "there is no form %s: an op has cuda, hip and metal", arg);
    return 0;
  case 't': order->types = arg; return 0;
  case 's':
    if (order->n_settings == MOST_SETTINGS) argp_error(state, "more than %d settings", MOST_SETTINGS);
    order->setting[order->n_settings++] = arg;
    return 0;
  case 'o': order->out = qn_verb_output(state, arg); return 0;
  case ARGP_KEY_ARG:
    if (order->op) argp_error(state, "one at a time: %s or %s", order->op, arg);
    order->op = arg;
    return 0;
  case ARGP_KEY_NO_ARGS: argp_error(state, "which op or folder? `quern list` has the ops"); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .children = qn_folder_children[QN_FOLDER_EMIT],
    .args_doc = "OP|DIR",
    .doc =
        "Write the device kernel of an op, or of the folder DIR, as one file of CUDA C, HIP C or Metal, or as an MLX "
        "call.\v"
        "An op's file is specialised for one row of storage types (`quern list OP --verbose`) and for the "
        "parameters. Its first comment explains how to compile and call it.",
};

static int write_text(const request *order, const char *text)
{
  FILE *file = order->out ? fopen(order->out, "w") : stdout;
  bool good = file && fputs(text, file) >= 0;
  good = file && (order->out ? fclose(file) : fflush(file)) == 0 && good;
  if (!good)
    return qn_complain(&qn_verb_emit, QN_EXIT_FAILED, "%s could not be written: %s",
                       order->out ? order->out : "the output", strerror(errno));
  return QN_EXIT_OK;
}

static int emit(const request *order, const qn_op_info *op, void *params)
{
  char *text = NULL;
  size_t row;
  qn_status status = qn_op_defaults(op, params, op->params_bytes);
  for (size_t k = 0; status == QN_OK && k < order->n_settings; k++)
    status = qn_settings_read(op, params, order->setting[k]);
  if (status != QN_OK) return qn_complain_status(&qn_verb_emit, status);
  status = qn_bench_row((const qn_op *)op, order->types ? order->types : "", &row);
  if (status != QN_OK) return qn_complain_status(&qn_verb_emit, status);
  status = qn_op_emit(op, (qn_emit)order->form, row, params, &text);
  if (status != QN_OK) return qn_complain_status(&qn_verb_emit, status);
  const int result = write_text(order, text);
  qn_text_release(&text);
  return result;
}

static int run(int argc, char **argv)
{
  request order = {.form = QN_EMIT_CUDA};
  const qn_op_info *op;
  qn_verb_parse(&qn_verb_emit, argc, argv, &order);
  if (qn_verb_op(order.op, &op) != QN_OK) return qn_complain(&qn_verb_emit, QN_EXIT_USAGE, "%s", qn_last_error());
  void *params = calloc(1, op->params_bytes);
  if (!params) return qn_complain(&qn_verb_emit, QN_EXIT_FAILED, "no memory for %zu bytes", op->params_bytes);
  const int result = emit(&order, op, params);
  free(params);
  return result;
}

const qn_verb qn_verb_emit = {"emit", "write a kernel as CUDA, HIP or Metal source", run, &argp};
