/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_cost.c - what a kernel from its body costs the host: compiled cold, loaded from the disk, launched warm. It
 * prints and judges nothing: build/tests/kernel_cost [cuda]. Cold leaves out what a process does once (the compiler's
 * version, a driver, a context): another kernel was compiled before. */
#include "kernel_use.h"
#include "scratch.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

enum { TURNS = 15, LAUNCHES = 100000 };

static double now_us(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Of this process and of the compilers that it ran: what a busy machine does not blur. */
static double spent_us(void)
{
  double us = 0;
  for (int who = 0; who < 2; who++) {
    struct rusage r;
    getrusage(who ? RUSAGE_CHILDREN : RUSAGE_SELF, &r);
    us += (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e6 + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
  }
  return us;
}

static int by_size(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void tell(const char *what, double *us, int n, double scale, const char *unit)
{
  qsort(us, (size_t)n, sizeof *us, by_size);
  printf("%-44s least %8.3f   median %8.3f   most %8.3f %s\n", what, us[0] * scale, us[n / 2] * scale,
         us[n - 1] * scale, unit);
}

static qn_exec exec = {.size = sizeof exec};
static qn_tensor in, to;

static bool must(qn_status status)
{
  if (status) printf("failed: %s\n", qn_last_error());
  return !status;
}

static qn_kernel_call call_of(uint64_t n)
{
  return CALL(.inputs = &in, .outputs = &to, .grid = {n, 1, 1}, .group = {256, 1, 1});
}

/* A fresh kernel of that body, launched once: how long. */
static double first_launch(const char *body)
{
  qn_kernel *kernel = use_make(&(use){.name = "myexp", .inputs = "inp", .body = body});
  const qn_kernel_call call = call_of(1);
  const double start = now_us();
  const bool ok = must(qn_kernel_launch(kernel, &exec, &call));
  const double took = now_us() - start;
  qn_kernel_destroy(&kernel);
  return ok ? took : -1;
}

static void compiles(const char *what, const char *form)
{
  double cold[TURNS], spent[TURNS], memory[TURNS];
  char body[512];
  for (int k = 0; k < TURNS; k++) {
    snprintf(body, sizeof body, form, k);
    spent[k] = -spent_us();
    cold[k] = first_launch(body);
    spent[k] += spent_us();
    memory[k] = first_launch(body);
  }
  printf("%s\n", what);
  printf("%-44s %8.3f ms\n", "  compiled, the first", cold[0] * 1e-3);
  tell("  compiled, all", cold, TURNS, 1e-3, "ms");
  tell("  compiled, all, processor's time", spent, TURNS, 1e-3, "ms");
  tell("  another kernel of the same body", memory, TURNS, 1e-3, "ms");
}

/* Each load in a process of its own, since what is loaded stays. */
static void loads(const char *form, bool cuda)
{
  double *us = mmap(NULL, TURNS * sizeof *us, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  char body[512];
  if (cuda) return; /* a driver does not survive fork; `kernel_cost cuda` a second time finds all on disk */
  for (int k = 0; k < TURNS; k++) {
    snprintf(body, sizeof body, form, k);
    fflush(stdout);
    const pid_t pid = fork();
    if (!pid) {
      us[k] = first_launch(body);
      _exit(0);
    }
    waitpid(pid, NULL, 0);
  }
  tell("  loaded from the disk", us, TURNS, 1e-3, "ms");
  munmap(us, TURNS * sizeof *us);
}

static void launches(const char *what, const use *u, const qn_kernel_call *call)
{
  double us[TURNS];
  qn_kernel *kernel = use_make(u);
  if (!must(qn_kernel_launch(kernel, &exec, call))) return;
  for (int k = 0; k < TURNS; k++) {
    const int n = exec.device.kind == QN_CUDA ? 500 : LAUNCHES / TURNS;
    const double start = now_us();
    for (int j = 0; j < n; j++) qn_kernel_launch(kernel, &exec, call);
    us[k] = (now_us() - start) / n;
    qn_stream_synchronize(exec.device, exec.stream);
  }
  tell(what, us, TURNS, 1, "us");
  qn_kernel_destroy(&kernel);
}

int main(int argc, char **argv)
{
  static float x[1], y[1];
  static const int64_t one = 1;
  const bool cuda = argc > 1 && !strcmp(argv[1], "cuda");
  scratch_begin();
  if (!cuda) qn_option_set("cache_dir", scratch_path("cache"));
  void *from = x, *into = y;
  exec.device = (qn_device){cuda ? QN_CUDA : QN_CPU, 0};
  if (cuda && !(must(qn_memory_allocate(exec.device, 4, &from)) && must(qn_memory_allocate(exec.device, 4, &into)) &&
                must(qn_stream_create(exec.device, &exec.stream))))
    return EXIT_FAILURE;
  in = (qn_tensor){from, QN_F32, 1, &one, NULL, exec.device};
  to = (qn_tensor){into, QN_F32, 1, &one, NULL, exec.device};
  first_launch("out[0] = inp[0];");
  const char *plain = "uint i = thread_position_in_grid.x; out[i] = metal::exp(inp[i]); /* %d */";
  const char *group = "uint i = thread_position_in_grid.x; out[i] = simd_sum(inp[i]); /* %d */";
  compiles("exp, one line", plain);
  loads(plain, cuda);
  compiles("simd_sum, one line (fibers on the processor)", group);
  loads(group, cuda);
  const qn_kernel_call call = call_of(1);
  launches("exp of 1 element, launched warm",
           &(use){.name = "warm",
                  .inputs = "inp",
                  .body = "uint i = thread_position_in_grid.x; out[i] = metal::exp(inp[i]);"},
           &call);
  const qn_template t[] = {{"T", {.kind = QN_VALUE_DTYPE, .dtype = QN_F32}},
                           {"N", {.kind = QN_VALUE_INT, .integer = 3}}};
  const qn_value init = {.kind = QN_VALUE_FLOAT, .real = 0};
  qn_kernel_call more = call;
  more.n_templates = 2, more.templates = t, more.init = &init;
  launches(
      "with templates, contract, shape, first value",
      &(use){.name = "more",
             .inputs = "inp",
             .contracts = (const char *const[]){"f32 [n]", "inp.dtype [n]"},
             .body = "uint i = thread_position_in_grid.x; if (i < inp_shape[0]) out[i] = metal::exp(inp[i]) + T(N);"},
      &more);
  launches("simd_sum of 1 element (fibers)",
           &(use){.name = "fibers",
                  .inputs = "inp",
                  .body = "uint i = thread_position_in_grid.x; out[i] = simd_sum(inp[i]);"},
           &call);
  return EXIT_SUCCESS;
}
