/* SPDX-License-Identifier: Apache-2.0 */
/* leg_large.c - the parts of leg 1 that need size: 2^24 elements of odd values, so that rare ones meet, and one tensor
 * of more than 2^31 elements, so that an index of 32 bits shows. */
#include "workbench/check.h"
#include "core/core.h"
#include "workbench/subject_stage.h"
#include <stdio.h>
#include <string.h>

/* ---- 2^24 elements ---- */

/* Every enum of the op at its last value: what is not the default way. */
static void last_values(const qn_op_info *op, qn_setting *s)
{
  for (size_t k = 0; k < op->n_params; k++) {
    const qn_op_param *param = &op->params[k];
    if (param->type == QN_PARAM_ENUM) qn_param_set(param, s->params, qn_param_most(param));
  }
}

static size_t bytes_of(const qn_op *op, size_t row) { return (size_t)qn_element_bytes_of(op, row).set; }

static qn_status compare_piece(qn_trial *trial, size_t row, const qn_setting *setting, size_t n, size_t number)
{
  const qn_target *target = &trial->item->target;
  char text[96], wrong[QN_SUBJECT_WRONG];
  snprintf(text, sizeof text, "%zu %zu " QN_SUBJECT_ODD, n / 2, n - n / 2);
  qn_subject_order order = {.op = target->op,
                            .row = row,
                            .device = target->device,
                            .pool = qn_trial_pool(trial, 2),
                            .text = text,
                            .setting = setting,
                            .alignment = number % 2 ? QN_ALIGN_16 : QN_ALIGN_64,
                            .seed = qn_seed_mix(trial->options->seed, number)};
  qn_subject got, want = {.op = NULL};
  qn_status status = qn_subject_open(&got, &order);
  if (status == QN_OK) status = qn_subject_open(&want, qn_subject_reference_order(&order, &got));
  if (status == QN_OK) status = qn_target_select(target);
  if (status == QN_OK) status = qn_subject_step(&got);
  if (status == QN_OK) status = qn_subject_step(&want);
  if (status == QN_OK && !qn_subject_agree(&got, &want, wrong, sizeof wrong))
    qn_trial_fail(trial, (long)number, "case %zu: row %zu, two tensors of %zu elements\n%s", number, row, n / 2, wrong);
  trial->elements += n;
  qn_subject_close(&got);
  qn_subject_close(&want);
  return status;
}

/* In pieces, as nothing but the number of elements matters here. The first row with the defaults has them all; the last
 * row with everything else on a quarter of them. Then, on a processor, a piece of each row that is long enough to be
 * written past the caches (op/list.c). The reference beside itself would show nothing rare: a piece is enough for how
 * it is called. */
void qn_leg_large(qn_trial *trial)
{
  enum { PIECES = 8, PIECE = 1 << 21, STREAMED_BYTES = 3 << 23 };
  const qn_target *target = &trial->item->target;
  const qn_op_info *op = &target->op->info;
  qn_setting setting = {.given = 0};
  if (qn_op_defaults(op, setting.params, op->params_bytes) != QN_OK) qn_trial_fail(trial, -1, "%s", qn_last_error());
  const bool on_cpu = target->device.kind == QN_CPU;
  const bool few = trial->options->level == QN_QUICK || (on_cpu && !strcmp(target->variant, "ref"));
  const size_t first = few ? 1 : PIECES, last = first + (first + 3) / 4;
  const size_t pieces = last + (on_cpu && !few ? qn_op_rows(op, QN_CPU) : 0);
  for (size_t k = 0; k < pieces; k++) {
    if (k == first) last_values(op, &setting);
    const size_t row = k < first ? 0 : k < last ? qn_op_rows(op, QN_CUDA) - 1 : k - last;
    const size_t streamed = k < last ? 0 : STREAMED_BYTES / bytes_of(target->op, row);
    if (qn_trial_takes(trial, k) && compare_piece(trial, row, &setting, streamed > PIECE ? streamed : PIECE, k))
      qn_trial_fail(trial, (long)k, "%s", qn_last_error());
  }
  qn_trial_note(trial, "%llu elements of odd values", (unsigned long long)trial->elements);
}

/* ---- past 2^31 elements ---- */

/* A prime, so that the numbers repeat at no place that an index error could hit by chance. */
enum { PERIOD = 4194301, EDGE = 64, EDGE_BYTE = 0x3E };

typedef struct huge {
  qn_trial *trial;
  const qn_op_info *op;
  size_t row, n;
  qn_device device;
  qn_setting setting;
  qn_subject one; /* a single period, stepped by the reference: what must come out, again and again */
  unsigned char *memory[QN_MAX_TENSORS], *host;
} huge;

static qn_status reference_period(huge *h)
{
  char text[64];
  snprintf(text, sizeof text, "%d filled params=-1", PERIOD);
  qn_try(qn_subject_open(&h->one, &(qn_subject_order){.op = h->trial->item->target.op,
                                                      .row = h->row,
                                                      .device = {QN_CPU, 0},
                                                      .text = text,
                                                      .setting = &h->setting,
                                                      .way = QN_WAY_REFERENCE,
                                                      .seed = h->trial->options->seed}));
  return qn_subject_step(&h->one);
}

/* One period from the host, then copies of what is there already, doubling; guard bytes at both ends. */
static qn_status fill_role(huge *h, size_t r)
{
  size_t width = qn_dtype_bytes(h->one.role[r].dtype), bytes = h->n * width, have = PERIOD * width;
  void *memory = NULL;
  qn_try(qn_memory_allocate(h->device, bytes + 2 * EDGE, &memory));
  h->memory[r] = memory;
  qn_try(qn_memory_fill(h->device, NULL, h->memory[r], EDGE_BYTE, EDGE));
  qn_try(qn_memory_fill(h->device, NULL, h->memory[r] + EDGE + bytes, EDGE_BYTE, EDGE));
  unsigned char *data = h->memory[r] + EDGE;
  qn_try(qn_memory_write(h->device, NULL, data, h->one.role[r].before + h->one.role[r].place[0].offset, have));
  for (; have < bytes; have *= 2)
    qn_try(qn_memory_copy(h->device, NULL, data + have, data, have < bytes - have ? have : bytes - have));
  return qn_stream_synchronize(h->device, NULL);
}

static qn_status step(huge *h)
{
  int64_t shape = (int64_t)h->n;
  qn_tensor tensor[QN_MAX_TENSORS];
  const qn_tensor *list[QN_MAX_TENSORS] = {0};
  for (size_t r = 0; r < h->op->n_tensors; r++) {
    if (!h->memory[r]) continue;
    tensor[r] = (qn_tensor){h->memory[r] + EDGE, h->one.role[r].dtype, 1, &shape, NULL, h->device};
    list[r] = &tensor[r];
  }
  qn_exec exec = {.size = sizeof exec, .device = h->device, .pool = qn_trial_pool(h->trial, 2)};
  qn_try(qn_target_select(&h->trial->item->target));
  qn_try(qn_op_step(h->op, &exec, h->setting.params, 1, list));
  return qn_stream_synchronize(h->device, NULL);
}

static qn_status compare_role(huge *h, size_t r)
{
  size_t width = qn_dtype_bytes(h->one.role[r].dtype);
  for (size_t at = 0; at < h->n && !h->trial->failure; at += PERIOD) {
    size_t n = h->n - at < PERIOD ? h->n - at : PERIOD;
    qn_try(qn_memory_read(h->device, NULL, h->host, h->memory[r] + EDGE + at * width, n * width));
    const unsigned char *want = h->one.role[r].after + h->one.role[r].place[0].offset;
    size_t i = 0;
    if (!memcmp(h->host, want, n * width)) continue;
    while (!memcmp(h->host + i * width, want + i * width, width)) i++;
    qn_trial_fail(h->trial, 0, "%s element %zu of %zu: got 0x%llx, must be 0x%llx", h->op->tensors[r].name, at + i,
                  h->n, (unsigned long long)qn_number_bits(h->one.role[r].dtype, h->host + i * width),
                  (unsigned long long)qn_number_bits(h->one.role[r].dtype, want + i * width));
  }
  for (int end = 0; end < 2; end++) {
    qn_try(qn_memory_read(h->device, NULL, h->host, h->memory[r] + (end ? EDGE + h->n * width : 0), EDGE));
    for (size_t i = 0; i < EDGE; i++)
      if (h->host[i] != EDGE_BYTE)
        qn_trial_fail(h->trial, 0, "%s of %zu elements: byte %zu %s it was written", h->op->tensors[r].name, h->n, i,
                      end ? "behind" : "before");
  }
  h->trial->elements += h->n;
  return QN_OK;
}

static qn_status run_huge(huge *h)
{
  qn_try(qn_try_allocate(&h->host, (size_t)PERIOD * 8, "the checker's copy of a period"));
  qn_try(reference_period(h));
  for (size_t r = 0; r < h->op->n_tensors; r++)
    if (h->one.role[r].access) qn_try(fill_role(h, r));
  qn_try(step(h));
  for (size_t r = 0; r < h->op->n_tensors; r++)
    if (h->one.role[r].access) qn_try(compare_role(h, r));
  return QN_OK;
}

/* The row with the fewest bytes an element; on the processor three times the memory must be free and --full asked for,
 * as it takes minutes. */
void qn_leg_huge(qn_trial *trial)
{
  const qn_target *target = &trial->item->target;
  huge h = {.trial = trial, .op = &target->op->info, .n = ((size_t)1 << 31) + 37, .device = target->device};
  for (size_t row = 1; row < qn_op_rows(h.op, QN_CUDA); row++)
    if (bytes_of(target->op, row) < bytes_of(target->op, h.row)) h.row = row;
  double needed = (double)h.n * (double)bytes_of(target->op, h.row) * (target->device.kind == QN_CUDA ? 1.05 : 3);
  qn_device_info info = {.size = sizeof info};
  if (qn_device_query(target->device, &info) != QN_OK || qn_op_defaults(h.op, h.setting.params, h.op->params_bytes)) {
    qn_trial_fail(trial, -1, "%s", qn_last_error());
    return;
  }
  if ((double)info.free_bytes < needed) {
    qn_trial_skip(trial, "2^31 elements need %.1f GB of free memory here, and there are %.1f", needed * 1e-9,
                  (double)info.free_bytes * 1e-9);
    return;
  }
  if (target->device.kind != QN_CUDA && trial->options->level < QN_FULL) {
    qn_trial_skip(trial, "2^31 elements take minutes on a processor: --full runs them");
    return;
  }
  if (qn_trial_takes(trial, 0) && run_huge(&h) != QN_OK) qn_trial_fail(trial, 0, "%s", qn_last_error());
  for (size_t r = 0; r < QN_MAX_TENSORS; r++)
    if (h.memory[r]) qn_memory_release(h.device, h.memory[r]);
  qn_subject_close(&h.one);
  qn_release(h.host);
  qn_trial_note(trial, "row %zu, %zu elements", h.row, h.n);
}
