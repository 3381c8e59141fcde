/* SPDX-License-Identifier: Apache-2.0 */
/* emit.c - `quern emit`: an op's device kernel as one file of CUDA C, HIP C or Metal, to keep or to hand to another
 * build. Nothing is compiled here. Kernels from a body are kernel_emit.c's. */
#include "cli/kernel.h"
#include "core/core.h"
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
  qn_emit form;
} request;

static const struct argp_option options[] = {
    {"form", 'f', "cuda|hip|metal|mlx", 0, "The language; default: cuda; mlx is for a kernel's folder", 0},
    {"types", 't', "TYPES", 0, "A row of storage types, as in `quern bench`; default: the first", 0},
    {"set", 's', "NAME=VALUE", 0, "A parameter of the op; may be repeated", 0},
    {"out", 'o', "FILE", 0, "Write there; default: standard output", 0},
    {0},
};

qn_emit qn_emit_from_name(const char *name)
{
  qn_emit form = 0;
  while (form < QN_EMIT_COUNT && strcmp(name, qn_emit_name(form)) != 0) form++;
  return form;
}

qn_status qn_emit_write(const char *path, const char *text)
{
  FILE *file = path ? fopen(path, "w") : stdout;
  bool good = file && fputs(text, file) >= 0;
  good = file && (path ? fclose(file) : fflush(file)) == 0 && good;
  return good ? QN_OK
              : qn_fail(QN_IO_ERROR, "%s could not be written: %s", path ? path : "the output", strerror(errno));
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
  request *order = state->input;
  switch (key) {
  case 'f':
    order->form = qn_emit_from_name(arg);
    if (order->form == QN_EMIT_COUNT) argp_error(state, "there is no form %s: an op has cuda, hip and metal", arg);
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

static qn_status emit(const request *order, const qn_op_info *op, void *params)
{
  char *text = NULL;
  size_t row;
  qn_try(qn_op_defaults(op, params, op->params_bytes));
  for (size_t k = 0; k < order->n_settings; k++) qn_try(qn_settings_read(op, params, order->setting[k]));
  qn_try(qn_bench_row((const qn_op *)op, order->types ? order->types : "", &row));
  qn_try(qn_op_emit(op, order->form, row, params, &text));
  const qn_status status = qn_emit_write(order->out, text);
  qn_text_release(&text);
  return status;
}

static int run(int argc, char **argv)
{
  request order = {.form = QN_EMIT_CUDA};
  const qn_op_info *op;
  qn_verb_parse(&qn_verb_emit, argc, argv, &order);
  if (qn_verb_op(order.op, &op) != QN_OK) return qn_complain(&qn_verb_emit, QN_EXIT_USAGE, "%s", qn_last_error());
  void *params = calloc(1, op->params_bytes);
  if (!params) return qn_complain(&qn_verb_emit, QN_EXIT_FAILED, "no memory for %zu bytes", op->params_bytes);
  const qn_status status = emit(&order, op, params);
  free(params);
  return status == QN_OK ? QN_EXIT_OK : qn_complain_status(&qn_verb_emit, status);
}

const qn_verb qn_verb_emit = {"emit", "write a kernel as CUDA, HIP or Metal source", run, &argp};
