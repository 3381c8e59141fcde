/* SPDX-License-Identifier: Apache-2.0 */
/* scenario.h - a process opens one driver and one compiler, so each scenario of the mock tests runs in a child of its
 * own, with its own scripts. Its checks count as the parent's. MOCK_CUDA and MOCK_NVRTC are the libraries' paths. */
#ifndef QN_TESTS_MOCK_SCENARIO_H
#define QN_TESTS_MOCK_SCENARIO_H
#include "mock.h"
#include "test.h"
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* A library's exported function, from the copy that quern loaded. */
__attribute__((unused)) static void mock_symbol(const char *library, const char *name, void *pointer_to_function)
{
  void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  void *symbol = handle ? dlsym(handle, name) : NULL;
  if (!symbol) {
    printf("Bail out! %s is not loaded or has no %s\n", library, name);
    exit(EXIT_FAILURE);
  }
  memcpy(pointer_to_function, &symbol, sizeof symbol);
}

__attribute__((unused)) static const mock_api *mock(void)
{
  static const mock_api *api;
  const mock_api *(*get)(void);
  if (!api) {
    mock_symbol(MOCK_CUDA, "mock_cuda", &get);
    api = get();
  }
  return api;
}

/* Runs body in a child in which the options name these libraries and the mocks read these scripts. */
__attribute__((unused)) static void scenario(const char *driver, const char *script, const char *compiler,
                                             const char *compiler_script, void (*body)(void))
{
  struct {
    int count, failures;
  } *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    alarm(60); /* a hang is a failure, not a timeout of the whole */
    setenv("QUERN_LIBCUDA", driver, 1);
    setenv("QUERN_MOCK", script, 1);
    setenv("QUERN_LIBNVRTC", compiler, 1);
    setenv("QUERN_MOCK_NVRTC", compiler_script, 1);
    setenv("QUERN_LIBCUBLAS", "/nowhere/libcublasLt.so", 1); /* a test that wants one names it in the option */
    setenv("QUERN_TUNE_DIR", "/nowhere/tune", 1);
    setenv("QUERN_CACHE", "off", 1); /* the mock's output must not reach a cache */
    body();
    shared->count = test_count;
    shared->failures = test_failures;
    exit(EXIT_SUCCESS);
  }
  int status = 0;
  bool ended = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status);
  if (shared->count) {
    test_count = shared->count;
    test_failures = shared->failures;
  }
  munmap(shared, sizeof *shared);
  if (!ended) check(false, "the scenario \"%s\" \"%s\" ended with wait status 0x%x", script, compiler_script, status);
}
#endif
