/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_function.c - functions with gradients: which tensors belong together, the three calls, and the check, which
 * has to pass right gradients and catch wrong ones at their place. The function: y[i] = s times the sum over j of A[i,
 * j] x[j]^2; s is a scalar, and so is `on`, a bool. */
#include "quern/kernel.h"
#include "test.h"
#include <math.h>

enum { N = 3 };

static const char forward_body[] = "uint i = thread_position_in_grid.x; double sum = 0;\n"
                                   "for (int j = 0; j < n; j++) sum += A[i * n + j] * x[j] * x[j];\n"
                                   "y[i] = on ? s * sum : 0;";
static const char vjp_body[] = "uint j = thread_position_in_grid.x; double sum = 0, all = 0;\n"
                               "for (int i = 0; i < n; i++) {\n"
                               "  A_cotangent[i * n + j] = s * w[i] * x[j] * x[j]; sum += A[i * n + j] * w[i];\n"
                               "  double row = 0; for (int k = 0; k < n; k++) row += A[i * n + k] * x[k] * x[k];\n"
                               "  all += w[i] * row;\n"
                               "}\n"
                               "x_cotangent[j] = s * 2 * x[j] * sum;\n"
                               "if (j == 0) s_cotangent[0] = all;";
static const char jvp_body[] = "uint i = thread_position_in_grid.x; double sum = 0;\n"
                               "for (int j = 0; j < n; j++) {\n"
                               "  sum += A_tangent[i * n + j] * x[j] * x[j] * s;\n"
                               "  sum += 2 * s * A[i * n + j] * x[j] * x_tangent[j];\n"
                               "  sum += s_tangent * A[i * n + j] * x[j] * x[j];\n"
                               "}\n"
                               "t[i] = sum;";

static const char *const inputs[] = {"A", "x", "s", "on"}, *const outputs[] = {"y"};
static const char *const vjp_inputs[] = {"A", "x", "s", "on", "w", "y"};
static const char *const vjp_outputs[] = {"x_cotangent", "A_cotangent", "s_cotangent"}; /* another order: by name */
static const char *const jvp_inputs[] = {"A", "x", "s", "on", "A_tangent", "x_tangent", "s_tangent"};
static const char *const jvp_outputs[] = {"t"};

static qn_kernel *make(const char *name, size_t n_inputs, const char *const *in, size_t n_outputs,
                       const char *const *out, const char *body)
{
  qn_kernel *kernel = NULL;
  const qn_kernel_source source = {.size = sizeof source,
                                   .name = name,
                                   .n_inputs = n_inputs,
                                   .inputs = in,
                                   .n_outputs = n_outputs,
                                   .outputs = out,
                                   .body = body};
  if (qn_kernel_create(&kernel, &source) != QN_OK) printf("# %s\n", qn_last_error());
  return kernel;
}

/* ---- the point ---- */
static double a_data[N * N] = {0.5, -1.25, 2, 0.75, 1.5, -0.5, 3, 0.25, -2}, x_data[N] = {1.5, -0.5, 2}, s_data = 1.75;
static bool on_data = true;
static const qn_template templates[] = {{"n", {.kind = QN_VALUE_INT, .integer = N}}};
static const int64_t square[] = {N, N}, row[] = {N};
static const qn_device cpu = {QN_CPU, 0};

static qn_tensor tensor(void *data, qn_dtype dtype, int ndim, const int64_t *shape)
{
  return (qn_tensor){data, dtype, ndim, shape, NULL, cpu};
}

static void fill_inputs(qn_tensor in[4])
{
  in[0] = tensor(a_data, QN_F64, 2, square);
  in[1] = tensor(x_data, QN_F64, 1, row);
  in[2] = tensor(&s_data, QN_F64, 0, NULL);
  in[3] = tensor(&on_data, QN_BOOL, 0, NULL);
}

typedef struct point {
  qn_tensor in[4], out[1];
  qn_kernel_call forward, gradient;
  qn_gradient_check check;
} point;

static point *point_make(point *p)
{
  *p = (point){.forward = {.size = sizeof(qn_kernel_call),
                           .grid = {N, 1, 1},
                           .group = {N, 1, 1},
                           .n_templates = 1,
                           .templates = templates}};
  fill_inputs(p->in);
  p->out[0] = tensor(NULL, QN_F64, 1, row);
  p->gradient = p->forward;
  p->forward.inputs = p->in;
  p->forward.outputs = p->out;
  p->check = (qn_gradient_check){.size = sizeof p->check,
                                 .forward = &p->forward,
                                 .vjp = &p->gradient,
                                 .jvp = &p->gradient,
                                 .tolerance = 1e-6,
                                 .seed = 7};
  return p;
}

static qn_function *function_of(qn_kernel *forward, qn_kernel *vjp, qn_kernel *jvp)
{
  qn_function *f = NULL;
  const qn_function_source source = {sizeof source, "quadratic", forward, vjp, jvp};
  if (qn_function_create(&f, &source) != QN_OK) printf("# %s\n", qn_last_error());
  return f;
}

/* ---- right gradients ---- */
static void right_ones_pass(qn_kernel *forward, qn_kernel *vjp, qn_kernel *jvp)
{
  point p;
  qn_function *f = function_of(forward, vjp, jvp);
  const double before = a_data[4];
  for (uint64_t seed = 0; seed < 3; seed++) {
    point_make(&p)->check.seed = seed;
    check(qn_function_check(f, &p.check) == QN_OK && p.check.worst > 0 && p.check.worst < 1e-7,
          "right gradients agree, the worst by %.2g", p.check.worst);
  }
  check(a_data[4] == before, "the caller's point has not moved");
  const int64_t columns[] = {1, N};
  point_make(&p)->in[0].strides = columns;
  check(qn_function_check(f, &p.check) == QN_OK, "an input with strides is read by them");
  point_make(&p)->check.input = 1u << 1;
  check(qn_function_check(f, &p.check) == QN_OK, "one input alone");
  point_make(&p)->check.step = 1e-4;
  check(qn_function_check(f, &p.check) == QN_OK, "a step of the caller's");
  qn_function_destroy(&f);
  check(!f, "destroy sets NULL");
}

/* ---- wrong ones ---- */
/* The text with one place changed, which must be there. */
static void with(char *text, const char *body, const char *from, const char *to)
{
  const char *at = strstr(body, from);
  check(at != NULL, "the text has \"%s\"", from);
  sprintf(text, "%.*s%s%s", (int)(at - body), body, to, at + strlen(from));
}

static void wrong_vjp(qn_kernel *forward, const char *what, const char *from, const char *to, const char *words)
{
  point p;
  char text[2048];
  with(text, vjp_body, from, to);
  qn_kernel *vjp = make("wrong", 6, vjp_inputs, 3, vjp_outputs, text);
  qn_function *f = function_of(forward, vjp, NULL);
  printf("# %s\n", what);
  refuses(qn_function_check(f, &point_make(&p)->check), QN_KERNEL_ERROR, words);
  check(p.check.worst > 1e-6 || !strncmp(words, "is ", 3), "%s: off by %.2g", what, p.check.worst);
  qn_function_destroy(&f);
  qn_kernel_destroy(&vjp);
}

static void wrong_jvp(qn_kernel *forward, const char *what, const char *from, const char *to, const char *words)
{
  point p;
  char text[2048];
  with(text, jvp_body, from, to);
  qn_kernel *jvp = make("wrong", 7, jvp_inputs, 1, jvp_outputs, text);
  qn_function *f = function_of(forward, NULL, jvp);
  printf("# %s\n", what);
  refuses(qn_function_check(f, &point_make(&p)->check), QN_KERNEL_ERROR, words);
  qn_function_destroy(&f);
  qn_kernel_destroy(&jvp);
}

static void wrong_ones_are_caught(qn_kernel *forward)
{
  wrong_vjp(forward, "a factor of 2", "s * 2 * x[j]", "s * x[j]", "the cotangent of \"x\" at [");
  wrong_vjp(forward, "a factor at one element", "s * 2 * x[j] * sum", "s * (j == 1 ? 4 : 2) * x[j] * sum",
            "the cotangent of \"x\" at [1]");
  wrong_vjp(forward, "a matrix the wrong way round", "sum += A[i * n + j]", "sum += A[j * n + i]",
            "the cotangent of \"x\" at [");
  wrong_vjp(forward, "a missing term", "all += w[i] * row", "all += i == 2 ? 0 : w[i] * row",
            "the cotangent of \"s\" at []");
  wrong_vjp(forward, "one element of a matrix", "s * w[i] * x[j] * x[j]",
            "s * w[i] * x[j] * x[j] * (i == 2 && j == 1 ? 1.001 : 1)", "the cotangent of \"A\" at [2, 1]");
  wrong_vjp(forward, "an element that is not written", "if (j == 0) s_cotangent[0] = all", "", "is nan");
  wrong_vjp(forward, "an infinite element", "if (j == 0) s_cotangent[0] = all", "s_cotangent[0] = 1 / (s - s)",
            "is inf");
  wrong_jvp(forward, "a jvp without one tangent", "sum += s_tangent", "sum += 0 * s_tangent",
            "the tangent of \"y\" along \"s\" at [");
  wrong_jvp(forward, "a jvp with a factor", "2 * s * A", "s * A", "the tangent of \"y\" along \"x\" at [");
}

/* ---- points that prove nothing ---- */
static void odd_points(void)
{
  static const char *const in[] = {"x"}, *const out[] = {"y"}, *const vjp_in[] = {"x", "w"}, *const vjp_out[] = {"g"};
  const char *const forward_text = "uint i = thread_position_in_grid.x; y[i] = x[i] > 0 ? x[i] : 0.0 * x[i];";
  qn_kernel *forward = make("relu", 1, in, 1, out, forward_text);
  qn_kernel *vjp = make("relu_vjp", 2, vjp_in, 1, vjp_out,
                        "uint i = thread_position_in_grid.x; g[i] = x[i] > 0 ? w[i] : 0.0 * x[i];");
  qn_function *f = function_of(forward, vjp, NULL);
  double x[N] = {1, -1, 0.5};
  point p;
  point_make(&p)->in[0] = tensor(x, QN_F64, 1, row);
  check(qn_function_check(f, &p.check) == QN_OK, "a function with a kink agrees beside it");
  x[1] = 0;
  refuses(qn_function_check(f, &p.check), QN_KERNEL_ERROR, "it may not be smooth there");
  x[1] = NAN;
  refuses(qn_function_check(f, &p.check), QN_KERNEL_ERROR, "\"y\" at [1] is nan; where a function is not finite");
  x[0] = x[1] = x[2] = -1;
  check(qn_function_check(f, &p.check) == QN_OK && p.check.worst == 0, "gradients that are zero agree with zero");
  qn_function_destroy(&f);
  qn_kernel_destroy(&forward);
  qn_kernel_destroy(&vjp);
}

/* ---- refusals ---- */
static qn_status create(qn_kernel *forward, qn_kernel *vjp, qn_kernel *jvp)
{
  qn_function *f = (qn_function *)&f;
  const qn_function_source source = {sizeof source, "quadratic", forward, vjp, jvp};
  const qn_status status = qn_function_create(&f, &source);
  if (status != QN_OK) check(!f, "nothing is made");
  qn_function_destroy(&f);
  return status;
}

static void refuse_vjp(qn_kernel *forward, size_t n_in, const char *const *in, size_t n_out, const char *const *out,
                       const char *words)
{
  qn_kernel *kernel = make("g", n_in, in, n_out, out, ";");
  refuses(create(forward, kernel, NULL), QN_BAD_ARGUMENT, words);
  qn_kernel_destroy(&kernel);
}

static void refusals_at_creation(qn_kernel *forward, qn_kernel *vjp)
{
  static const char *const five[] = {"a", "b", "c", "d", "e", "f", "g"}, *const own[] = {"x_grad", "A_grad"};
  static const char *const many[] = {"p", "q", "r", "s", "t"};
  static const char *const twice[] = {"x_grad", "x_cotangent"}, *const foreign[] = {"x_grad", "q"};
  static const char *const swapped[] = {"x_grad", "p", "q", "r"};
  refuse_vjp(forward, 4, five, 1, own, "has 4 inputs; the forward has 4 inputs and 1 outputs, so it takes 5");
  refuse_vjp(forward, 7, five, 1, own, "or 6 (outputs besides)");
  refuse_vjp(forward, 5, five, 5, many, "has 5 outputs; the forward has 4 inputs");
  refuse_vjp(forward, 5, five, 2, twice, "\"x_grad\" and \"x_cotangent\" are both input \"x\"'s");
  refuse_vjp(forward, 5, five, 2, foreign, "\"q\" is no input's name");
  refuse_vjp(forward, 5, five, 4, swapped, "\"x_grad\" is number 0, but not all are named for inputs");
  qn_kernel *fewer = make("g", 5, five, 2, own, ";");
  check(create(forward, fewer, NULL) == QN_OK, "cotangents of some inputs, by name");
  refuses(create(forward, NULL, fewer), QN_BAD_ARGUMENT, "has 2 outputs; the forward has 1");
  refuses(create(forward, NULL, forward), QN_BAD_ARGUMENT, "has 4 inputs; the forward has 4, so it takes them and");
  refuses(create(NULL, vjp, NULL), QN_BAD_ARGUMENT, "the forward kernel is NULL");
  qn_kernel_destroy(&fewer);
  qn_function *f = NULL;
  qn_function_source source = {sizeof source, "2x", forward, NULL, NULL};
  refuses(qn_function_create(&f, &source), QN_BAD_ARGUMENT, "\"2x\" is no identifier");
  source.size = 8;
  refuses(qn_function_create(&f, &source), QN_BAD_ARGUMENT, "size 8");
  refuses(qn_function_create(&f, NULL), QN_BAD_ARGUMENT, "NULL");
  refuses(qn_function_create(NULL, &source), QN_BAD_ARGUMENT, "NULL");
  qn_function_destroy(NULL);
}

static void refusals_of_the_check(qn_kernel *forward, qn_kernel *vjp)
{
  point p;
  qn_function *f = function_of(forward, vjp, NULL), *none = function_of(forward, NULL, NULL);
  float single[N] = {0};
  point_make(&p)->in[1] = tensor(single, QN_F32, 1, row);
  refuses(qn_function_check(f, &p.check), QN_BAD_TYPE, "\"x\" is f32; gradients are checked in f64");
  point_make(&p)->out[0].dtype = QN_F16;
  refuses(qn_function_check(f, &p.check), QN_BAD_TYPE, "\"y\" is f16");
  point_make(&p)->in[1].device = (qn_device){QN_CUDA, 0};
  refuses(qn_function_check(f, &p.check), QN_BAD_ARGUMENT, "lies on cuda");
  point_make(&p)->in[1].data = NULL;
  refuses(qn_function_check(f, &p.check), QN_BAD_ARGUMENT, "data of \"x\" is NULL");
  point_make(&p)->check.vjp = NULL;
  refuses(qn_function_check(f, &p.check), QN_BAD_ARGUMENT, "the check no call for it");
  point_make(&p)->check.forward = NULL;
  refuses(qn_function_check(f, &p.check), QN_BAD_ARGUMENT, "no call of the forward");
  point_make(&p)->check.tolerance = 0;
  refuses(qn_function_check(f, &p.check), QN_BAD_ARGUMENT, "tolerance is 0");
  point_make(&p)->check.step = -1;
  refuses(qn_function_check(f, &p.check), QN_BAD_ARGUMENT, "step is -1");
  point_make(&p)->check.input = 1u << 3;
  refuses(qn_function_check(f, &p.check), QN_BAD_ARGUMENT, "input \"on\" is bool, which has no derivative");
  point_make(&p)->check.input = 1u << 9;
  refuses(qn_function_check(f, &p.check), QN_BAD_ARGUMENT, "0x200, and there are 4");
  const int kept[] = {0};
  point_make(&p)->forward.stored_in = kept;
  refuses(qn_function_check(f, &p.check), QN_BAD_ARGUMENT, "would move the point");
  refuses(qn_function_check(none, &point_make(&p)->check), QN_UNSUPPORTED, "neither vjp nor jvp");
  refuses(qn_function_check(NULL, &p.check), QN_BAD_ARGUMENT, "NULL");
  refuses(qn_function_check(f, NULL), QN_BAD_ARGUMENT, "NULL");
  qn_function_destroy(&f);
  qn_function_destroy(&none);
}

/* ---- the calls ---- */
static void calls(qn_kernel *forward, qn_kernel *vjp, qn_kernel *jvp)
{
  qn_function *f = function_of(forward, vjp, jvp), *bare = function_of(forward, NULL, NULL);
  const qn_exec exec = {.size = sizeof exec, .device = cpu};
  double y[N] = {0}, w[N] = {1, 0, 0}, gx[N] = {0}, ga[N * N] = {0}, gs = 0, tangent[N * N] = {0}, t[N] = {0};
  qn_tensor in[7], out[3] = {tensor(y, QN_F64, 1, row)};
  qn_kernel_call call = {.size = sizeof call,
                         .inputs = in,
                         .outputs = out,
                         .grid = {N, 1, 1},
                         .group = {N, 1, 1},
                         .n_templates = 1,
                         .templates = templates};
  fill_inputs(in);
  check(qn_function_forward(f, &exec, &call) == QN_OK && y[0] == 1.75 * (0.5 * 2.25 - 1.25 * 0.25 + 2 * 4), "forward");
  in[4] = tensor(w, QN_F64, 1, row);
  in[5] = tensor(y, QN_F64, 1, row);
  out[0] = tensor(gx, QN_F64, 1, row);
  out[1] = tensor(ga, QN_F64, 2, square);
  out[2] = tensor(&gs, QN_F64, 0, NULL);
  check(qn_function_vjp(f, &exec, &call) == QN_OK && gx[1] == 1.75 * 2 * -0.5 * -1.25 && gs == y[0] / 1.75, "vjp");
  refuses(qn_function_vjp(bare, &exec, &call), QN_UNSUPPORTED, "quadratic has no vjp");
  refuses(qn_function_jvp(bare, &exec, &call), QN_UNSUPPORTED, "quadratic has no jvp");
  out[1] = tensor(ga, QN_F64, 1, row);
  refuses(qn_function_vjp(f, &exec, &call), QN_BAD_ARGUMENT,
          "\"A_cotangent\" has the shape [3], and \"A\", which it "
          "belongs to, [3, 3]");
  out[1] = tensor(ga, QN_F64, 2, square);
  in[4] = tensor(w, QN_F64, 0, NULL);
  refuses(qn_function_vjp(f, &exec, &call), QN_BAD_ARGUMENT, "\"w\" has the shape []");
  in[4] = tensor(tangent, QN_F64, 2, square);
  in[5] = tensor(w, QN_F64, 1, row);
  in[6] = tensor(&gs, QN_F64, 0, NULL);
  out[0] = tensor(t, QN_F64, 1, row);
  gs = 0;
  check(qn_function_jvp(f, &exec, &call) == QN_OK && t[0] == 2 * 1.75 * 0.5 * 1.5, "jvp");
  in[5] = tensor(w, QN_F64, 0, NULL);
  refuses(qn_function_jvp(f, &exec, &call), QN_BAD_ARGUMENT, "\"x_tangent\" has the shape []");
  refuses(qn_function_forward(NULL, &exec, &call), QN_BAD_ARGUMENT, "NULL");
  refuses(qn_function_vjp(NULL, &exec, &call), QN_BAD_ARGUMENT, "NULL");
  refuses(qn_function_jvp(NULL, &exec, &call), QN_BAD_ARGUMENT, "NULL");
  refuses(qn_function_vjp(f, &exec, NULL), QN_BAD_ARGUMENT, "NULL");
  qn_function_destroy(&f);
  qn_function_destroy(&bare);
}

int main(void)
{
  qn_kernel *forward = make("quadratic", 4, inputs, 1, outputs, forward_body);
  qn_kernel *vjp = make("quadratic_vjp", 6, vjp_inputs, 3, vjp_outputs, vjp_body);
  qn_kernel *jvp = make("quadratic_jvp", 7, jvp_inputs, 1, jvp_outputs, jvp_body);
  calls(forward, vjp, jvp);
  right_ones_pass(forward, vjp, jvp);
  wrong_ones_are_caught(forward);
  odd_points();
  refusals_at_creation(forward, vjp);
  refusals_of_the_check(forward, vjp);
  qn_kernel_destroy(&forward);
  qn_kernel_destroy(&vjp);
  qn_kernel_destroy(&jvp);
  return test_end();
}
