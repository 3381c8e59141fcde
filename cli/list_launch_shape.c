/* SPDX-License-Identifier: Apache-2.0 */
/* list_launch_shape.c - see list.h. It asks the library for the variant that a call takes in each place of an op's tune
 * table. Of ops on lists equal choices are one line; of others each variant has a line. */
#include "cli/list.h"
#include "op/launch_shape.h"
#include "quern/arch.h"
#include "workbench/term.h"
#include "workbench/tune.h"
#include <stdio.h>
#include <string.h>

enum { MOST_PLACES = 512, MOST_VARIANTS = 128 };

/* The choice in a place. */
typedef struct choice {
  char types[QN_TUNE_TYPES], shape[QN_PLACE_TEXT], variant[QN_TUNE_NAME];
  int64_t rows, cols;
  const char *layout, *why;
  bool told;
} choice;

/* Of the op's places, `of` calls, those that a variant could serve, and those that take it. */
typedef struct account {
  const char *name;
  size_t can, taken, of;
  char why[200]; /* the reason of the first that it cannot; "": there is none */
} account;

typedef struct choices {
  const qn_op *op;
  qn_arch arch;
  char device[32];
  size_t n, n_accounts;
  choice at[MOST_PLACES];
  account account[MOST_VARIANTS];
} choices;

static const char forced_names[] = "{flat,rows,tiles}-{64,128,256,512,1024}x{1,4,8}x{1,2,4}, and -p1 to -p32 behind it";

qn_device qn_list_device(void)
{
  int count = 0;
  const bool gpu = qn_device_count(QN_CUDA, &count) == QN_OK && count > 0;
  return (qn_device){gpu ? QN_CUDA : QN_EMULATOR, 0};
}

static qn_status note(void *user, const qn_tune_choice *got)
{
  choices *all = user;
  qn_tune_key key;
  qn_require(got->name && all->n < MOST_PLACES, "%s", got->name ? "there are too many places" : got->why);
  choice *c = &all->at[all->n++];
  all->op->engine->key(got->call, &key);
  *c = (choice){.rows = (int64_t)key.rows,
                .cols = (int64_t)key.cols,
                .layout = key.layout == QN_TUNE_DENSE ? "dense" : "pitched",
                .why = got->why};
  snprintf(c->types, sizeof c->types, "%s", key.types);
  snprintf(c->shape, sizeof c->shape, "%s", got->place->shape);
  snprintf(c->variant, sizeof c->variant, "%s", got->name);
  return QN_OK;
}

static qn_status add_up(void *user, const qn_tune_choice *got)
{
  choices *all = user;
  const qn_engine *engine = all->op->engine;
  const char *name;
  for (size_t k = 0; k < MOST_VARIANTS && (name = engine->variant(all->op, k)); k++) {
    account *a = &all->account[k];
    const char *cannot = engine->refuses(got->call, k);
    a->name = name;
    a->of++;
    a->can += !cannot;
    a->taken += got->name && !strcmp(got->name, name);
    if (cannot && !*a->why) snprintf(a->why, sizeof a->why, "%s", cannot);
    if (k == all->n_accounts) all->n_accounts++;
  }
  return QN_OK;
}

/* False: nothing is to be told. */
static bool find(const qn_op *op, qn_device device, choices *all)
{
  const bool list = !qn_op_is_alone(&op->info);
  const qn_tune_filter filter = {.pitched = qn_op_is_strided(&op->info)};
  if (!op->engine->option || device.kind == QN_CPU) return false;
  *all = (choices){.op = op, .arch.size = sizeof all->arch};
  qn_verb_device_text(device, all->device);
  return qn_tune_arch(device, &all->arch) == QN_OK &&
         qn_tune_choices(op, device, &filter, list ? note : add_up, all) == QN_OK;
}

/* ---- for people ---- */
static bool alike(const choice *a, const choice *b)
{
  return !strcmp(a->types, b->types) && a->layout == b->layout && !strcmp(a->variant, b->variant) && a->why == b->why;
}

/* All shapes of one choice, "all" where those of its types and layout have no other. */
static void print_alike(choices *all, const choice *first)
{
  qn_text shapes = {0};
  bool every = true;
  for (choice *c = all->at; c < all->at + all->n; c++) {
    if (strcmp(c->types, first->types) != 0 || c->layout != first->layout) continue;
    every = every && alike(c, first);
    if (!alike(c, first)) continue;
    c->told = true;
    qn_text_add(&shapes, "%s%s", shapes.length ? " " : "", c->shape);
  }
  printf("    %-24s %-7s  %-16s %s: ", first->types, first->layout, first->variant, first->why);
  qn_term_wrap(stdout, 6, every ? "all shapes" : shapes.at ? shapes.at : "");
  qn_text_free(&shapes);
}

static void print_accounts(const choices *all)
{
  printf("  launched on %s as the variant that was measured to be the fastest, else that expects to be, or as the\n"
         "  option \"%s\" says; of %zu calls, its workloads in every class\n",
         all->device, all->op->engine->option, all->account[0].of);
  for (const account *a = all->account; a < all->account + all->n_accounts; a++) {
    printf("    %-16s serves %2zu, is given %2zu%s", a->name, a->can, a->taken, *a->why ? "  " : "\n");
    if (*a->why) qn_term_wrap(stdout, 46, a->why);
  }
}

void qn_list_print_launch_shape(const qn_op *op, qn_device device)
{
  static choices all;
  if (!find(op, device, &all)) return;
  if (all.n_accounts) print_accounts(&all);
  if (!all.n) return;
  printf("  launched on %s (%s) as\n", all.device, all.arch.name);
  for (size_t k = 0; k < all.n; k++)
    if (!all.at[k].told) print_alike(&all, &all.at[k]);
  printf("    QUERN_LAUNCH_SHAPE forces %s\n", forced_names);
}

/* ---- for tools ---- */
static json_t *accounts_json(const choices *all)
{
  json_t *names = json_array(), *calls = json_array();
  for (const account *a = all->account; a < all->account + all->n_accounts; a++) {
    json_array_append_new(names, json_string(a->name));
    json_array_append_new(calls, json_pack("{s:s, s:I, s:I, s:I, s:s}", "variant", a->name, "calls", (json_int_t)a->of,
                                           "serves", (json_int_t)a->can, "given", (json_int_t)a->taken, "why", a->why));
  }
  return json_pack("{s:s, s:o, s:o}", "option", all->op->engine->option, "forced", names, "variants", calls);
}

json_t *qn_list_launch_shape_json(const qn_op *op, qn_device device)
{
  static choices all;
  if (!find(op, device, &all)) return NULL;
  if (all.n_accounts) return accounts_json(&all);
  json_t *list = json_array();
  for (const choice *c = all.at; c < all.at + all.n; c++)
    json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:s, s:s, s:s}", "types", c->types, "rows",
                                          (json_int_t)c->rows, "cols", (json_int_t)c->cols, "layout", c->layout,
                                          "variant", c->variant, "why", c->why));
  return json_pack("{s:s, s:s, s:s, s:o, s:{s:[s,s,s], s:[i,i,i,i,i], s:[i,i,i], s:[i,i,i], s:i}}", "device",
                   all.device, "arch", all.arch.name, "option", op->engine->option, "choices", list, "forced", "shape",
                   "flat", "rows", "tiles", "threads", 64, 128, 256, 512, 1024, "pack", 1, 4, 8, "packs", 1, 2, 4,
                   "most_persistent", QN_LAUNCH_SHAPE_MOST_PERSISTENT);
}
