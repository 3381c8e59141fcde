/* SPDX-License-Identifier: Apache-2.0 */
/* tune_op.c - an op as what is tuned (tune.h): its engine names variants and forces one by an option; its calls are
 * subjects. Where an op has no reference in double, its variants are held to the ref tier's bits over small ragged
 * tensors. */
#include "core/core.h"
#include "quern/device.h"
#include "workbench/subject.h"
#include "workbench/tune.h"
#include <string.h>

enum { LOOSEST = 2 };

struct qn_tune_op {
  const qn_op *op;
  const qn_engine *engine;
  qn_device device;
  qn_device_info info;
  const qn_tune_filter *filter;
  uint64_t seed;
  bool by_bits;
  qn_subject data, small, want; /* of the place; ragged tensors, and the same as the ref tier leaves them */
  size_t row;
  char text[QN_PLACE_TEXT]; /* of the data, which may serve the next place too; "": there are none */
  qn_tune_key key;
};

static qn_call call_of(const qn_tune_op *t) { return qn_subject_call(&t->data, QN_CALL_PREPARE); }
static qn_status force(const qn_tune_op *t, const char *name) { return qn_option_set(t->engine->option, name); }

/* ---- the tensors of a place ---- */

static qn_subject_order order_of(const qn_tune_op *t, const qn_tune_place *place, bool bare)
{
  return (qn_subject_order){.op = t->op,
                            .row = place->row,
                            .device = t->device,
                            .text = place->text,
                            .more = place->classed,
                            .seed = t->seed,
                            .bare = bare,
                            .lean = t->by_bits};
}

static void drop(qn_tune_op *t)
{
  qn_subject_close(&t->data);
  *t->text = 0;
}

/* As many bytes are copied beside it. */
static qn_status check_memory(const qn_tune_op *t, const qn_tune_place *place)
{
  const qn_subject_order order = order_of(t, place, true);
  qn_subject d;
  double bytes = 512e6 * (t->device.kind == QN_CUDA);
  const qn_status status = qn_subject_open(&d, &order);
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) bytes += 2 * (double)d.role[r].bytes;
  qn_subject_close(&d);
  qn_try(status);
  qn_require(t->info.free_bytes <= 0 || bytes < 0.9 * (double)t->info.free_bytes,
             "it does not fit the device's memory");
  return QN_OK;
}

static qn_status open_data(qn_tune_op *t, const qn_tune_place *place, bool bare)
{
  const qn_subject_order order = order_of(t, place, bare);
  if (t->row == place->row && !strcmp(t->text, place->text)) return qn_subject_read(&t->data, place->classed);
  drop(t);
  if (!bare) qn_try(check_memory(t, place));
  const qn_status status = qn_subject_open(&t->data, &order);
  if (status != QN_OK) return drop(t), status;
  t->row = place->row;
  if (!bare) snprintf(t->text, sizeof t->text, "%s", place->text);
  return QN_OK;
}

static qn_status step_reference(qn_tune_op *t, qn_subject_order *order)
{
  const char *tier;
  char kept[16];
  order->device = (qn_device){QN_CPU, 0};
  qn_try(qn_subject_open(&t->want, order));
  qn_try(qn_option_get("cpu", &tier));
  snprintf(kept, sizeof kept, "%s", tier);
  qn_try(qn_option_set("cpu", "ref"));
  const qn_status status = qn_subject_step(&t->want), back = qn_option_set("cpu", kept);
  return status == QN_OK ? back : status;
}

/* One reference for all candidates. */
static qn_status begin_proofs(qn_tune_op *t, const qn_tune_place *place)
{
  qn_subject_order order = order_of(t, place, false);
  if (!t->by_bits) return qn_subject_refer(&t->data, LOOSEST, QN_SUBJECT_REFERENCE);
  order.text = "1x11009 3x4099 4x14337 2x65";
  if (place->pitched) order.more = "apart=64";
  order.lean = false;
  qn_try(qn_subject_open(&t->small, &order));
  return step_reference(t, &order);
}

static void leave(void *self)
{
  qn_tune_op *t = self;
  qn_subject_forget(&t->data);
  qn_subject_close(&t->small);
  qn_subject_close(&t->want);
  if (t->data.bare) drop(t);
}

static qn_status enter(void *self, const qn_tune_place *place, bool bare)
{
  qn_tune_op *t = self;
  qn_try(force(t, ""));
  qn_try(open_data(t, place, bare));
  const qn_call call = call_of(t);
  t->engine->key(&call, &t->key);
  const qn_status status = bare ? QN_OK : begin_proofs(t, place);
  if (status != QN_OK) leave(t);
  return status;
}

/* ---- its variants ---- */

static qn_status knows(void *self, const char *name)
{
  const qn_tune_op *t = self;
  char why[400];
  qn_try(force(t, name));
  if (t->engine->check_option() == QN_OK) return QN_OK;
  const char *said = qn_last_error(), *colon = strstr(said, ": "); /* behind the variable, of which nobody spoke */
  snprintf(why, sizeof why, "%s", !strncmp(said, "QUERN_", 6) && colon ? colon + 2 : said);
  return qn_fail(QN_BAD_ARGUMENT, "%s has no variant \"%s\": %s; `quern list %s` has the names", t->op->info.name, name,
                 why, t->op->info.name);
}

static const char *choice(void *self, const char **why)
{
  const qn_tune_op *t = self;
  const qn_call call = call_of(t);
  return force(t, "") == QN_OK ? t->engine->choice(&call, why) : NULL;
}

static const char *variant(void *self, size_t k, const char **refusal)
{
  const qn_tune_op *t = self;
  const qn_call call = call_of(t);
  const char *name = t->engine->variant(t->op, k);
  *refusal = name ? t->engine->refuses(&call, k) : NULL;
  return name;
}

/* Did the last launch take another variant than the call's choice? The word before the reason is the name. */
static bool took_another(const char *name)
{
  const char *took = qn_op_last_variant();
  return strncmp(took, name, strlen(name)) != 0 || took[strlen(name)] != ' ';
}

static qn_status step(qn_tune_op *t, qn_subject *s, const char *name)
{
  const qn_call call = call_of(t);
  const char *reason = "";
  qn_try(force(t, name));
  const char *chosen = t->engine->choice(&call, &reason);
  if (!chosen) return QN_UNSUPPORTED;
  if (strcmp(chosen, name) != 0) return qn_fail(QN_UNSUPPORTED, "%s takes its place: %s", chosen, reason);
  qn_try(qn_subject_rewind(s));
  qn_try(qn_subject_step(s));
  if (t->by_bits && took_another(name)) return qn_fail(QN_UNSUPPORTED, "%.100s takes its place", qn_op_last_variant());
  return QN_OK;
}

static void prove(void *self, const char *name, char *why, size_t bytes, bool *wrong)
{
  qn_tune_op *t = self;
  qn_subject *s = t->by_bits ? &t->small : &t->data;
  uint64_t elements = 0;
  double worst = 0;
  const qn_status status = step(t, s, name);
  *wrong = false;
  if (status != QN_OK)
    snprintf(why, bytes, "%s", qn_last_error());
  else if (t->by_bits)
    *wrong = !qn_subject_intact(s, why, bytes) || !qn_subject_same(s, &t->want, why, bytes);
  else
    *wrong = !qn_subject_right(s, why, bytes, &elements, &worst);
  if (status == QN_OK && !*wrong) *why = 0;
}

/* Of an option that was set the next call asks anew, tables, libraries and all: that call is not the one to time, or
 * the device would wait for it. */
static qn_status ready(void *self, const char *name)
{
  qn_tune_op *t = self;
  qn_try(force(t, name));
  return qn_subject_run(&t->data);
}

static qn_status run(void *self, const char *name)
{
  (void)name; /* forced by ready() */
  return qn_subject_run(&((qn_tune_op *)self)->data);
}

static const qn_exec *exec_of(void *self) { return &((qn_tune_op *)self)->data.exec; }
static double bytes_of(void *self) { return qn_subject_bytes(&((qn_tune_op *)self)->data); }

/* ---- its table ---- */

static void fill(void *self, qn_tune_entry *e)
{
  const qn_tune_op *t = self;
  qn_tune_classes(t->op, &t->key, e);
}

/* An entry of the user's that names the choice already stays, with its reason. */
static qn_status keep(void *self, const qn_tune_entry *e, char path[QN_TUNE_PATH])
{
  const qn_tune_op *t = self;
  qn_arch arch = {.size = sizeof arch};
  qn_tune_entry old;
  if (!strcmp(e->choice, e->over) && qn_tune_arch(t->device, &arch) == QN_OK &&
      qn_tune_find(t->op->info.name, &arch, &t->key, &old) == QN_TUNE_USER && !strcmp(old.arch, e->arch))
    return QN_OK;
  return qn_tune_keep(t->op->info.name, e, 1, path);
}

/* The parts of a launch shape are parameters of their own. */
static json_t *configuration(void *self, const qn_tune_place *place, const char *name)
{
  static const char *const kinds[] = {"flat", "rows", "tiles"};
  const qn_tune_op *t = self;
  const qn_tune_key *key = &t->key;
  qn_launch_shape g;
  json_t *all = json_pack("{s:s, s:s, s:s, s:I, s:I, s:s, s:s}", "op", t->op->info.name, "workload", place->name,
                          "types", key->types, "rows", (json_int_t)key->rows, "cols", (json_int_t)key->cols, "layout",
                          key->layout == QN_TUNE_DENSE ? "dense" : "pitched", "variant", name);
  json_t *more = NULL;
  if (key->precision)
    more = json_pack("{s:s, s:I, s:I}", "precision", key->precision, "depth", (json_int_t)key->depth, "width",
                     (json_int_t)key->width);
  else if (qn_launch_shape_from_name(name, &g) == QN_OK)
    more = json_pack("{s:s, s:i, s:i, s:i, s:i}", "shape", kinds[g.shape], "threads", (int)g.threads, "pack",
                     (int)g.pack, "packs", (int)g.packs, "persistent", (int)g.persistent);
  if (more) json_object_update(all, more);
  json_decref(more);
  return all;
}

/* ---- the bed ---- */

static qn_status places(void *self, qn_status (*at)(void *user, const qn_tune_place *place), void *user)
{
  const qn_tune_op *t = self;
  return qn_tune_places(t->op, t->device, t->filter, at, user);
}

qn_status qn_tune_op_create(qn_tune_op **made, const qn_op *op, qn_device device, const qn_tune_filter *filter,
                            uint64_t seed, qn_tune_bed *bed)
{
  qn_try(qn_try_allocate(made, sizeof **made, "what is tuned"));
  **made = (qn_tune_op){.op = op,
                        .engine = op->engine,
                        .device = device,
                        .info.size = sizeof(qn_device_info),
                        .filter = filter,
                        .seed = seed,
                        .by_bits = !qn_op_check_of(op)->reference};
  *bed = (qn_tune_bed){.name = op->info.name,
                       .device = device,
                       .at_once = SIZE_MAX,
                       .resumes = true,
                       .self = *made,
                       .places = places,
                       .enter = enter,
                       .leave = leave,
                       .knows = knows,
                       .choice = choice,
                       .variant = variant,
                       .prove = prove,
                       .ready = ready,
                       .run = run,
                       .exec = exec_of,
                       .bytes = bytes_of,
                       .facts = op->engine->facts,
                       .fill = fill,
                       .keep = keep,
                       .configuration = configuration};
  return qn_device_query(device, &(*made)->info);
}

void qn_tune_op_destroy(qn_tune_op **made)
{
  if (!*made) return;
  drop(*made);
  (void)force(*made, NULL);
  qn_release(*made);
  *made = NULL;
}

/* ---- what the tables and the rule say ---- */

typedef struct asking {
  const qn_op *op;
  qn_device device;
  qn_status (*at)(void *user, const qn_tune_choice *choice);
  void *user;
} asking;

static qn_status ask(void *user, const qn_tune_place *place)
{
  const asking *a = user;
  qn_subject d;
  qn_status status = qn_subject_open(&d, &(qn_subject_order){.op = a->op,
                                                             .row = place->row,
                                                             .device = a->device,
                                                             .text = place->text,
                                                             .more = place->classed,
                                                             .bare = true});
  if (status == QN_OK) {
    const qn_call call = qn_subject_call(&d, QN_CALL_PREPARE);
    qn_tune_choice choice = {.place = place, .call = &call, .why = ""};
    choice.name = a->op->engine->choice(&call, &choice.why);
    if (!choice.name) choice.why = qn_last_error();
    status = a->at(a->user, &choice);
  }
  qn_subject_close(&d);
  return status;
}

qn_status qn_tune_choices(const qn_op *op, qn_device device, const qn_tune_filter *filter,
                          qn_status (*at)(void *user, const qn_tune_choice *choice), void *user)
{
  return qn_tune_places(op, device, filter, ask, &(asking){op, device, at, user});
}
