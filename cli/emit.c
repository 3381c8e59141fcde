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

typedef struct order {
  const char *op, *types, *out;
  QN_WORD_LIST(MOST_SETTINGS) settings;
  qn_emit form;
} order;

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

static QN_READER(read_form)
{
  const qn_emit form = *(qn_emit *)to = qn_emit_from_name(text);
  if (form == QN_EMIT_COUNT) argp_error(state, "there is no form %s: an op has cuda, hip and metal", text);
}

static void check_given(const struct argp_state *state, void *input)
{
  const order *o = input;
  if (!o->op) argp_error(state, "which op or folder? `quern list` has the ops");
}

static const qn_verb_option options[] = {
    {"form", 'f', "cuda|hip|metal|mlx", "The language; default: cuda; mlx is for a kernel's folder", 0,
     QN_READ(read_form, form)},
    {"types", 't', "TYPES", "A row of storage types, as in `quern bench`; default: the first", 0, QN_TO_WORD(types)},
    {"set", 's', "NAME=VALUE", "A parameter of the op; may be repeated", 0, QN_TO_WORDS(settings, MOST_SETTINGS)},
    {"out", 'o', "FILE", "Write there; default: standard output", 0, QN_TO_OUTPUT(out)},
    {0},
};

static qn_status emit(const order *o, const qn_op_info *op, void *params)
{
  char *text = NULL;
  size_t row;
  qn_try(qn_op_defaults(op, params, op->params_bytes));
  for (size_t k = 0; k < o->settings.n; k++) qn_try(qn_settings_read(op, params, o->settings.at[k]));
  qn_try(qn_bench_row((const qn_op *)op, o->types ? o->types : "", &row));
  qn_try(qn_op_emit(op, o->form, row, params, &text));
  const qn_status status = qn_emit_write(o->out, text);
  qn_text_release(&text);
  return status;
}

static int run(int argc, char **argv)
{
  order o = {.form = QN_EMIT_CUDA};
  const qn_op_info *op;
  qn_verb_parse(&qn_verb_emit, argc, argv, &o);
  if (qn_verb_op(o.op, &op) != QN_OK) return qn_complain(&qn_verb_emit, QN_EXIT_USAGE, "%s", qn_last_error());
  void *params = calloc(1, op->params_bytes);
  if (!params) return qn_complain(&qn_verb_emit, QN_EXIT_FAILED, "no memory for %zu bytes", op->params_bytes);
  const qn_status status = emit(&o, op, params);
  free(params);
  return status == QN_OK ? QN_EXIT_OK : qn_complain_status(&qn_verb_emit, status);
}

const qn_verb qn_verb_emit = {
    .name = "emit",
    .brief = "write a kernel as CUDA, HIP or Metal source",
    .run = run,
    .options = options,
    .folder_options = qn_folder_options[QN_FOLDER_EMIT],
    .argument = {QN_TO_ONE(op)},
    .end = check_given,
    .args_doc = "OP|DIR",
    .doc =
        "Write the device kernel of an op, or of the folder DIR, as one file of CUDA C, HIP C or Metal, or as an MLX "
        "call.\v"
        "An op's file is specialised for one row of storage types (`quern list OP --verbose`) and for the "
        "parameters. Its first comment explains how to compile and call it.",
};
