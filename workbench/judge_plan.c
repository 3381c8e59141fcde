/* SPDX-License-Identifier: Apache-2.0 */
/* judge_plan.c - which launches a problem is judged by: the folder's sizes and hidden ones, which are verified, and the
 * one that is timed. */
#include "workbench/judge_inner.h"
#include "core/core.h"
#include <stdio.h>
#include <string.h>

/* By level: most elements of a verified launch, hidden sizes. */
static const struct {
  uint64_t elements;
  size_t hidden;
} levels[] = {{1 << 17, 6}, {1 << 20, 16}, {1 << 24, 32}};

/* ---- verified launches ---- */
static bool is_plain(const qn_folder_size *size) { return !size->health && !size->fill; }

static void add_spec(qn_judge *j, const qn_talk_spec *spec, size_t turn)
{
  qn_planned *p = &j->planned[j->n_planned];
  uint64_t elements, bytes;
  *p = (qn_planned){.spec = *spec};
  for (size_t k = 0; k < j->folder->n_inputs; k++) {
    const qn_folder_tensor *t = &j->folder->tensor[k];
    if (t->n_dtypes) p->spec.dtype[k] = (uint8_t)t->dtype[turn % t->n_dtypes];
  }
  if (j->n_planned + 3 >= QN_TALK_SPECS || qn_spec_amount(j->folder, &p->spec, &elements, &bytes) != QN_OK) return;
  if (elements > levels[j->ask.level].elements) return;
  if (bytes > j->verify_bytes) j->verify_bytes = bytes;
  j->n_planned++;
}

static void plan_sizes(qn_judge *j)
{
  const qn_folder *f = j->folder;
  for (size_t k = 0; k < f->n_sizes; k++)
    if (!f->size[k].health) add_spec(j, &(qn_talk_spec){.base = (uint32_t)k}, k);
  const size_t shown = j->n_planned;
  for (size_t tries = 0; tries < 8 * levels[j->ask.level].hidden; tries++) {
    qn_talk_spec spec;
    qn_spec_draw(f, &j->random, &spec);
    if (j->n_planned >= shown + levels[j->ask.level].hidden) break;
    if (is_plain(&f->size[spec.base])) add_spec(j, &spec, tries);
  }
}

/* ---- the timed launch ---- */
static double most_timed_bytes(const qn_judge *j)
{
  static const double cpu[] = {1 << 20, 64 << 20, 1 << 30}, gpu[] = {256 << 20, 1L << 30, 4L << 30};
  return j->ask.device.kind == QN_CUDA ? gpu[j->ask.level] : cpu[j->ask.level];
}

/* The first workload that is not too large, else the largest size that is not. */
static qn_status plan_timed(qn_judge *j)
{
  const qn_folder *f = j->folder;
  uint64_t elements, bytes, best = 0;
  if (j->ask.workload) {
    const qn_folder_size *size;
    qn_try(qn_kernel_workload(f, j->ask.workload, &size));
    j->timed = (qn_talk_spec){.workload = true, .base = (uint32_t)(size - f->workload)};
    return qn_spec_amount(f, &j->timed, &elements, &j->timed_bytes);
  }
  for (size_t k = 0; k < f->n_workloads; k++) {
    const qn_talk_spec spec = {.workload = true, .base = (uint32_t)k};
    qn_try(qn_spec_amount(f, &spec, &elements, &bytes));
    if ((double)bytes > most_timed_bytes(j)) continue;
    j->timed = spec;
    j->timed_bytes = bytes;
    return QN_OK;
  }
  for (size_t k = 0; k < f->n_sizes; k++) {
    const qn_talk_spec spec = {.base = (uint32_t)k};
    if (!is_plain(&f->size[k]) || qn_spec_amount(f, &spec, &elements, &bytes) != QN_OK) continue;
    if (best && (bytes < best || (double)bytes > most_timed_bytes(j))) continue;
    best = bytes;
    j->timed = spec;
  }
  j->timed_bytes = best;
  return best ? QN_OK : qn_fail(QN_BAD_ARGUMENT, "kernel %s has no size that can be timed", f->name);
}

/* ---- all ---- */
qn_status qn_judge_plan(qn_judge *j)
{
  const uint64_t guard = QN_GUARD, shift = 256 * QN_GUARD;
  plan_sizes(j);
  if (!j->n_planned)
    return qn_fail(QN_BAD_ARGUMENT, "kernel %s has no size with at most %llu elements, which level %s verifies",
                   j->folder->name, (unsigned long long)levels[j->ask.level].elements, qn_judge_levels[j->ask.level]);
  qn_try(plan_timed(j));
  uint64_t most = 0, least = UINT64_MAX;
  for (size_t k = 0; k < j->n_planned; k++) {
    uint64_t elements = 0, bytes;
    if (j->planned[k].spec.drawn || !is_plain(&j->folder->size[j->planned[k].spec.base])) continue;
    qn_try(qn_spec_amount(j->folder, &j->planned[k].spec, &elements, &bytes));
    if (elements > most && elements <= 1 << 16) most = elements, j->proved = k;
    if (elements < least && elements >= 64) least = elements, j->inspected = k;
  }
  j->timed_room = (j->timed_bytes + guard - 1) / guard * guard + shift;
  j->verify_offset = QN_TIMED_SLOTS * j->timed_room;
  j->arena_bytes = j->verify_offset + 2 * (j->verify_bytes + guard) + 2 * shift;
  return QN_OK;
}
