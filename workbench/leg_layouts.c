/* SPDX-License-Identifier: Apache-2.0 */
/* leg_layouts.c - the part of leg 1 about tensors that are not dense, of ops that take such: every arrangement, on the
 * processor at every alignment, on devices under launch geometries that are forced by name and read back. What is
 * between rows and columns must stay as it is. Below --full each geometry has its turn once, under one arrangement and
 * row of types; there each under all. A geometry is a compilation, which the emulator takes half a second for:
 * there the ops share them out, a seed has a third of them, three seeds in a row have all, and --quick has few. */
#include "workbench/check.h"
#include "core/core.h"
#include "op/launch_shape.h"
#include "op/call.h"
#include "workbench/subject.h"
#include <string.h>

enum { GEOMETRIES = 90, TURNS = GEOMETRIES / QN_LAUNCH_KINDS, N_POOLS = 3 };

typedef struct layout_case {
  size_t number, kind;
  int alignment, threads;
  qn_way way;
  const char *geometry; /* NULL: not forced */
} layout_case;

typedef struct run {
  qn_trial *trial;
  qn_setting *settings;
  size_t n_settings, number;
} run;

static qn_level level_of(const run *r) { return r->trial->options->level; }

/* ---- one case ---- */

/* The geometry that was forced ran: flat only where tensors are dense, else tiles in its place. */
static bool took(const layout_case *c)
{
  const char *ran = qn_op_last_variant(), *want = c->geometry;
  if (!want || !strncmp(ran, want, strlen(want))) return true;
  const size_t flat = strlen("flat"), tiles = strlen("tiles");
  return c->kind != QN_ARRANGEMENT_DENSE && !strncmp(want, "flat", flat) && !strncmp(ran, "tiles", tiles) &&
         !strncmp(ran + tiles, want + flat, strlen(want) - flat);
}

static void tell(const run *r, const layout_case *c, const qn_setting *s, const char *what)
{
  char setting[512];
  qn_setting_text(&r->trial->item->target.op->info, s, setting, sizeof setting);
  qn_trial_fail(r->trial, (long)c->number, "case %zu: %s; %s, %s, pool of %d, alignment %s, geometry %s, ran %s\n%s",
                c->number, setting, qn_arrangement_name(c->kind), qn_way_name(c->way), c->threads,
                qn_alignment_name((qn_alignment)c->alignment), c->geometry ? c->geometry : "as chosen",
                *qn_op_last_variant() ? qn_op_last_variant() : "nothing", what);
}

/* Sizes: ragged last tiles, whole ones, rows shorter than a block and than a pack, a row of one, none at all. */
#define SHAPES "3x14337 1x11009 4x16384 5x3 0x64 2x3x1030 9x1 37x70"

static qn_status compare(const run *r, const layout_case *c, const qn_setting *s, qn_subject *got, qn_subject *want)
{
  const qn_target *target = &r->trial->item->target;
  char wrong[QN_SUBJECT_WRONG];
  qn_subject_order order = {.op = target->op,
                            .row = r->trial->item->row,
                            .device = target->device,
                            .pool = qn_trial_pool(r->trial, c->threads),
                            .text = SHAPES " filled params=-1",
                            .setting = s,
                            .alignment = (qn_alignment)c->alignment,
                            .way = c->way,
                            .seed = qn_seed_mix(r->trial->options->seed, c->number),
                            .arranged = true,
                            .arrangement = c->kind};
  qn_try(qn_subject_open(got, &order));
  qn_try(qn_subject_open(want, qn_subject_reference_order(&order, got)));
  qn_try(qn_target_select(target));
  qn_try(qn_option_set("launch_shape", c->geometry));
  const qn_status status = qn_subject_step(got);
  qn_try(qn_option_set("launch_shape", NULL));
  qn_try(status);
  if (!took(c)) tell(r, c, s, "another geometry ran than was forced");
  qn_try(qn_subject_step(want));
  if (!qn_subject_agree(got, want, wrong, sizeof wrong)) tell(r, c, s, wrong);
  r->trial->elements += qn_subject_elements(got);
  return QN_OK;
}

static void run_case(run *r, layout_case c)
{
  const qn_item *item = r->trial->item;
  const qn_setting *s = &r->settings[item->target.device.kind == QN_CPU ? r->number % r->n_settings : 0];
  qn_subject got = {.op = NULL}, want = {.op = NULL};
  c.number = r->number++;
  if (!qn_trial_takes(r->trial, c.number)) return;
  if (compare(r, &c, s, &got, &want) != QN_OK) tell(r, &c, s, qn_last_error());
  qn_subject_close(&got);
  qn_subject_close(&want);
}

/* ---- which ---- */

/* Numbers that go round at different speeds, so that over some cases everything meets everything. */
static layout_case case_of(size_t k, size_t kind, const char *geometry)
{
  static const qn_way ways[] = {QN_WAY_DIRECT, QN_WAY_SINGLE, QN_WAY_PLAN};
  static const int pools[N_POOLS] = {0, 2, 3};
  return (layout_case){.kind = kind,
                       .alignment = (int)(k % QN_ALIGN_COUNT),
                       .threads = pools[k / 2 % N_POOLS],
                       .way = ways[k % 3],
                       .geometry = geometry};
}

static void on_cpu(run *r)
{
  const size_t rounds = level_of(r) == QN_QUICK ? 1 : level_of(r) == QN_NORMAL ? 3 : 12;
  for (size_t k = 0; k < rounds; k++)
    for (size_t kind = 0; kind < QN_ARRANGEMENTS; kind++) {
      layout_case c = case_of(k + kind + r->trial->item->row, kind, NULL);
      if ((k + kind + r->trial->item->row) % 2) c.alignment = QN_ALIGN_END; /* who reads past an end ends the process */
      if (k == 0 && kind < 2) c.threads = 0; /* planted bugs that know a tensor's first row by having seen it */
      run_case(r, c);
    }
}

/* Of every shape, number of threads, vector and number of vectors; in turn blocks that stay. */
static qn_launch_shape geometry_of(size_t shape, size_t turn, bool other)
{
  static const uint32_t stay[] = {1, 2, 32};
  const bool stays = (turn % 2 == shape % 2) != other;
  const size_t at = turn * 7 % TURNS; /* so that neighbours are not alike */
  return (qn_launch_shape){.shape = (qn_launch_kind)shape,
                           .threads = 64u << at % 5,
                           .pack = 4u << at / 5 % 2,
                           .packs = 1u << at / 10,
                           .persistent = stays ? stay[turn / 2 % 3] : 0};
}

/* The op's number among those that this leg is about, and theirs. */
static void count_ops(const qn_op *op, size_t *own, size_t *all)
{
  *own = *all = 0;
  for (size_t k = 0; qn_ops[k]; k++) {
    if (!qn_op_is_strided(&qn_ops[k]->info) || qn_op_check_of(qn_ops[k])->reference) continue;
    if (!strcmp(qn_ops[k]->info.name, op->info.name)) *own = *all;
    ++*all;
  }
}

/* Is this geometry this row's, below --full? Each is one row's, and on the emulator one op's and one seed's. */
static bool takes(const run *r, size_t shape, size_t turn)
{
  const qn_item *item = r->trial->item;
  const size_t rows = qn_op_rows(&item->target.op->info, item->target.device.kind);
  size_t own = 0, all = 1;
  if (item->target.device.kind == QN_EMULATOR) count_ops(item->target.op, &own, &all);
  if (turn % all != own) return false;
  turn /= all;
  if (level_of(r) == QN_QUICK && turn / 2 % 8 != item->row % 8) return false;
  if (level_of(r) == QN_NORMAL && all > 1 && (turn + r->trial->options->seed) % QN_LAUNCH_KINDS != shape) return false;
  return (turn * QN_LAUNCH_KINDS + (shape + turn) % QN_LAUNCH_KINDS) % rows == item->row;
}

/* As the tables say, and as the rule says of more elements: one arrangement a row, and in the first the list that has
 * one of each. */
static void as_chosen(run *r)
{
  const size_t row = r->trial->item->row;
  const qn_launch_shape_key many = {.op = r->trial->item->target.op, .row = row, .dense = true};
  char name[QN_LAUNCH_SHAPE_NAME];
  qn_launch_shape g;
  qn_launch_shape_rule(&many, &g);
  qn_launch_shape_name(&g, name);
  for (size_t kind = 1; kind < QN_ARRANGEMENTS; kind++) {
    const bool turn = kind == 1 + row % 4 || (row == 0 && kind == QN_ARRANGEMENTS - 1);
    if (level_of(r) != QN_FULL && !(turn && (row == 0 || level_of(r) == QN_NORMAL))) continue;
    run_case(r, case_of(kind, kind, NULL));
    run_case(r, case_of(kind, kind, name));
  }
}

static void on_device(run *r)
{
  enum { ALIKE = QN_ARRANGEMENTS - 1 }; /* one of each would be a compilation for each */
  const bool full = level_of(r) == QN_FULL;
  char name[QN_LAUNCH_SHAPE_NAME];
  as_chosen(r);
  for (size_t turn = 0; turn < TURNS; turn++)
    for (size_t shape = 0; shape < QN_LAUNCH_KINDS; shape++)
      for (size_t k = 0; k < (full ? 2 * QN_ARRANGEMENTS : 1); k++) {
        const size_t kind = full ? k % QN_ARRANGEMENTS : (turn + turn / ALIKE) % ALIKE;
        const qn_launch_shape g = geometry_of(shape, turn, k >= QN_ARRANGEMENTS);
        if (!full && !takes(r, shape, turn)) continue;
        qn_launch_shape_name(&g, name);
        run_case(r, case_of(turn + k + shape, kind, name));
      }
}

/* Those without pointers, which are not this leg's business; the defaults are the first. */
static size_t plain_settings(qn_trial *trial, qn_setting *settings)
{
  const size_t n =
      qn_settings_of(&trial->item->target.op->info, QN_QUICK, trial->options->seed, settings, QN_SETTINGS_MOST);
  size_t kept = 0;
  for (size_t k = 0; k < n; k++)
    if (!settings[k].given) settings[kept++] = settings[k];
  return kept;
}

void qn_leg_layouts(qn_trial *trial)
{
  run r = {.trial = trial, .settings = qn_allocate(QN_SETTINGS_MOST * sizeof *r.settings)};
  if (r.settings) r.n_settings = plain_settings(trial, r.settings);
  if (!r.n_settings)
    qn_trial_fail(trial, -1, "no settings: %s", qn_last_error());
  else if (trial->item->target.device.kind == QN_CPU)
    on_cpu(&r);
  else
    on_device(&r);
  qn_trial_note(trial, "%zu cases, %llu elements", trial->cases, (unsigned long long)trial->elements);
  qn_release(r.settings);
}
