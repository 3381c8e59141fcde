/* SPDX-License-Identifier: Apache-2.0 */
/* tune_folder.c - see tune_folder.h. A variant is a launch of its own, with its own arrays: the one in force and one
 * other are there at a time. */
#include "workbench/tune_folder.h"
#include "core/core.h"
#include "workbench/kernel_bench.h"
#include "workbench/kernel_check.h"
#include "workbench/kernel_tuned.h"
#include <string.h>

typedef struct live {
  char name[QN_TUNE_NAME];
  qn_kernel_case *c; /* NULL: none */
} live;

struct qn_tune_folder {
  const qn_folder *folder;
  qn_kernel_case_order order; /* in force */
  bool tunes_group;
  char name[QN_TUNE_NAME];
  live live[2]; /* the one in force, and another; on one stream, the first one's */
};

/* ---- names ---- */

static bool is_tuned(const qn_tune_folder *t, const qn_folder_template *template)
{
  for (size_t k = 0; k < t->order.n_set; k++)
    if (!strcmp(t->order.set[k].name, template->name)) return false;
  return template->n_candidates > 0;
}

/* The k-th of all combinations, as digits of a mixed number; false past the last. */
static bool choose(const qn_tune_folder *t, size_t k, qn_tuned *tuned)
{
  const qn_folder *f = t->folder;
  *tuned = (qn_tuned){.n = 0};
  if (t->tunes_group) memcpy(tuned->group, f->tune_group[k % f->n_groups], sizeof tuned->group), k /= f->n_groups;
  for (size_t i = 0; i < f->body.n_templates; i++) {
    const qn_folder_template *template = &f->body.templates[i];
    if (!is_tuned(t, template)) continue;
    tuned->value[tuned->n++] = (qn_name){template->name, template->candidate[k % template->n_candidates]};
    k /= template->n_candidates;
  }
  return !k;
}

/* The name of a launch's values. */
static void name_of(const qn_tune_folder *t, const qn_kernel_case *c, char name[QN_TUNE_NAME])
{
  qn_tuned tuned = {.n = 0};
  memcpy(tuned.group, c->call.group, sizeof tuned.group);
  for (size_t i = 0; i < t->folder->body.n_templates; i++)
    if (is_tuned(t, &t->folder->body.templates[i]))
      tuned.value[tuned.n++] = (qn_name){c->bound.templates[i].name, c->bound.templates[i].value.integer};
  qn_tuned_name(&tuned, t->tunes_group, name);
}

static qn_status knows(void *self, const char *name)
{
  const qn_tune_folder *t = self;
  qn_tuned tuned;
  qn_try(qn_tuned_from_name(t->folder, name, &tuned));
  qn_require(t->tunes_group || !tuned.group[0], "kernel %s: \"%s\" names a threadgroup, which is not tuned here",
             t->folder->name, name);
  for (size_t k = 0; k < tuned.n; k++)
    for (size_t s = 0; s < t->order.n_set; s++)
      qn_require(strcmp(t->order.set[s].name, tuned.value[k].name) != 0,
                 "kernel %s: \"%s\" names %s, which --set holds", t->folder->name, name, tuned.value[k].name);
  return QN_OK;
}

static const char *choice(void *self, const char **why)
{
  qn_tune_folder *t = self;
  *why = "in force";
  return t->live[0].name;
}

static const char *variant(void *self, size_t k, const char **refusal)
{
  qn_tune_folder *t = self;
  qn_tuned tuned;
  *refusal = NULL;
  if (!choose(t, k, &tuned)) return NULL;
  qn_tuned_name(&tuned, t->tunes_group, t->name);
  return t->name;
}

/* ---- launches ---- */

static void drop(live *l)
{
  if (!l->c) return;
  (void)qn_stream_synchronize(l->c->exec.device, l->c->exec.stream);
  l->c->exec.stream = l->c->stream;
  qn_kernel_case_destroy(&l->c);
}

/* The order of a variant; set has room for what is set and for all templates. */
static qn_status order_of(const qn_tune_folder *t, const char *name, qn_name *set, qn_kernel_case_order *order)
{
  qn_tuned tuned;
  qn_try(qn_tuned_from_name(t->folder, name, &tuned));
  *order = t->order;
  if (t->order.n_set) memcpy(set, t->order.set, t->order.n_set * sizeof *set);
  memcpy(set + order->n_set, tuned.value, tuned.n * sizeof *set);
  order->set = set;
  order->n_set += tuned.n;
  if (t->tunes_group) memcpy(order->group, tuned.group, sizeof order->group);
  return QN_OK;
}

enum { MOST_SET = 64 + QN_KERNEL_MAX_TEMPLATES };

static qn_status find(qn_tune_folder *t, const char *name, qn_kernel_case **c)
{
  qn_name set[MOST_SET];
  qn_kernel_case_order order;
  live *other = &t->live[1];
  live *l = strcmp(name, t->live[0].name) ? other : &t->live[0];
  if (l == other && (!l->c || strcmp(l->name, name) != 0)) {
    drop(l);
    qn_try(order_of(t, name, set, &order));
    qn_try(qn_kernel_case_create(&l->c, &order));
    snprintf(l->name, sizeof l->name, "%s", name);
    l->c->exec.stream = t->live[0].c->exec.stream;
  }
  *c = l->c;
  return QN_OK;
}

static void leave(void *self)
{
  qn_tune_folder *t = self;
  drop(&t->live[1]);
  drop(&t->live[0]);
}

static qn_status enter(void *self, const qn_tune_place *place, bool bare)
{
  qn_tune_folder *t = self;
  (void)place, (void)bare;
  qn_try(qn_kernel_case_create(&t->live[0].c, &t->order));
  name_of(t, t->live[0].c, t->live[0].name);
  return QN_OK;
}

/* Over the workload first, which says whether it can be launched at all, then over the folder's sizes. */
static void prove(void *self, const char *name, char *why, size_t bytes, bool *wrong)
{
  qn_tune_folder *t = self;
  const bool gpu = t->order.device.kind == QN_CUDA;
  qn_name set[MOST_SET];
  char proof[96];
  qn_stage_check check = {.right = false};
  qn_kernel_case *c = NULL;
  qn_kernel_trial_request r = {.folder = t->folder,
                               .processor = !gpu,
                               .gpu = gpu,
                               .device = t->order.device,
                               .threads = 2,
                               .quick = true,
                               .first_only = true};
  *wrong = false;
  *why = 0;
  qn_status status = find(t, name, &c);
  if (status == QN_OK) status = qn_kernel_prove(c, proof, sizeof proof, &check);
  if (status == QN_OK) status = order_of(t, name, set, &r.base);
  if (status == QN_OK && check.right) status = qn_kernel_trial(&r);
  const char *reason = status != QN_OK ? qn_last_error() : check.right ? r.first : check.wrong;
  snprintf(why, bytes, "%.*s", (int)strcspn(reason, "\n"), reason);
  *wrong = status == QN_OK && *why;
}

static qn_status run(void *self, const char *name)
{
  qn_kernel_case *c;
  qn_try(find(self, name, &c));
  return qn_kernel_case_launch(c);
}

static const qn_exec *exec_of(void *self) { return &((qn_tune_folder *)self)->live[0].c->exec; }
static double bytes_of(void *self) { return ((qn_tune_folder *)self)->live[0].c->bytes; }

/* ---- its table ---- */

/* One entry an architecture. */
static void fill(void *self, qn_tune_entry *e)
{
  (void)self;
  snprintf(e->types, sizeof e->types, "*");
  e->rows_least = e->cols_least = 1;
  e->rows_most = e->cols_most = UINT64_MAX;
  e->layout = QN_TUNE_ANY_LAYOUT;
}

/* Nothing where the values in force stay. */
static qn_status keep(void *self, const qn_tune_entry *e, char path[QN_TUNE_PATH])
{
  const qn_tune_folder *t = self;
  if (!strcmp(e->choice, e->over)) return QN_OK;
  qn_try(qn_tune_keep_beside(t->folder->path, t->folder->name, e));
  snprintf(path, QN_TUNE_PATH, "%s", t->folder->path);
  return QN_OK;
}

/* Its values are parameters of their own. */
static json_t *configuration(void *self, const qn_tune_place *place, const char *name)
{
  const qn_tune_folder *t = self;
  qn_tuned tuned;
  json_t *all = json_pack("{s:s, s:s, s:s}", "kernel", t->folder->name, "workload", place->shape, "variant", name);
  if (qn_tuned_from_name(t->folder, name, &tuned) != QN_OK) return all;
  if (t->tunes_group)
    json_object_set_new(all, "threadgroup",
                        json_pack("[i, i, i]", (int)tuned.group[0], (int)tuned.group[1], (int)tuned.group[2]));
  for (size_t k = 0; k < tuned.n; k++)
    json_object_set_new(all, tuned.value[k].name, json_integer(tuned.value[k].value));
  return all;
}

/* ---- the bed ---- */

static qn_status places(void *self, qn_status (*at)(void *user, const qn_tune_place *place), void *user)
{
  const qn_tune_folder *t = self;
  qn_tune_place place = {.row = 0};
  snprintf(place.shape, sizeof place.shape, "%s", t->order.size->name);
  snprintf(place.name, sizeof place.name, "%s", place.shape);
  return at(user, &place);
}

qn_status qn_tune_folder_create(qn_tune_folder **made, const qn_kernel_case_order *order, bool group_is_set,
                                qn_tune_bed *bed)
{
  const qn_folder *f = order->folder;
  qn_tuned tuned;
  qn_try(qn_try_allocate(made, sizeof **made, "what is tuned"));
  qn_tune_folder *t = *made;
  *t = (qn_tune_folder){.folder = f, .order = *order, .tunes_group = f->n_groups && !group_is_set};
  *bed = (qn_tune_bed){.name = f->name,
                       .device = order->device,
                       .at_once = 1,
                       .self = t,
                       .places = places,
                       .enter = enter,
                       .leave = leave,
                       .knows = knows,
                       .choice = choice,
                       .variant = variant,
                       .prove = prove,
                       .ready = run,
                       .run = run,
                       .exec = exec_of,
                       .bytes = bytes_of,
                       .fill = fill,
                       .keep = keep,
                       .configuration = configuration};
  qn_require(order->n_set + f->body.n_templates <= MOST_SET, "kernel %s: more than %d values are set", f->name,
             MOST_SET);
  qn_require(choose(t, 1, &tuned),
             "kernel %s has nothing to tune: a member like \"tune\": {\"threadgroup\": [[64], [128], [256]]} in %s "
             "says what",
             f->name, f->file);
  qn_require(!choose(t, QN_SEARCH_MOST, &tuned), "kernel %s: more than %d candidates to tune", f->name, QN_SEARCH_MOST);
  return QN_OK;
}

void qn_tune_folder_destroy(qn_tune_folder **made)
{
  if (*made) leave(*made);
  qn_release(*made);
  *made = NULL;
}
