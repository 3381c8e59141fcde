/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_emit.c - `quern emit` of a kernel's folder: a kernel's source for other builds. The library writes it. */
#include "cli/kernel.h"
#include "core/core.h"
#include "workbench/kernel_mlx.h"
#include <stdio.h>
#include <string.h>

static bool chose_size(const qn_kernel_order *o) { return o->size || o->workload || o->n_set; }

/* A program with the numbers of one call: those of the folder's first size, which is there for its oddity, are of no
 * use to anybody. */
static qn_status want_size(const qn_kernel_session *s)
{
  qn_text names = {0};
  if (chose_size(s->order) || s->folder->n_sizes < 2) return QN_OK;
  for (size_t k = 0; k < s->folder->n_workloads; k++)
    qn_text_add(&names, ", --workload %s", s->folder->workload[k].name);
  const qn_status status =
      qn_fail(QN_BAD_ARGUMENT,
              "kernel %s has shapes of outputs or dynamic memory in its source, so its MLX program is for one size: "
              "--size 1 to %zu%s, or --set %s=N",
              s->folder->name, s->folder->n_sizes, names.at && !names.failed ? names.at : "",
              s->folder->size[0].n ? s->folder->size[0].value[0].name : "NAME");
  qn_text_free(&names);
  return status;
}

static qn_status make_mlx(const qn_kernel_session *s, const qn_kernel_case *c, const qn_kernel_case_order *order,
                          char **text)
{
  qn_mlx_words python;
  if (!qn_mlx_words_serves(c)) {
    qn_try(want_size(s));
    return qn_kernel_emit(c->kernel, QN_EMIT_MLX, &c->call, text);
  }
  qn_status status = qn_mlx_words_make(&python, c, order);
  if (status == QN_OK) status = qn_kernel_emit_mlx(c->kernel, &c->call, &python.words, text);
  qn_mlx_words_free(&python);
  return status;
}

static qn_status emit(qn_kernel_session *s, bool *bad)
{
  const qn_folder_size *size;
  qn_kernel_case_order order;
  char *text = NULL;
  const qn_emit form = s->order->form ? qn_emit_from_name(s->order->form) : QN_EMIT_CUDA;
  (void)bad;
  qn_try(qn_kernel_size_of(s, &size));
  qn_try(qn_kernel_case_of(s, size, &order));
  order.device = (qn_device){QN_CPU, 0}; /* nothing runs */
  qn_try(qn_kernel_case_create(&s->c, &order));
  qn_try(form == QN_EMIT_MLX ? make_mlx(s, s->c, &order, &text)
                             : qn_kernel_emit(s->c->kernel, form, &s->c->call, &text));
  const qn_status status = qn_emit_write(s->order->out, text);
  qn_text_release(&text);
  return status;
}

int qn_action_emit(const qn_kernel_order *order) { return qn_kernel_act(order, emit); }
