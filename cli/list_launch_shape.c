/* SPDX-License-Identifier: Apache-2.0 */
/* list_launch_shape.c - see list.h. It asks the library for the choice of each shape, as a call does, and prints equal
 * choices in one line. */
#include "cli/list.h"
#include "op/launch_shape.h"
#include "quern/arch.h"
#include "workbench/term.h"
#include "workbench/tune_variants.h"
#include <stdio.h>
#include <string.h>

/* What a call takes for a shape of the op's. */
typedef struct choice {
  qn_tune_cell cell;
  char types[QN_TUNE_TYPES], geometry[QN_LAUNCH_SHAPE_NAME];
  const char *why;
  bool told;
} choice;

typedef struct device_name {
  char text[24];
} device_name;

typedef struct choices {
  qn_arch arch;
  device_name device;
  size_t n;
  choice at[QN_TUNE_CELLS];
} choices;

static const char forced_names[] = "{flat,rows,tiles}-{64,128,256,512,1024}x{4,8}x{1,2,4}, and -p1 to -p32 behind it";

qn_device qn_list_device(void)
{
  int count = 0;
  const bool gpu = qn_device_count(QN_CUDA, &count) == QN_OK && count > 0;
  return (qn_device){gpu ? QN_CUDA : QN_EMULATOR, 0};
}

static const char *layout_of(const choice *c) { return c->cell.layout == QN_TUNE_DENSE ? "dense" : "pitched"; }

static qn_status choose(const qn_op *op, qn_device device, choice *c)
{
  const qn_tune_cell *cell = &c->cell;
  const qn_launch_shape_key key = {op, cell->row, device, cell->rows, cell->cols, cell->layout == QN_TUNE_DENSE, false};
  qn_launch_shape g;
  qn_tune_types(op, cell->row, c->types);
  qn_try(qn_launch_shape_choose(&key, &g, &c->why));
  const bool flat = g.shape == QN_LAUNCH_FLAT && !key.dense; /* forced: the launch does the same */
  if (flat) g.shape = QN_LAUNCH_TILES;
  qn_launch_shape_name(&g, c->geometry);
  return QN_OK;
}

static device_name device_text(qn_device device)
{
  device_name name;
  snprintf(name.text, sizeof name.text, device.kind == QN_CUDA ? "%s:%d" : "%s", qn_device_kind_name(device.kind),
           device.index);
  return name;
}

/* False: nothing is to be told. */
static bool find(const qn_op *op, qn_device device, choices *all)
{
  static qn_tune_cell cells[QN_TUNE_CELLS];
  if (!op->engine->option || op->engine->variant || device.kind == QN_CPU) return false;
  *all = (choices){.arch.size = sizeof all->arch};
  all->device = device_text(device);
  if (qn_tune_arch(device, &all->arch) != QN_OK ||
      qn_tune_cells(op, NULL, NULL, qn_op_is_strided(&op->info), cells, &all->n) != QN_OK)
    return false;
  for (size_t k = 0; k < all->n; k++) {
    all->at[k].cell = cells[k];
    if (choose(op, device, &all->at[k]) != QN_OK) return false;
  }
  return true;
}

/* ---- for people ---- */
static bool alike(const choice *a, const choice *b)
{
  return !strcmp(a->types, b->types) && a->cell.layout == b->cell.layout && !strcmp(a->geometry, b->geometry) &&
         a->why == b->why;
}

/* All shapes of one choice, "all" where those of its types and layout have no other. */
static void print_alike(choices *all, choice *first)
{
  qn_text shapes = {0};
  bool every = true;
  for (choice *c = all->at; c < all->at + all->n; c++) {
    if (strcmp(c->types, first->types) != 0 || c->cell.layout != first->cell.layout) continue;
    every = every && alike(c, first);
    if (!alike(c, first)) continue;
    c->told = true;
    qn_text_add(&shapes, "%s%llux%llu", shapes.length ? " " : "", (unsigned long long)c->cell.rows,
                (unsigned long long)c->cell.cols);
  }
  printf("    %-24s %-7s  %-16s %s: ", first->types, layout_of(first), first->geometry, first->why);
  qn_term_wrap(stdout, 6, every ? "all shapes" : shapes.at ? shapes.at : "");
  qn_text_free(&shapes);
}

/* Which of its calls each could serve there, and which it is given. */
static void print_variants_of(const qn_op *op, qn_device device)
{
  static qn_variant_account all[QN_VARIANT_ACCOUNTS];
  size_t n = 0;
  if (qn_tune_variants_account(op, device, all, &n) != QN_OK || !n) {
    printf("  launched as a variant of its own: %s\n", qn_last_error());
    return;
  }
  printf("  launched on %s as the variant that was measured to be the fastest, else that expects to be, or as the\n"
         "  option \"%s\" says; of %zu calls, its workloads in every class\n",
         device_text(device).text, op->engine->option, all[0].of);
  for (size_t k = 0; k < n; k++) {
    printf("    %-16s serves %2zu, is given %2zu%s", all[k].name, all[k].can, all[k].taken, *all[k].why ? "  " : "\n");
    if (*all[k].why) qn_term_wrap(stdout, 46, all[k].why);
  }
}

void qn_list_print_launch_shape(const qn_op *op, qn_device device)
{
  static choices all;
  if (op->engine->variant) print_variants_of(op, device);
  if (!find(op, device, &all)) return;
  printf("  launched on %s (%s) as\n", all.device.text, all.arch.name);
  for (size_t k = 0; k < all.n; k++)
    if (!all.at[k].told) print_alike(&all, &all.at[k]);
  printf("    QUERN_GEOMETRY forces %s\n", forced_names);
}

/* ---- for tools ---- */
static json_t *variants_json(const qn_op *op, qn_device device)
{
  static qn_variant_account all[QN_VARIANT_ACCOUNTS];
  size_t n = 0;
  json_t *names = json_array(), *calls = json_array();
  const char *name;
  for (size_t k = 0; (name = op->engine->variant(k)); k++) json_array_append_new(names, json_string(name));
  if (qn_tune_variants_account(op, device, all, &n) != QN_OK) n = 0;
  for (size_t k = 0; k < n; k++)
    json_array_append_new(calls, json_pack("{s:s, s:I, s:I, s:I, s:s}", "variant", all[k].name, "calls",
                                           (json_int_t)all[k].of, "serves", (json_int_t)all[k].can, "given",
                                           (json_int_t)all[k].taken, "why", all[k].why));
  return json_pack("{s:s, s:o, s:o}", "option", op->engine->option, "forced", names, "variants", calls);
}

json_t *qn_list_launch_shape_json(const qn_op *op, qn_device device)
{
  static choices all;
  if (op->engine->variant) return variants_json(op, device);
  if (!find(op, device, &all)) return NULL;
  json_t *list = json_array();
  for (const choice *c = all.at; c < all.at + all.n; c++)
    json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:s, s:s, s:s}", "types", c->types, "rows",
                                          (json_int_t)c->cell.rows, "cols", (json_int_t)c->cell.cols, "layout",
                                          layout_of(c), "geometry", c->geometry, "why", c->why));
  return json_pack("{s:s, s:s, s:s, s:o, s:{s:[s,s,s], s:[i,i,i,i,i], s:[i,i], s:[i,i,i], s:i}}", "device",
                   all.device.text, "arch", all.arch.name, "option", "geometry", "choices", list, "forced", "shape",
                   "flat", "rows", "tiles", "threads", 64, 128, 256, 512, 1024, "pack", 4, 8, "packs", 1, 2, 4,
                   "most_persistent", QN_LAUNCH_SHAPE_MOST_PERSISTENT);
}
