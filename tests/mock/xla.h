/* SPDX-License-Identifier: Apache-2.0 */
/* xla.h - a mock of XLA for the test of the handlers: its functions, which fail on order and count what they gave, its
 * threads, and frames of calls as XLA lays them out. It checks nothing itself. */
#ifndef MOCK_XLA_H
#define MOCK_XLA_H
#include "core/core.h"
#include "quern/quern.h"
#include "test.h"
#include "xla/ffi.h"
#include <pthread.h>
#include <stdatomic.h>

enum { MOST = 40, N = 3, ELEMENTS = 200000, NAME_BYTES = 32 };

/* ---- XLA ---- */
struct XLA_FFI_Error {
  char message[2048];
  xla_code code;
};
static struct XLA_FFI_Error theirs; /* the result of an XLA function that is made to fail */
static int live_errors;
static bool stream_fails, threads_fail, ordinal_fails;
static int64_t threads_said = 3;
static pthread_t started[MOST];
static atomic_int n_started;
static bool hold_tasks; /* queue them, to be run after the call */
static xla_schedule queued[MOST];
static int n_queued;

static xla_error *error_create(xla_error_create *create)
{
  xla_error *made = calloc(1, sizeof *made);
  snprintf(made->message, sizeof made->message, "%s", create->message);
  made->code = create->code;
  live_errors++;
  return made;
}
static void error_message(xla_error_message *message) { message->message = message->error->message; }
static void error_destroy(xla_error_destroy *destroy)
{
  if (destroy->error == &theirs)
    theirs.code = 0;
  else
    free(destroy->error), live_errors--;
}
static xla_error *fail(const char *why)
{
  snprintf(theirs.message, sizeof theirs.message, "%s", why);
  theirs.code = XLA_UNIMPLEMENTED;
  return &theirs;
}

static xla_context *const context = (xla_context *)0x1234;
static void *stream;
static xla_error *stream_get(xla_stream_get *get)
{
  if (stream_fails || get->context != context) return fail("no stream here");
  get->stream = stream;
  return NULL;
}
static xla_error *threads_get(xla_threads_get *get)
{
  if (threads_fail || get->context != context) return fail("no threads here");
  *get->n_threads = threads_said;
  return NULL;
}
static xla_error *ordinal_get(xla_ordinal_get *get)
{
  if (ordinal_fails || get->context != context) return fail("no number here");
  get->ordinal = 1;
  return NULL;
}
static void *run_task(void *argument)
{
  xla_schedule *schedule = argument;
  schedule->task(schedule->data);
  return NULL;
}
static xla_error *schedule(xla_schedule *what)
{
  if (n_queued == MOST) return fail("the queue is full");
  xla_schedule *own = &queued[n_queued++];
  *own = *what;
  if (!hold_tasks) pthread_create(&started[atomic_fetch_add(&n_started, 1)], NULL, run_task, own);
  return NULL;
}
static void join_all(void)
{
  for (int k = 0; k < n_started; k++) pthread_join(started[k], NULL);
  atomic_store(&n_started, 0);
  n_queued = 0;
}

static const xla_api good_api = {.head = {.size = sizeof good_api},
                                 .version = {.head = {.size = sizeof(xla_version)}, .major = 0, .minor = 3},
                                 .error_create = error_create,
                                 .error_message = error_message,
                                 .error_destroy = error_destroy,
                                 .stream_get = stream_get,
                                 .schedule = schedule,
                                 .threads_get = threads_get,
                                 .ordinal_get = ordinal_get};

/* ---- a call ---- */
typedef struct call {
  xla_api api;
  xla_frame frame;
  xla_buffer operand[MOST], result[MOST];
  void *operands[MOST], *results[MOST], *attributes[MOST];
  xla_kind kinds[MOST];
  xla_attribute_kind attribute_kinds[MOST];
  xla_span name[MOST], *names[MOST], text[MOST];
  xla_scalar scalar[MOST];
  xla_array array[MOST];
  int64_t bits[MOST];
  double real[MOST];
  char key[MOST][NAME_BYTES];
  /* Lion's tensors: param, grad, momentum of N, and the hyper struct. */
  float *data[3][N], *apart[3][N];
  qn_lion_hyper hyper;
  int64_t extent[N], hyper_extent;
} call;

static int64_t add_name(call *c, const char *name, xla_attribute_kind kind)
{
  const int64_t k = c->frame.attributes.n++;
  snprintf(c->key[k], NAME_BYTES, "%s", name);
  c->name[k] = (xla_span){c->key[k], strlen(name)};
  c->names[k] = &c->name[k];
  c->attribute_kinds[k] = kind;
  return k;
}
static void add_text(call *c, const char *name, const char *text)
{
  const int64_t k = add_name(c, name, XLA_STRING);
  c->text[k] = (xla_span){text, strlen(text)};
  c->attributes[k] = &c->text[k];
}
static void add_scalar(call *c, const char *name, xla_type type, int64_t bits, double real)
{
  const int64_t k = add_name(c, name, XLA_SCALAR);
  c->bits[k] = bits;
  c->real[k] = real;
  c->scalar[k] = (xla_scalar){type, type == XLA_F64 ? (void *)&c->real[k] : (void *)&c->bits[k]};
  c->attributes[k] = &c->scalar[k];
}
static void add_int(call *c, const char *name, int64_t value) { add_scalar(c, name, XLA_S64, value, 0); }
static void add_array(call *c, const char *name, xla_type type, size_t n, void *data)
{
  const int64_t k = add_name(c, name, XLA_ARRAY);
  c->array[k] = (xla_array){type, n, data};
  c->attributes[k] = &c->array[k];
}
/* The place of an attribute that is there, to be spoiled. */
static int64_t at(const call *c, const char *name)
{
  int64_t k = 0;
  while (strcmp(c->key[k], name)) k++;
  return k;
}

static void add_operand(call *c, xla_type type, void *data, int64_t rank, int64_t *extents)
{
  const int64_t k = c->frame.operands.n++;
  c->operand[k] = (xla_buffer){{.size = sizeof(xla_buffer)}, type, data, rank, extents};
  c->operands[k] = &c->operand[k];
}
static void add_result(call *c, xla_type type, void *data, int64_t rank, int64_t *extents)
{
  const int64_t k = c->frame.results.n++;
  c->result[k] = (xla_buffer){{.size = sizeof(xla_buffer)}, type, data, rank, extents};
  c->results[k] = &c->result[k];
}

/* A good step of Lion over N f32 tensors, hyper by operand, results in place of their operands. */
static call *make(void)
{
  call *c = calloc(1, sizeof *c);
  c->api = good_api;
  c->frame = (xla_frame){.head = {.size = sizeof(xla_frame)},
                         .api = &c->api,
                         .context = context,
                         .stage = XLA_EXECUTE,
                         .operands = {.head = {.size = sizeof(xla_values)}, .kinds = c->kinds, .values = c->operands},
                         .results = {.head = {.size = sizeof(xla_values)}, .kinds = c->kinds, .values = c->results},
                         .attributes = {.head = {.size = sizeof(xla_attributes)},
                                        .kinds = c->attribute_kinds,
                                        .names = c->names,
                                        .values = c->attributes}};
  for (int k = 0; k < MOST; k++) c->kinds[k] = XLA_BUFFER;
  for (int role = 0; role < 3; role++)
    for (int k = 0; k < N; k++) {
      c->extent[k] = k == 1 ? 0 : ELEMENTS - k;
      c->data[role][k] = malloc((size_t)ELEMENTS * sizeof(float));
      c->apart[role][k] = calloc(ELEMENTS, sizeof(float));
      for (int j = 0; j < ELEMENTS; j++) c->data[role][k][j] = (float)((j * 37 + role * 11 + k) % 101 - 50) * 0.01f;
      add_operand(c, XLA_F32, c->data[role][k], 1, &c->extent[k]);
      if (role != 1) add_result(c, XLA_F32, c->data[role][k], 1, &c->extent[k]);
    }
  c->hyper = (qn_lion_hyper){.lr = 0.01, .beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0.5, .reference_lr = 1};
  c->hyper_extent = sizeof c->hyper / 4;
  add_operand(c, XLA_U32, &c->hyper, 1, &c->hyper_extent);
  add_text(c, "op", "lion");
  add_int(c, "param", N);
  add_int(c, "grad", N);
  add_int(c, "momentum", N);
  add_scalar(c, "hyper", XLA_PRED, 1, 0);
  return c;
}
static void drop(call *c)
{
  for (int role = 0; role < 3; role++)
    for (int k = 0; k < N; k++) free(c->data[role][k]), free(c->apart[role][k]);
  free(c);
}

/* The same step by qn_lion_step, serial, into data. */
static void step_beside(call *c)
{
  qn_exec exec = {.size = sizeof exec};
  qn_lion_params params = QN_LION_DEFAULTS;
  qn_tensor t[3][N];
  params.lr = c->hyper.lr, params.beta1 = c->hyper.beta1, params.beta2 = c->hyper.beta2;
  params.weight_decay = c->hyper.weight_decay;
  for (int role = 0; role < 3; role++)
    for (int k = 0; k < N; k++)
      t[role][k] = (qn_tensor){.data = c->data[role][k], .dtype = QN_F32, .ndim = 1, .shape = &c->extent[k]};
  check(!qn_lion_step(&exec, &params, N, t[0], t[1], t[2], NULL), "the same step by qn_lion_step");
}

static bool same_data(const call *a, const call *b)
{
  bool same = true;
  for (int role = 0; role < 3; role++)
    for (int k = 0; k < N; k++) same &= !memcmp(a->data[role][k], b->data[role][k], ELEMENTS * sizeof(float));
  return same;
}
#endif
