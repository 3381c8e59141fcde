/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_check.c - see kernel_check.h. Checking mode goes first: what it finds out of bounds is not run natively. */
#include "workbench/kernel_check.h"
#include "core/core.h"
#include "workbench/check.h"
#include "workbench/kernel_compare.h"
#include "workbench/fill.h"
#include "workbench/kernel_say.h"
#include "workbench/kernel_tuned.h"
#include "workbench/record_inner.h"
#include <jansson.h>
#include <string.h>

enum { MOST_COMBINATIONS = 27, MOST_POOLS = 4, POISON = 0xff, OTHER_POISON = 0x5b };

/* One size with one choice of types and rules. */
typedef struct subject {
  qn_kernel_trial_request *r;
  qn_kernel_case_order order;
  size_t size;     /* of the folder's, from 0 */
  char about[200]; /* "n=255 x=f16" */
  qn_kernel_case *c, *reference;
  void *first[QN_KERNEL_MAX_TENSORS]; /* outputs of the first launch on the processor, row-major */
} subject;

/* ---- telling ---- */
/* How to look at the same launch: `quern kernel run`. */
static void say_again(const subject *s, FILE *out)
{
  fprintf(out, "#   look: quern kernel run %s --size %zu", s->r->folder->path, s->size + 1);
  for (size_t k = 0; s->c && k < s->c->n_inputs; k++)
    if (s->c->array[k].is->n_dtypes > 1)
      fprintf(out, " --dtype %s=%s", s->c->array[k].is->name, qn_dtype_name(s->c->array[k].dtype));
  fputc('\n', out);
}

static void tell_tap(const subject *s, const char *leg, const char *failure, const char *note)
{
  const qn_kernel_trial_request *r = s->r;
  const bool skipped = note && !strncmp(note, "SKIP", 4);
  fprintf(r->out, "%sok %zu - %s %s, %s", failure ? "not " : "", r->number, r->folder->name, s->about, leg);
  if (!failure && note && *note) fprintf(r->out, "%s%s", skipped ? " # " : ": ", note);
  fputc('\n', r->out);
  if (failure) qn_tap_lines(r->out, failure);
  if (failure) say_again(s, r->out);
}

static void tell(subject *s, const char *leg, const char *failure, const char *note)
{
  qn_kernel_trial_request *r = s->r;
  const bool skipped = note && !strncmp(note, "SKIP", 4);
  r->run++;
  r->number++;
  r->failures += failure != NULL;
  r->skipped += skipped;
  if (failure && !*r->first) snprintf(r->first, sizeof r->first, "%.200s, %.40s: %.700s", s->about, leg, failure);
  if (!r->out) return;
  if (r->progress) qn_progress_hide(r->progress);
  if (r->json) {
    json_t *line = json_pack("{s:I, s:b, s:s, s:s, s:s, s:s, s:s, s:b}", "test", (json_int_t)r->number, "ok", !failure,
                             "kernel", r->folder->name, "case", s->about, "leg", leg, "note", note ? note : "",
                             "failure", failure ? failure : "", "skipped", skipped);
    qn_json_print(r->out, line, JSON_COMPACT);
  } else {
    tell_tap(s, leg, failure, note);
  }
  fflush(r->out);
}

static void tell_status(subject *s, const char *leg)
{
  char text[1024], *buffer = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&buffer, &bytes);
  if (stream) {
    qn_say_failure(stream, s->r->folder, "");
    fclose(stream);
  }
  while (bytes && buffer[bytes - 1] == '\n') buffer[--bytes] = 0;
  snprintf(text, sizeof text, "%s", buffer ? buffer : qn_last_error());
  free(buffer);
  tell(s, leg, text, NULL);
}

/* ---- one launch judged ---- */
static int wanted_health(const subject *s) { return s->order.size ? s->order.size->health : 0; }

static bool healthy(const qn_kernel_case *c, int wanted, char *why, size_t bytes)
{
  float dbg[QN_HEALTH_COUNT];
  int at = qn_folder_tensor_find(c->folder, "dbg");
  if (at < (int)c->n_inputs || c->array[at].dtype != QN_F32 || c->array[at].elements != QN_HEALTH_COUNT) return true;
  memcpy(dbg, c->array[at].data, sizeof dbg);
  if (wanted && (int)dbg[QN_HEALTH_ERROR] == wanted) return true;
  if (wanted) {
    snprintf(why, bytes, "dbg reports error %g, this size wants %d", (double)dbg[QN_HEALTH_ERROR], wanted);
    return false;
  }
  if (qn_health_status(c->folder->name, dbg) == QN_OK) return true;
  snprintf(why, bytes, "%s", qn_last_error());
  return false;
}

/* health: the error that the size wants; then its outputs are not held against the reference. */
static bool is_right(const qn_kernel_case *c, const qn_kernel_case *reference, int health, double *worst, char *why,
                     size_t bytes)
{
  return qn_kernel_case_intact(c, why, bytes) && healthy(c, health, why, bytes) &&
         (health || qn_compare_outputs(c, reference, worst, why, bytes));
}

bool qn_kernel_case_right(const qn_kernel_case *c, const qn_kernel_case *reference, char *why, size_t bytes)
{
  double worst = 0;
  return is_right(c, reference, 0, &worst, why, bytes);
}

/* ---- legs ---- */
/* True: the kernel may run natively. */
static bool leg_checked(subject *s)
{
  static const char leg[] = "checking mode";
  qn_kernel_call *call = &s->c->call;
  char note[64];
  qn_status status = QN_OK;
  const int64_t limit = call->limit_ns;
  call->check = 1;
  call->ignore = s->r->ignore | s->r->folder->ignore;
  call->limit_ns = s->r->limit_ns;
  for (int seed = 0; status == QN_OK && seed < s->r->seeds; seed++) {
    call->seed = (uint64_t)seed;
    status = qn_kernel_case_run(s->c, POISON);
  }
  call->check = 0;
  call->limit_ns = limit;
  snprintf(note, sizeof note, "%d %s of simdgroups, no finding", s->r->seeds, s->r->seeds == 1 ? "order" : "orders");
  if (status == QN_UNSUPPORTED) snprintf(note, sizeof note, "SKIP %.50s", qn_last_error());
  if (status != QN_OK && status != QN_UNSUPPORTED)
    tell_status(s, leg);
  else
    tell(s, leg, NULL, note);
  return status == QN_OK || status == QN_UNSUPPORTED;
}

static void describe(const subject *s, double worst, char *note, size_t bytes)
{
  const qn_folder_agreement *a = &qn_kernel_output(s->c, 0)->is->agreement;
  char agreed[64];
  if (!s->reference)
    snprintf(note, bytes, "SKIP no reference to hold it against; guards and inputs hold");
  else if (a->kind == QN_AGREE_ULP || a->kind == QN_AGREE_SCALED)
    snprintf(note, bytes, "%s the reference, at most %.3g", qn_agreement_text(a, agreed, sizeof agreed), worst);
  else
    snprintf(note, bytes, "%s the reference", qn_agreement_text(a, agreed, sizeof agreed));
}

/* The first launch, with one thread, against the reference: what all others must repeat. */
static bool leg_reference(subject *s)
{
  char why[512], note[128];
  double worst = 0;
  s->c->exec.pool = NULL;
  qn_status status = qn_kernel_case_run(s->c, POISON);
  if (status == QN_OK) status = qn_kernel_outputs_keep(s->c, s->first);
  if (status != QN_OK) {
    tell_status(s, "processor");
    return false;
  }
  const int health = wanted_health(s);
  const bool right = is_right(s->c, s->reference, health, &worst, why, sizeof why);
  describe(s, worst, note, sizeof note);
  tell(s, "processor", right ? NULL : why, health ? "the error that this size wants" : note);
  return right;
}

/* Any number of threads gives the same bits; outputs that hold something else before end up the same. */
static void leg_threads(subject *s, qn_pool *const *pools, size_t n_pools)
{
  char why[512], whose[64], note[96] = "1";
  for (size_t k = 0; k < n_pools; k++) {
    const int threads = qn_pool_threads(pools[k]);
    s->c->exec.pool = pools[k];
    if (qn_kernel_case_run(s->c, k ? POISON : OTHER_POISON) != QN_OK) {
      tell_status(s, "threads");
      return;
    }
    snprintf(whose, sizeof whose, "with one thread it was");
    snprintf(note + strlen(note), sizeof note - strlen(note), ", %d", threads);
    if (!qn_kernel_case_intact(s->c, why, sizeof why) ||
        !qn_kernel_outputs_same(s->c, s->first, whose, why, sizeof why)) {
      char full[640];
      snprintf(full, sizeof full, "with %d threads%s: %s", threads, k ? "" : " and other values in the outputs before",
               why);
      tell(s, "threads", full, NULL);
      return;
    }
  }
  snprintf(note + strlen(note), sizeof note - strlen(note), ": the same bits");
  tell(s, "threads", NULL, note);
}

static void leg_strided(subject *s)
{
  qn_kernel_case_order order = s->order;
  qn_kernel_case *c = NULL;
  char why[512];
  order.strided = true;
  order.keep = true;
  qn_status status = qn_kernel_case_create(&c, &order);
  if (status == QN_OK) status = qn_kernel_case_run(c, POISON);
  if (status != QN_OK)
    tell_status(s, "strided inputs");
  else if (!qn_kernel_case_intact(c, why, sizeof why) ||
           !qn_kernel_outputs_same(c, s->first, "from dense inputs it was", why, sizeof why))
    tell(s, "strided inputs", why, NULL);
  else
    tell(s, "strided inputs", NULL, "the same bits");
  if (c) qn_kernel_case_destroy(&c);
}

static void judge_gpu(subject *s, qn_kernel_case *c, const char *leg)
{
  char why[512], note[160] = "";
  double worst = 0;
  bool right = is_right(c, s->reference, wanted_health(s), &worst, why, sizeof why);
  if (right && s->r->folder->same_bits && s->first[0])
    right = qn_kernel_outputs_same(c, s->first, "on the processor it is", why, sizeof why);
  describe(s, worst, note, sizeof note);
  if (s->r->folder->same_bits && s->first[0])
    snprintf(note + strlen(note), sizeof note - strlen(note), ", the processor's bits");
  tell(s, leg, right ? NULL : why, note);
}

static void leg_gpu(subject *s)
{
  qn_kernel_case_order order = s->order;
  qn_kernel_case *c = NULL;
  char leg[32], text[256];
  snprintf(leg, sizeof leg, "cuda:%d", s->r->device.index);
  order.device = s->r->device;
  order.keep = true;
  qn_status status = s->r->tuned ? qn_tuned_apply(s->r->folder, &order, text, sizeof text) : QN_OK;
  if (status == QN_OK) status = qn_kernel_case_create(&c, &order);
  if (status == QN_OK) status = qn_kernel_case_run(c, POISON);
  if (status != QN_OK)
    tell_status(s, leg);
  else
    judge_gpu(s, c, leg);
  if (c) qn_kernel_case_destroy(&c);
}

/* ---- a subject ---- */
static bool has_layout(const qn_folder *f)
{
  for (size_t k = 0; k < f->n_inputs; k++)
    if (f->tensor[k].ndim && !f->tensor[k].dense && !f->tensor[k].scalar) return true;
  return false;
}

static bool make_reference(subject *s)
{
  if (!s->r->folder->reference.source || wanted_health(s)) return true;
  const qn_status status = qn_kernel_case_reference(s->c, &s->reference);
  if (status != QN_OK) tell_status(s, "reference");
  return status == QN_OK;
}

static void run_subject(subject *s, qn_pool *const *pools, size_t n_pools, bool plain)
{
  char text[256];
  qn_kernel_trial_request *r = s->r;
  s->order.device = (qn_device){QN_CPU, 0};
  s->order.keep = true;
  s->order.pool = pools[0];
  qn_status status = r->tuned ? qn_tuned_apply(r->folder, &s->order, text, sizeof text) : QN_OK;
  if (status == QN_OK) status = qn_kernel_case_create(&s->c, &s->order);
  if (status != QN_OK) {
    snprintf(s->about, sizeof s->about, "%s", s->order.size->name);
    tell_status(s, "set up");
    return;
  }
  if (r->stoppable) s->c->call.limit_ns = r->limit_ns;
  qn_kernel_case_text(s->c, s->about, sizeof s->about);
  if (!*s->about) snprintf(s->about, sizeof s->about, "%s", s->order.size->name);
  if (s->order.fill)
    snprintf(s->about + strlen(s->about), sizeof s->about - strlen(s->about), " fill %zu", s->order.fill + 1);
  if (r->progress) qn_progress_at(r->progress, s->size, "%s", s->about);
  bool run = make_reference(s) && (!r->processor || !r->seeds || leg_checked(s));
  if (run && r->processor && leg_reference(s)) {
    leg_threads(s, pools, n_pools);
    if (plain && has_layout(r->folder)) leg_strided(s);
  }
  if (run && r->gpu) leg_gpu(s);
}

static void end_subject(subject *s)
{
  for (size_t k = 0; k < QN_KERNEL_MAX_TENSORS; k++) qn_release(s->first[k]);
  if (s->reference) qn_kernel_case_destroy(&s->reference);
  if (s->c) qn_kernel_case_destroy(&s->c);
}

/* The k-th choice of types, as digits of a mixed number; false: there are no more. In step where the choices are too
 * many: the k-th type of each. */
static bool choose_types(const qn_folder *f, size_t k, bool all, qn_dtype *dtype)
{
  size_t product = 1, longest = 1;
  for (size_t i = 0; i < f->n_inputs; i++) {
    const size_t n = f->tensor[i].n_dtypes ? f->tensor[i].n_dtypes : 1;
    product = product > MOST_COMBINATIONS ? product : product * n;
    longest = n > longest ? n : longest;
  }
  const bool whole = all && product <= MOST_COMBINATIONS;
  if (k >= (whole ? product : longest)) return false;
  for (size_t i = 0; i < f->n_inputs; i++) {
    const size_t n = f->tensor[i].n_dtypes;
    if (!n) continue;
    dtype[i] = f->tensor[i].dtype[k % n];
    if (whole) k /= n;
  }
  return true;
}

static size_t count_fills(const qn_folder *f)
{
  size_t most = 1;
  for (size_t k = 0; k < f->n_inputs; k++)
    if (f->tensor[k].n_fills > most) most = f->tensor[k].n_fills;
  return most;
}

static void run_size(qn_kernel_trial_request *r, size_t size, qn_pool *const *pools, size_t n_pools)
{
  const qn_folder *f = r->folder;
  qn_dtype dtype[QN_KERNEL_MAX_TENSORS] = {QN_NONE};
  for (size_t k = 0; choose_types(f, k, size == 0, dtype); k++) {
    if (r->quick && k && size) break;
    if (r->first_only && r->failures) return;
    for (size_t fill = 0; fill < (f->size[size].fill ? 1 : count_fills(f)); fill++) {
      subject s = {.r = r, .order = r->base, .size = size};
      s.order.folder = f;
      s.order.size = &f->size[size];
      s.order.fill = fill;
      for (size_t i = 0; i < f->n_inputs; i++)
        if (!s.order.dtype[i]) s.order.dtype[i] = dtype[i];
      run_subject(&s, pools, n_pools, !fill && !k);
      end_subject(&s);
    }
  }
}

qn_status qn_kernel_trial(qn_kernel_trial_request *r)
{
  qn_pool *pools[MOST_POOLS] = {NULL};
  const int most = r->threads > 1 ? r->threads : 2, counts[MOST_POOLS] = {most, 2, 3, most + 1};
  const size_t n_pools = r->quick ? 1 : most == 2 ? 3 : 4;
  qn_status status = QN_OK;
  size_t n = 0;
  for (size_t k = 0; status == QN_OK && k < n_pools; k++)
    if (k == 0 || counts[k] != most) status = qn_pool_create(&pools[n++], counts[k]);
  for (size_t k = 0; status == QN_OK && k < r->folder->n_sizes; k++) run_size(r, k, pools, n);
  for (size_t k = 0; k < n; k++) qn_pool_destroy(&pools[k]);
  return status;
}
