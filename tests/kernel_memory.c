/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_memory.c - the k-th allocation fails, for every k of a kernel's creation, of a launch that compiles, that
 * loads from the disk, that copies an input, that is captured: a status that says so, nothing lost, nothing written,
 * and the same call works at the next try. */
#include "failing.h"
#include "kernel_use.h"
#include "scratch.h"

static int fault(const char *what, int k, int n)
{
  printf("# allocation %d: %s (%d), last error: %s\n", k, what, n, qn_last_error());
  fflush(stdout);
  return 1;
}

/* ---- the work ---- */
typedef struct work {
  const char *what, *body;
  bool strided, captured, prepared; /* prepared: the code is there before anything fails */
} work;

static float data[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[4];

static qn_status launch(qn_kernel *kernel, const work *w)
{
  static const int64_t two[] = {2, 2}, strides[] = {1, 4};
  const qn_tensor in = {data, QN_F32, 2, two, w->strided ? strides : NULL, cpu}, to = {out, QN_F32, 2, two, NULL, cpu};
  const qn_template t = {"N", {.kind = QN_VALUE_INT, .integer = 10}};
  const qn_value init = {.kind = QN_VALUE_FLOAT, .real = -2};
  const qn_kernel_call call =
      CALL(.inputs = &in, .outputs = &to, .n_templates = 1, .templates = &t, .init = &init, .grid = {4, 1, 1});
  return qn_kernel_launch(kernel, &serial, &call);
}

static bool right(const work *w)
{
  const float want[2][4] = {{11, 12, 13, 14}, {11, 15, 12, 16}};
  return !memcmp(out, want[w->strided], sizeof out);
}

static qn_status create(qn_kernel **kernel, const work *w)
{
  return use_create(kernel, &(use){.name = "frugal",
                                   .inputs = "a",
                                   .body = w->body,
                                   .header = "// nothing\n",
                                   .contracts = (const char *const[]){"f32 [n, n]", "a.dtype [n, n]"}});
}

/* All of it, from nothing to nothing; the first failure is the status. */
static qn_status all(const work *w)
{
  qn_kernel *kernel = NULL;
  qn_status status = create(&kernel, w);
  if (!status) status = launch(kernel, w);
  qn_kernel_destroy(&kernel);
  return status;
}

/* In a child. What the process learns once (the compiler's version, hooks for fork) it has learned with another kernel.
 */
static int one_failure(const work *w, int k)
{
  const work other = {.body = "out[thread_position_in_grid.x] = a[0] + N;"};
  const float before_launch[4] = {-1, -1, -1, -1};
  if (all(&other) || (w->prepared && all(w))) return fault("the first kernel does not run", k, 0);
  if (w->captured && qn_capture_start(scratch_path("captured"))) return fault("no capture", k, 0);
  memcpy(out, before_launch, sizeof out);
  const int before = atomic_load(&outstanding);
  atomic_store(&allocated, 0);
  atomic_store(&fail_at, k);
  const qn_status status = all(w);
  atomic_store(&fail_at, 0);
  if (atomic_load(&allocated) < k) return DONE;
  if (status == QN_OK) return right(w) ? 0 : fault("a wrong result", k, (int)out[0]);
  if (status != QN_NO_MEMORY) return fault("another status than QN_NO_MEMORY", k, (int)status);
  if (!strstr(qn_last_error(), "memory") && !strstr(qn_last_error(), "allocated"))
    return fault("a vague sentence", k, 0);
  if (memcmp(out, before_launch, sizeof out)) return fault("something was written", k, (int)out[0]);
  const int lost = atomic_load(&outstanding) - before;
  if (all(w) || !right(w)) return fault("the next try fails", k, 0);
  const int kept = atomic_load(&outstanding) - before; /* compiled and loaded kernels stay: no leak */
  return lost > kept ? fault("blocks lost", k, lost) : 0;
}

static void every_allocation_fails_once(const work *w, bool cold)
{
  int status = 0, k = 0;
  do {
    if (cold) scratch_empty(scratch_path("cache"));
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(60);
      _exit(one_failure(w, k + 1));
    }
    waitpid(pid, &status, 0);
    k++;
  } while (status == 0 && k < 300);
  check(WIFEXITED(status) && WEXITSTATUS(status) == DONE && k > 2, "%s: each of %d allocations failed once", w->what,
        k - 1);
}

int main(void)
{
  scratch_begin();
  qn_allocator_set(&(qn_allocator){hook_allocate, hook_release, NULL});
  qn_option_set("cache_dir", scratch_path("cache"));
  const char *body = "uint i = thread_position_in_grid.x; out[i] = a[i] + N;";
  every_allocation_fails_once(&(work){.what = "a compile", .body = body}, true);
  const work disk = {.what = "a load from disk", .body = body, .strided = true};
  every_allocation_fails_once(&disk, false);
  every_allocation_fails_once(&(work){.what = "a capture of a launch that copies",
                                      .body = body,
                                      .strided = true,
                                      .captured = true,
                                      .prepared = true},
                              false);
  return test_end();
}
