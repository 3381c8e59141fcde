/* SPDX-License-Identifier: Apache-2.0 */
/* xla_ffi.c - the handlers for XLA against a mock of XLA: what they say of themselves, which versions of the interface
 * they accept, a step's bits beside qn_op_step's, where results lie, whose threads and stream are used, and every
 * refusal with its sentence. Real XLA has its turn in python/tests. */
#include "core/core.h"
#include "mock/scenario.h"
#include "mock/xla.h"

/* ---- what it says of itself ---- */
static xla_error *ask(int major, int minor, xla_metadata *metadata, size_t api_bytes)
{
  xla_api api = good_api;
  api.head.size = api_bytes;
  api.version.major = major, api.version.minor = minor;
  *metadata = (xla_metadata){.size = sizeof *metadata};
  xla_metadata_extension extension = {.base = {.size = sizeof extension, .type = XLA_METADATA}, .metadata = metadata};
  xla_frame frame = {.head = {.size = sizeof frame, .extensions = &extension.base}, .api = &api};
  return qn_xla_cpu_step(&frame);
}

/* An error with these words, which is then destroyed. */
static void is_error(xla_error *error, xla_code code, const char *words, const char *what)
{
  check(error && error->code == code && strstr(error->message, words), "%s: refused with \"%s\"", what, words);
  if (error) printf("# %d: %s\n", (int)error->code, error->message);
  free(error);
  live_errors -= error != NULL;
}

static void versions(void)
{
  xla_metadata m;
  check(!ask(0, 3, &m, sizeof(xla_api)) && m.version.major == 0 && m.version.minor == 3, "0.3 is answered with 0.3");
  check(m.traits == XLA_TRAIT_CAPTURABLE, "steps may be captured");
  check(!ask(0, 1, &m, sizeof(xla_api)) && m.version.minor == 1, "an older minor is answered with itself");
  check(!ask(0, 9, &m, sizeof(xla_api) + 64) && m.version.minor == 3, "a newer one with 0.3");
  is_error(ask(1, 0, &m, sizeof(xla_api)), XLA_INVALID_ARGUMENT, "is of version 1.0, and quern", "another major");
  is_error(ask(0, 1, &m, offsetof(xla_api, stream_get)), XLA_INVALID_ARGUMENT, "are needed", "too few functions");
  m = (xla_metadata){.size = sizeof m};
  xla_metadata_extension extension = {.base = {.size = sizeof extension, .type = XLA_METADATA}, .metadata = &m};
  xla_frame question = {.head = {.size = sizeof question, .extensions = &extension.base}};
  check(!qn_xla_cuda_step(&question) && m.version.minor == 1, "a question without functions is answered with 0.1");
  m = (xla_metadata){.size = offsetof(xla_metadata, traits), .version = {.minor = 77}};
  check(!qn_xla_cuda_step(&question) && m.version.minor == 77, "a smaller one without functions is left unanswered");
  question.api = &good_api;
  is_error(qn_xla_cuda_step(&question), XLA_INVALID_ARGUMENT,
           "its question for metadata has structs of 32 and 32 bytes", "and else refused");
  call *c = make();
  c->api.version.major = 2;
  is_error(qn_xla_cpu_step(&c->frame), XLA_INVALID_ARGUMENT, "of version 2.3", "another major, a step");
  drop(c);
}

/* ---- steps ---- */
static void in_place(void)
{
  call *c = make(), *other = make();
  step_beside(other);
  check(!qn_xla_cpu_step(&c->frame), "a step: %s", qn_last_error());
  check(n_queued > 0 && n_queued <= 2, "asked for %d more threads of 3", n_queued);
  join_all();
  check(same_data(c, other), "gives qn_lion_step's bits");
  int lent = 0;
  for (int k = 0; k < 40; k++) {
    lent += !qn_xla_cpu_step(&c->frame) && n_queued > 0;
    join_all();
  }
  check(lent == 40, "%d of 40 more steps were lent threads", lent);
  drop(c), drop(other);
}

static void apart(void)
{
  call *c = make(), *before = make(), *other = make();
  step_beside(other);
  for (int role = 0, r = 0; role < 3; role += 2)
    for (int k = 0; k < N; k++) c->result[r++].data = c->apart[role][k];
  check(!qn_xla_cpu_step(&c->frame), "a step whose results lie elsewhere: %s", qn_last_error());
  join_all();
  check(same_data(c, before), "leaves its operands alone");
  for (int role = 0; role < 3; role += 2)
    for (int k = 0; k < N; k += 2)
      check(!memcmp(c->apart[role][k], other->data[role][k], (size_t)c->extent[k] * sizeof(float)),
            "result %d of role %d has qn_lion_step's bits", k, role);
  drop(c), drop(before), drop(other);
}

/* Tasks that XLA runs only after the call, when its pool serves another call or nobody, must find nothing of it. */
static void late_tasks(void)
{
  call *c = make(), *other = make();
  step_beside(other);
  hold_tasks = true;
  check(!qn_xla_cpu_step(&c->frame) && n_queued, "a step whose tasks are not run");
  hold_tasks = false;
  check(same_data(c, other), "is done by the caller");
  drop(c);
  xla_schedule late[MOST];
  const int n = n_queued;
  memcpy(late, queued, sizeof late);
  n_queued = 0;
  for (int k = 0; k < n; k++) run_task(&late[k]);
  c = make();
  for (int k = 0; k < n; k++) pthread_create(&started[n_started++], NULL, run_task, &late[k]);
  check(!qn_xla_cpu_step(&c->frame), "late tasks run beside another step");
  join_all();
  check(same_data(c, other), "and do no harm");
  drop(c), drop(other);
}

static void without_threads(void)
{
  call *other = make();
  step_beside(other);
  for (int k = 0; k < 5; k++) {
    call *c = make();
    threads_fail = k == 0;
    if (k == 1) c->api.head.size = offsetof(xla_api, schedule);
    if (k == 2) c->api.threads_get = NULL;
    threads_said = k == 3 ? 0 : k == 4 ? 1 : 3;
    check(!qn_xla_cpu_step(&c->frame) && !n_queued, "a step without threads, %d: %s", k, qn_last_error());
    check(same_data(c, other), "has the same bits");
    drop(c);
  }
  threads_fail = false;
  threads_said = 3;
  n_queued = MOST; /* nothing more is taken */
  call *c = make();
  check(!qn_xla_cpu_step(&c->frame) && same_data(c, other), "a step whose tasks are refused");
  n_queued = 0;
  drop(c), drop(other);
}

static void attributes(void)
{
  static int64_t ids[N] = {5, 6, 7};
  call *c = make(), *other = make();
  other->hyper.weight_decay = c->hyper.weight_decay = 0.25;
  step_beside(other);
  c->frame.attributes.n--; /* hyper: now by attributes */
  c->frame.operands.n--;
  add_scalar(c, "lr", XLA_F64, 0, 0.01);
  add_scalar(c, "beta1", XLA_F64, 0, 0.5);
  add_scalar(c, "beta2", XLA_F64, 0, 0.75);
  add_scalar(c, "weight_decay", XLA_F64, 0, 0.25);
  add_scalar(c, "eps", XLA_S32, 0, 0);
  add_scalar(c, "seed", XLA_U64, -1, 0);
  add_scalar(c, "step", XLA_U32, 7, 0);
  add_scalar(c, "maximize", XLA_PRED, 0, 0);
  add_text(c, "decay", "lr");
  add_text(c, "rounding", "stochastic");
  add_array(c, "tensor_id", XLA_S64, N, ids);
  check(!qn_xla_cpu_step(&c->frame), "params by attributes: %s", qn_last_error());
  join_all();
  check(same_data(c, other), "mean the same");
  drop(c), drop(other);
}

/* Values in memory, and the workspace of a step that counts. */
static void by_operands(void)
{
  static float scale = 4, found = 1;
  static int64_t workspace[2 * N], bytes = sizeof workspace;
  call *c = make(), *before = make();
  add_scalar(c, "grad_scale", XLA_S64, 1, 0);
  add_scalar(c, "found_inf", XLA_S64, 1, 0);
  c->frame.operands.n--; /* in the description's order: grad_scale, found_inf, hyper */
  add_operand(c, XLA_F32, &scale, 0, NULL);
  add_operand(c, XLA_F32, &found, 0, NULL);
  add_operand(c, XLA_U32, &c->hyper, 1, &c->hyper_extent);
  check(!qn_xla_cpu_step(&c->frame) && same_data(c, before), "found_inf is read, and nothing written: %s",
        qn_last_error());
  found = 0;
  add_int(c, "cautious", 1);
  is_error(qn_xla_cpu_step(&c->frame), XLA_INVALID_ARGUMENT, "the workspace is 0 bytes", "cautious without workspace");
  add_result(c, XLA_U8, workspace, 1, &bytes);
  check(!qn_xla_cpu_step(&c->frame) && !same_data(c, before), "cautious with a workspace: %s", qn_last_error());
  check(workspace[1] == ELEMENTS && workspace[0] > 0 && workspace[3] == 0, "which it used");
  join_all();
  drop(c), drop(before);
}

/* ---- refusals ---- */
#define REFUSED(error_code, words, change)                                                                             \
  do {                                                                                                                 \
    call *c = make(), *before = make();                                                                                \
    change;                                                                                                            \
    is_error(qn_xla_cpu_step(&c->frame), error_code, words, #change);                                                  \
    check(same_data(c, before), "nothing was written");                                                                \
    drop(c), drop(before);                                                                                             \
  } while (0)
#define BAD(words, change) REFUSED(XLA_INVALID_ARGUMENT, words, change)

static void bad_frames(void)
{
  BAD("laid out as", c->frame.head.size = 24);
  BAD("laid out as", c->frame.operands.head.size += 8);
  BAD("laid out as", c->frame.results.head.size -= 8);
  BAD("laid out as", c->frame.attributes.head.size -= 8);
  BAD("stage 0", c->frame.stage = XLA_INSTANTIATE);
  BAD("stage 2", c->frame.stage = XLA_INITIALIZE);
  call *c = make();
  c->frame.attributes.head.size += 8;
  c->frame.head.size += 8;
  check(!qn_xla_cpu_step(&c->frame), "a frame that grew at its end is fine: %s", qn_last_error());
  join_all();
  drop(c);
}

static void bad_attributes(void)
{
  static int64_t ids[N];
  BAD("the attribute op is missing", c->name[at(c, "op")].length = 1);
  BAD("\"lions\", did you mean \"lion\"", c->text[at(c, "op")] = ((xla_span){"lions", 5}));
  BAD("op is no text", c->attribute_kinds[at(c, "op")] = XLA_SCALAR);
  BAD("2 tensors of grad and 3 of param", c->bits[at(c, "grad")] = 2);
  BAD("0 of param", c->bits[at(c, "param")] = 0);
  BAD("how many tensors", c->bits[at(c, "momentum")] = -1);
  BAD("how many tensors", c->bits[at(c, "momentum")] = INT64_MAX);
  BAD("there are 10 operands, and the attributes say 13", add_int(c, "master", N));
  BAD("momentum is NULL", (c->bits[at(c, "momentum")] = 0, c->frame.operands.n = 7, c->operands[6] = &c->operand[9],
                           c->frame.results.n = 3));
  BAD("\"momentun\" is none of its params", add_int(c, "momentun", 3));
  BAD("hyper is 2, it must be false or true", (c->scalar[at(c, "hyper")].type = XLA_S64, c->bits[at(c, "hyper")] = 2));
  BAD("maximize is 2, it must be false or true", add_int(c, "maximize", 2));
  BAD("maximize must be a number", add_text(c, "maximize", "yes"));
  BAD("eps must be a number", add_scalar(c, "eps", XLA_S8, 0, 0));
  BAD("seed is 0.5, it must be an integer", add_scalar(c, "seed", XLA_F64, 0, 0.5));
  BAD("decay is \"sq\", it must be one of lr|relative|squared", add_text(c, "decay", "sq"));
  BAD("decay is \"\"", add_text(c, "decay", ""));
  BAD("decay must be one of", add_int(c, "decay", 1));
  BAD("array of 3 integers of 64 bits", add_array(c, "tensor_id", XLA_S64, 2, ids));
  BAD("array of 3 integers of 64 bits", add_array(c, "tensor_id", XLA_S32, N, ids));
  BAD("array of 3 integers of 64 bits", add_int(c, "tensor_id", 1));
}

static void bad_arrays(void)
{
  static int64_t one = 1, two = 2, negative = -1, huge[] = {INT64_MAX, 3};
  static float scale[2];
  BAD("10 operands, and the attributes say 9", c->bits[at(c, "hyper")] = 0);
  BAD("there are 5 results, it writes 6", c->frame.results.n = 5);
  BAD("there are 8 results", (add_result(c, XLA_U8, NULL, 1, &one), add_result(c, XLA_U8, NULL, 1, &one)));
  BAD("operand 4 is of kind 7", c->kinds[4] = (xla_kind)7);
  BAD("operand 2 is described in 24 bytes", c->operand[2].head.size = 24);
  BAD("grad[1] is s32 (number 4), it must be a float", c->operand[4].type = XLA_S32);
  BAD("grad[1] is of another type (number 99)", c->operand[4].type = (xla_type)99);
  BAD("param[2] has 33 dimensions", c->operand[2].rank = 33);
  BAD("param[2] has -1 dimensions", c->operand[2].rank = -1);
  BAD("result 5 is not of the type and shape of momentum[2]", c->result[5].extents = &one);
  BAD("result 0 is not of the type and shape of param[0]", c->result[0].type = XLA_F16);
  BAD("result 0 is not of the type and shape of param[0]", c->result[0].rank = 0);
  BAD("hyper has 44 bytes, and the struct 48", c->hyper_extent = 11);
  BAD("extent 0 of hyper is -1", c->operand[9].extents = &negative);
  BAD("extent 1 of hyper is 3", (c->operand[9].rank = 2, c->operand[9].extents = huge));
  BAD("grad_scale must be one f32, and is 2 of f32",
      (add_int(c, "grad_scale", 1), c->frame.operands.n--, add_operand(c, XLA_F32, scale, 1, &two),
       add_operand(c, XLA_U32, &c->hyper, 1, &c->hyper_extent)));
  BAD("agreement has 2 bytes, it must have 16 a tensor, which are 48",
      (add_int(c, "agreement", 1), add_operand(c, XLA_U8, scale, 1, &two)));
  BAD("extent 0 of the workspace is -1", add_result(c, XLA_U8, NULL, 1, &negative));
}

/* The op's refusals come through, and the hyper struct is checked as params are. */
static void bad_calls(void)
{
  static int64_t two[] = {2};
  BAD("lr is -3, it must be", c->hyper.lr = -3);
  BAD("beta1 is 1, it must lie", c->hyper.beta1 = 1);
  BAD("shape 2 and param[0]", c->operand[3].extents = two);
  REFUSED(XLA_INVALID_ARGUMENT, "there is no kernel for", c->operand[3].type = XLA_F64);
  BAD("share memory", (c->operand[3].data = c->data[0][0]));
}

static void *no_memory(void *user, size_t bytes, size_t alignment)
{
  (void)user, (void)bytes, (void)alignment;
  return NULL;
}
static void no_release(void *user, void *memory, size_t bytes) { (void)user, (void)memory, (void)bytes; }

static void out_of_memory(void)
{
  const qn_allocator none = {no_memory, no_release, NULL};
  call *c = make(), *before = make();
  qn_allocator_set(&none);
  xla_error *error = qn_xla_cpu_step(&c->frame);
  qn_allocator_set(NULL);
  is_error(error, XLA_RESOURCE_EXHAUSTED, "the list of an XLA call", "no memory for the list");
  check(same_data(c, before), "nothing was written");
  drop(c), drop(before);
}

/* Attributes are told apart by their names alone. */
static void names(void)
{
  for (size_t o = 0; o < qn_op_count(); o++) {
    const qn_op_info *op = qn_op_at(o);
    bool distinct = true;
    for (size_t p = 0; p < op->n_params; p++) {
      distinct &= strcmp(op->params[p].name, "op") != 0;
      for (size_t role = 0; role < op->n_tensors; role++)
        distinct &= strcmp(op->params[p].name, op->tensors[role].name) && strcmp("op", op->tensors[role].name);
    }
    check(distinct, "%s: no param is called as a role, and none \"op\"", op->name);
  }
}

/* ---- a GPU, of the mock driver's ---- */
static void on_cuda(void)
{
  const qn_device device = {QN_CUDA, 1};
  call *c = make();
  void *memory = NULL;
  check(!qn_memory_allocate(device, 1 << 20, &memory) && !qn_stream_create(device, &stream), "memory and a stream: %s",
        qn_last_error());
  for (int k = 0; k < 10; k++) { /* small tensors; of operand 9, the hyper struct, the address only */
    c->operand[k].data = (char *)memory + k * 4096;
    if (k < 9) c->extent[k % 3] = 1000;
  }
  for (int k = 0; k < 6; k++) c->result[k].data = c->operand[k < 3 ? k : k + 3].data;
  c->frame.stage = XLA_INITIALIZE;
  stream_fails = true; /* of no concern yet */
  check(!qn_xla_cuda_step(&c->frame) && !mock()->launches(), "initialize launches nothing: %s", qn_last_error());
  const size_t loads = mock()->calls("cuLibraryLoadData"), calls = mock()->calls(NULL);
  check(loads == 1, "it loads the kernel");
  c->frame.stage = XLA_EXECUTE;
  is_error(qn_xla_cuda_step(&c->frame), XLA_INTERNAL, "the stream: no stream here", "no stream");
  stream_fails = false;
  check(!qn_xla_cuda_step(&c->frame), "a step: %s", qn_last_error());
  check(mock()->launches() == 1 && mock()->launch(0)->device == 1 && mock()->launch(0)->stream == stream,
        "is one launch, on the device and the stream that XLA named");
  check(mock()->calls(NULL) == calls + 4, "and nothing else");
  for (int k = 0; k < 6; k++) c->result[k].data = (char *)memory + (16 + k) * 4096;
  check(!qn_xla_cuda_step(&c->frame) && mock()->calls("cuMemcpyDtoDAsync") == 6, "results elsewhere: 6 copies first");
  ordinal_fails = true;
  is_error(qn_xla_cuda_step(&c->frame), XLA_INTERNAL, "the device's number: no number here", "no number");
  ordinal_fails = false;
  c->api.head.size = offsetof(xla_api, ordinal_get);
  is_error(qn_xla_cuda_step(&c->frame), XLA_INVALID_ARGUMENT, "does not tell a device's number", "an old XLA");
  check(!live_errors && !theirs.code, "every error was given back");
  qn_stream_destroy(device, &stream);
  qn_memory_release(device, memory);
  drop(c);
}

static void without_driver(void)
{
  call *c = make();
  is_error(qn_xla_cuda_step(&c->frame), XLA_FAILED_PRECONDITION, "missing.so", "no driver");
  drop(c);
}

int main(void)
{
  versions();
  in_place();
  apart();
  late_tasks();
  without_threads();
  attributes();
  by_operands();
  bad_frames();
  bad_attributes();
  bad_arrays();
  bad_calls();
  out_of_memory();
  names();
  check(!live_errors, "every error was given back");
  scenario(MOCK_CUDA, "devices=2", MOCK_NVRTC, "", on_cuda);
  scenario("/nowhere/missing.so", "", MOCK_NVRTC, "", without_driver);
  return test_end();
}
