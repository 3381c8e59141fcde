/* SPDX-License-Identifier: Apache-2.0 */
/* emulator.c - device kernels on the processor: the geometry of a launch, the words of base/kernel.h, the compile
 * with everything that can be wrong with a compiler, and what is left behind (nothing). */
#include "device/emulator/child.h"
#include "device/emulator/emulator.h"
#include "device/preprocess.h"
#include "cpu/tier.h"
#include "scratch.h"
#include "test.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

static const qn_device emulator = {QN_EMULATOR, 0};
static const qn_backend *const b = &qn_backend_emulator;
static char *logged;

static void keep_log(void *user, qn_log_level level, const char *text)
{
  (void)user, (void)level;
  free(logged);
  logged = strdup(text);
}

#define PRELUDE "#include \"base/kernel.h\"\n"

static qn_device_function *function_of(const char *text, const char *const *defines, const char *name)
{
  const qn_unit unit = {.source = "test.cu", .text = text, .defines = defines};
  qn_image image = {0};
  qn_module *module = NULL;
  qn_device_function *function = NULL;
  qn_status status = b->compile(emulator, &unit, &image);
  if (status == QN_OK) status = b->module_load(emulator, image.data, image.bytes, &module);
  if (status == QN_OK) status = b->module_function(emulator, module, name, &function);
  check(status == QN_OK, "kernel %s compiles, loads and is found", name);
  qn_image_free(&image);
  return function;
}

static qn_status launch(const qn_device_function *function, uint64_t blocks, uint32_t threads, qn_pool *pool,
                        const void *argument, size_t bytes)
{
  return b->launch(
      emulator, function,
      &(qn_launch){.blocks = blocks, .threads = threads, .pool = pool, .argument = argument, .argument_bytes = bytes});
}

/* ---- geometry ---- */
typedef struct visit_args {
  uint32_t *seen;
  uint64_t blocks, wrong, *tally;
  uint32_t threads;
} visit_args;

static const char visit_text[] =
    PRELUDE "struct visit_args { qn_u32 *seen; qn_u64 blocks, wrong; qn_u64 *tally; qn_u32 threads; };\n"
            "QN_KERNEL(visit, visit_args, a) {\n"
            "  bool right = qn_blocks() == a.blocks && qn_block_threads() == a.threads && qn_block() < a.blocks &&\n"
            "               qn_thread() < a.threads;\n"
            "  qn_tally_add(a.tally, right ? 1 : 1000000007u);\n"
            "  if (right) a.seen[qn_block() * qn_block_threads() + qn_thread()]++;\n"
            "}\n";

static void every_index_once(void)
{
  static const uint64_t block_counts[] = {0, 1, 15, 16, 17, 33, 1000};
  static const uint32_t thread_counts[] = {1, 32, 255, 1024};
  qn_device_function *f = function_of(visit_text, NULL, "visit");
  if (!f) return;
  for (int n_threads = 0; n_threads <= 4; n_threads += 2) {
    qn_pool *pool = NULL;
    unsigned wrong = 0, runs = 0;
    if (n_threads) qn_pool_create(&pool, n_threads);
    for (size_t i = 0; i < sizeof block_counts / sizeof *block_counts; i++)
      for (size_t j = 0; j < sizeof thread_counts / sizeof *thread_counts; j++, runs++) {
        size_t n = (size_t)block_counts[i] * thread_counts[j];
        uint64_t tally = 5;
        uint32_t *seen = calloc(n + 1, sizeof *seen);
        visit_args a = {seen, block_counts[i], 0, &tally, thread_counts[j]};
        wrong += launch(f, block_counts[i], thread_counts[j], pool, &a, sizeof a) != QN_OK;
        for (size_t k = 0; k < n; k++) wrong += seen[k] != 1;
        wrong += tally != 5 + n || seen[n];
        free(seen);
      }
    check(!wrong, "%d threads: %u launches visit every block and thread once, tallies are exact", n_threads, runs);
    qn_pool_destroy(&pool);
  }
}

/* ---- the cut: groups are the same with and without a pool, and a pool's threads take part ---- */
static struct {
  pthread_mutex_t lock;
  uint64_t first[64], last[64];
  pthread_t thread[64];
  int n, want_threads;
} cut = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int threads_seen(void)
{
  int n = 0;
  for (int i = 0; i < cut.n; i++) {
    int j = 0;
    while (!pthread_equal(cut.thread[j], cut.thread[i])) j++;
    n += j == i;
  }
  return n;
}

/* A kernel of our own making: notes its range, then waits (at most 10 s) until as many threads as wanted have come. */
static void note_range(const void *argument, unsigned long long first, unsigned long long last,
                       unsigned long long blocks, unsigned threads)
{
  (void)argument, (void)blocks, (void)threads;
  pthread_mutex_lock(&cut.lock);
  cut.first[cut.n] = first;
  cut.last[cut.n] = last;
  cut.thread[cut.n++] = pthread_self();
  pthread_mutex_unlock(&cut.lock);
  for (int ms = 0, enough = 0; ms < 10000 && !enough; ms++) {
    pthread_mutex_lock(&cut.lock);
    enough = threads_seen() >= cut.want_threads;
    pthread_mutex_unlock(&cut.lock);
    if (!enough) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

static int has_range(const uint64_t *first, const uint64_t *last, int n, uint64_t from, uint64_t to)
{
  int found = 0;
  for (int k = 0; k < n; k++) found += first[k] == from && last[k] == to;
  return found;
}

static void the_cut_is_fixed(void)
{
  uint64_t first[64], last[64];
  int n, wrong = 0;
  qn_pool *pool = NULL;
  qn_device_function *f = calloc(1, sizeof *f + 8);
  f->run = note_range;
  f->argument_bytes = 4;
  cut.want_threads = 1;
  launch(f, 300, 32, NULL, "abc", 4);
  n = cut.n;
  memcpy(first, cut.first, sizeof first);
  memcpy(last, cut.last, sizeof last);
  cut.n = 0;
  cut.want_threads = 3;
  qn_pool_create(&pool, 3);
  launch(f, 300, 32, pool, "abc", 4);
  check(threads_seen() == 3, "a pool of 3 runs a launch on %d threads", threads_seen());
  for (int k = 0; k < cut.n; k++) wrong += has_range(first, last, n, cut.first[k], cut.last[k]) != 1;
  check(n > 3 && cut.n == n && !wrong, "300 blocks: %d groups serially, %d with a pool, %d of them others", n, cut.n,
        wrong);
  qn_pool_destroy(&pool);
  free(f);
}

/* ---- arithmetic: IEEE control words whatever the caller has set, no contraction in any tier ---- */
typedef struct sum_args {
  float x, y, z, sum, small;
} sum_args;
typedef struct sum_pointer {
  sum_args *at;
} sum_pointer;

static const char sum_text[] =
    PRELUDE "struct sum_args { float x, y, z, sum, small; };\nstruct sum_pointer { sum_args *at; };\n"
            "QN_KERNEL(sum, sum_pointer, a) { a.at->sum = a.at->x * a.at->y + a.at->z; a.at->small *= 0.5f; }\n";

static void flush_to_zero(bool on)
{
#if defined(__x86_64__)
  unsigned word = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(on ? word | 0x8040u : word & ~0x8040u);
#elif defined(__aarch64__)
  uint64_t word;
  __asm__ volatile("mrs %0, fpcr" : "=r"(word));
  word = on ? word | 1u << 24 : word & ~(UINT64_C(1) << 24);
  __asm__ volatile("msr fpcr, %0" ::"r"(word));
#else
  (void)on;
#endif
}

static void arithmetic_is_ieee(const char *tier)
{
  /* exactly x * y = 1 + 2^-11 + 2^-24; rounded it loses 2^-24, and with z = -(1 + 2^-11) the sum shows which it was */
  sum_args a = {0x1.001p0f, 0x1.001p0f, -0x1.002p0f, -1, 0x1p-140f};
  qn_device_function *f = function_of(sum_text, NULL, "sum");
  if (!f) return;
  flush_to_zero(true);
  launch(f, 1, 1, NULL, &(sum_pointer){&a}, sizeof(sum_pointer));
  flush_to_zero(false);
  check(a.sum == 0, "%s: x * y + z is not contracted (%a)", tier, (double)a.sum);
  check(a.small == 0x1p-141f, "%s: a denormal stays one under the caller's flush-to-zero (%a)", tier, (double)a.small);
}

static const char flags_text[] = PRELUDE
    "struct flags_args { int *flags; };\nQN_KERNEL(flags, flags_args, a) {\n  int flags = 0;\n"
    "#ifdef __AVX2__\n  flags |= 1;\n#endif\n#ifdef __FMA__\n  flags |= 2;\n#endif\n#ifdef __F16C__\n  flags |= 4;\n"
    "#endif\n#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)\n"
    "  flags |= 8;\n#endif\n#ifdef __AVX512VNNI__\n  flags |= 16;\n#endif\n  *a.flags = flags;\n}\n";

static void flags_follow_the_tier(void)
{
  static const int wanted[QN_TIER_COUNT] = {[QN_TIER_AVX2] = 7, [QN_TIER_AVX512] = 15};
  static char texts[QN_TIER_COUNT][8192];
  for (qn_tier tier = QN_TIER_REF; tier < QN_TIER_ORACLE; tier++) {
    int flags = -1;
    if (!qn_tier_built(tier) || qn_tier_of_bf16(tier)) continue; /* kernels are compiled for avx512 then */
    if (!qn_tier_runs_here(tier)) {
      refuses((qn_option_set("cpu", qn_tier_name(tier)), b->target(emulator, texts[tier], sizeof texts[tier])),
              QN_UNSUPPORTED, qn_tier_name(tier));
      continue;
    }
    qn_option_set("cpu", qn_tier_name(tier));
    qn_status status = b->target(emulator, texts[tier], sizeof texts[tier]);
    check(status == QN_OK && strstr(texts[tier], qn_tier_name(tier)) && !strstr(texts[tier], "native"),
          "target names tier %s: %.*s", qn_tier_name(tier), (int)strcspn(texts[tier], "\n"), texts[tier]);
    for (qn_tier k = QN_TIER_REF; k < tier; k++)
      if (texts[k][0])
        check(strcmp(texts[k], texts[tier]), "targets %s and %s differ", qn_tier_name(k), qn_tier_name(tier));
    qn_device_function *f = function_of(flags_text, NULL, "flags");
    if (f) launch(f, 1, 1, NULL, &(int *){&flags}, sizeof(int *));
    check(flags == wanted[tier], "tier %s is compiled with its own flags and no others: %d, not %d", qn_tier_name(tier),
          flags, wanted[tier]);
    arithmetic_is_ieee(qn_tier_name(tier));
  }
  qn_option_set("cpu", NULL);
}

/* ---- modules ---- */
static void every_load_is_its_own(void)
{
  const qn_unit unit = {.source = "count.cu",
                        .text = PRELUDE "static int calls;\nstruct count_args { int *calls; };\n"
                                        "QN_KERNEL(count, count_args, a) { *a.calls = ++calls; }\n"};
  qn_image image = {0};
  qn_module *modules[8];
  qn_device_function *f;
  int calls = 0, wrong = 0;
  check(b->compile(emulator, &unit, &image) == QN_OK, "a kernel with a variable compiles");
  for (int k = 0; k < 8; k++) {
    if (b->module_load(emulator, image.data, image.bytes, &modules[k]) != QN_OK ||
        b->module_function(emulator, modules[k], "count", &f) != QN_OK ||
        launch(f, 1, 1, NULL, &(int *){&calls}, sizeof(int *)) != QN_OK)
      wrong++;
    wrong += calls != 1;
  }
  check(!wrong, "eight loads are eight libraries: %d wrong", wrong);
  qn_device_function *again = NULL;
  b->module_function(emulator, modules[7], "count", &again);
  check(again == f, "a function is found once");
  refuses(b->module_function(emulator, modules[7], "missing", &f), QN_BAD_ARGUMENT, "\"missing\"");
  refuses(b->module_load(emulator, "not an object", 13, &modules[0]), QN_BAD_FILE, "13 bytes");
  memset((char *)image.data + 64, 0, image.bytes - 64); /* an ELF header with nothing behind it */
  refuses(b->module_load(emulator, image.data, image.bytes, &modules[0]), QN_BAD_FILE, "TMPDIR");
  qn_image_free(&image);
}

static void launches_are_checked(void)
{
  qn_device_function *f = function_of(visit_text, NULL, "visit");
  visit_args a = {0};
  if (!f) return;
  refuses(launch(f, 1, 0, NULL, &a, sizeof a), QN_BAD_ARGUMENT, "0 threads");
  refuses(launch(f, 1, 1025, NULL, &a, sizeof a), QN_BAD_ARGUMENT, "1025 threads");
  refuses(launch(f, UINT64_C(1) << 31, 1, NULL, &a, sizeof a), QN_BAD_ARGUMENT, "2147483648 blocks");
  refuses(launch(f, 1, 1, NULL, &a, sizeof a - 8), QN_BAD_ARGUMENT, "40 bytes, the launch gives 32");
}

/* ---- vector accesses ---- */
typedef struct move_args {
  const char *from;
  char *to;
  uint64_t narrow;
} move_args;

/* By 16 bytes and by 8, as a loop and as fibers: who begins at an address that is no multiple of it fails, as on a GPU,
 * and says the size; with a pool, too. */
static void misaligned_vectors_fail(void)
{
  static const char text[] =
      PRELUDE "#include \"base/collective.h\"\n"
              "struct move_args { const char *from; char *to; qn_u64 narrow; };\n"
              "QN_FN void move(const move_args &a, qn_u64 i) {\n"
              "  if (a.narrow) qn_store8(a.to + 8 * i, qn_load8(a.from + 8 * i));\n"
              "  else qn_store16(a.to + 16 * i, qn_load16(a.from + 16 * i));\n}\n"
              "QN_KERNEL(move_loop, move_args, a) { move(a, qn_block() * 32 + qn_thread()); }\n"
              "QN_GROUP_KERNEL(move_fibers, move_args, a) { move(a, qn_block() * 32 + qn_thread()); qn_barrier(); }\n";
  static const struct {
    unsigned from, to, narrow;
    const char *said; /* NULL: it is right */
  } cases[] = {{0, 0, 0, NULL},  {4, 0, 0, "16 bytes at address"}, {0, 8, 0, "16 bytes at address"},
               {8, 16, 1, NULL}, {4, 8, 1, "8 bytes at address"},  {8, 2, 1, "8 bytes at address"}};
  enum { BYTES = 64 * 32 * 16 };
  static _Alignas(16) char from[BYTES + 32], to[BYTES + 32];
  qn_pool *pool = NULL;
  qn_pool_create(&pool, 2);
  for (int fibers = 0; fibers < 2; fibers++) {
    qn_device_function *f = function_of(text, NULL, fibers ? "move_fibers" : "move_loop");
    for (size_t k = 0; f && k < 2 * sizeof cases / sizeof *cases; k++) {
      const move_args a = {from + cases[k / 2].from, to + cases[k / 2].to, cases[k / 2].narrow};
      const qn_status status = launch(f, 64, 32, k % 2 ? pool : NULL, &a, sizeof a);
      if (cases[k / 2].said)
        refuses(status, QN_KERNEL_ERROR, cases[k / 2].said);
      else
        check(status == QN_OK, "aligned vectors move: %s", qn_last_error());
    }
  }
  qn_pool_destroy(&pool);
}

/* ---- compilers and their failures ---- */
static qn_status compile_text(const char *text)
{
  qn_image image = {0};
  qn_status status = b->compile(emulator, &(qn_unit){.source = "dir/broken.cu", .text = text}, &image);
  qn_image_free(&image);
  return status;
}

/* A kernel that calls the C library says so; one that does not, whose link never looked at a library, names none. */
static void libraries_where_they_are_called(void)
{
  static const char *const bodies[] = {"b.x[0] = b.x[1] * 2;", "b.x[0] = __builtin_exp(b.x[1]);",
                                       "__builtin_memcpy(b.x, b.x + b.n, b.n);"};
  char text[512];
  for (int k = 0; k < 3; k++) {
    qn_image image = {0};
    snprintf(text, sizeof text, PRELUDE "struct a { double *x; qn_u64 n; };\nQN_KERNEL(one, a, b) { %s }\n", bodies[k]);
    if (check(b->compile(emulator, &(qn_unit){.source = "one.cu", .text = text}, &image) == QN_OK, "%s compiles",
              bodies[k]))
      check((memmem(image.data, image.bytes, "libm.so", 7) != NULL) == (k == 1), "\"%s\" asks for %s", bodies[k],
            k == 1 ? "its library" : "no library");
    qn_image_free(&image);
  }
}

static void errors_name_the_line(void)
{
  refuses(compile_text(PRELUDE "// two\nint x = undeclared_here;\nint y = also_undeclared;\n"), QN_COMPILE_ERROR,
          "dir/broken.cu:3");
  check(strstr(qn_last_error(), "undeclared_here") && !strchr(qn_last_error(), '\n'), "the sentence is one line: %s",
        qn_last_error());
  check(logged && strstr(logged, "also_undeclared"), "the log has the compiler's whole text");
  refuses(compile_text(PRELUDE "\n#include \"base/missing.h\"\n"), QN_BAD_ARGUMENT,
          "broken.cu:3 includes \"base/missing.h\"");
  refuses(b->compile(emulator, &(qn_unit){.source = "op/none.cu"}, &(qn_image){0}), QN_BAD_ARGUMENT, "\"op/none.cu\"");
}

/* A source is put in once, but not where an #if may hide it; and lines keep their numbers. */
static void includes_are_put_in(const char *opening)
{
  char text[1024];
  snprintf(text, sizeof text, "%s%s", opening,
           "#ifdef NEVER\n#include \"base/kernel.h\"\n#endif\n"
           "  #  include \"base/kernel.h\" // again\n"
           "#include \"base/kernel.h\"\n"
           "struct a { int x; };\nQN_KERNEL(nothing, a, b) { (void)b; }\nint line = eleven;\n");
  const char *const defines[] = {"eleven=11", "NAMED", NULL}, *const none[] = {NULL};
  qn_unit unit = {.source = "dir/broken.cu", .text = text, .defines = defines};
  qn_text all = {0};
  qn_image image = {0};
  int times = 0;
  check(qn_preprocess(&unit, &all) == QN_OK, "a text with includes is put together");
  for (const char *at = all.at; at && (at = strstr(at, "#ifndef QN_BASE_KERNEL_H")); at++) times++;
  check(times == 2, "what is included under an #if and twice outside stands there %d times", times);
  check(all.at && strstr(all.at, "#define eleven 11\n#define NAMED 1\n") == all.at, "the defines come first");
  check(b->compile(emulator, &unit, &image) == QN_OK, "and it compiles");
  qn_image_free(&image);
  unit.defines = none;
  refuses(b->compile(emulator, &unit, &image), QN_COMPILE_ERROR, "broken.cu:11:");
  qn_text_free(&all);
}

static const char *script(const char *name, const char *body)
{
  char text[512];
  const char *path = scratch_path(name);
  snprintf(text, sizeof text, "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'script 7.8.9'; exit 0; fi\n%s\n", body);
  write_file(path, text, strlen(text), 0755);
  return path;
}

static void compilers_fail_in_many_ways(void)
{
  char target[8192], kept[512];
  const char *cxx = getenv("CXX");
  snprintf(kept, sizeof kept, "%s", cxx ? cxx : "");
  qn_option_set("cxx", "/nonexistent/c++");
  refuses(compile_text(""), QN_NO_LIBRARY, "\"/nonexistent/c++\" (option cxx)");
  qn_option_set("cxx", "g++ -m64");
  refuses(compile_text(""), QN_NO_LIBRARY, "without arguments");
  qn_option_set("cxx", NULL);
  setenv("CXX", "no-such-compiler", 1);
  refuses(compile_text(""), QN_NO_LIBRARY, "\"no-such-compiler\" ($CXX)");
  qn_device_info info = {.size = sizeof info};
  check(b->query(emulator, &info) == QN_OK && info.compiler_version == 0 && strstr(qn_last_error(), "no-such-compiler"),
        "a query without a compiler works and says why it has none");
  setenv("CXX", kept, 1); /* an empty one counts as not set */
  check(b->query(emulator, &info) == QN_OK && info.compiler_version >= 4000 && strchr(info.compiler_path, '/'),
        "a query names the compiler: %d, %s", info.compiler_version, info.compiler_path);
  qn_option_set("cxx", "/bin/false");
  refuses(compile_text(""), QN_NO_LIBRARY, "no compiler that works");
  qn_option_set("cxx", script("dies", "kill -SEGV $$"));
  refuses(compile_text(""), QN_COMPILE_ERROR, "signal 11");
  check(b->target(emulator, target, sizeof target) == QN_OK && strstr(target, "script 7.8.9"),
        "the version is in the target");
  qn_option_set("cxx", script("silent", "exit 3"));
  refuses(compile_text(""), QN_COMPILE_ERROR, "said nothing");
  qn_option_set("cxx", script("makes_nothing", "exit 0"));
  refuses(compile_text(""), QN_IO_ERROR, "wrote no kernel");
  qn_option_set("cxx", NULL);
}

/* Until init has taken it, a dead process is a zombie. */
static bool is_gone(pid_t pid)
{
  char path[64], line[256] = "";
  for (int ms = 0; ms < 10000 && pid > 0; ms++) {
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    const bool there = file && fgets(line, sizeof line, file);
    if (file) fclose(file);
    if (!there || strstr(line, ") Z")) return true;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  return false;
}

/* A process that is killed while it compiles leaves neither the compiler, nor what that started, nor a file. */
static void nothing_outlives_its_process(void)
{
  char text[1024], line[64] = "";
  const char *place = scratch_path("killed-tmp"), *numbers = scratch_path("numbers");
  snprintf(text, sizeof text, "sleep 1000 & echo $$ $! > %s.part; mv %s.part %s; wait", numbers, numbers, numbers);
  const char *compiler = script("waits", text);
  mkdir(place, 0700);
  for (int turn = 0; turn < 3; turn++) {
    static const int how[] = {SIGINT, SIGTERM, SIGKILL};
    unlink(numbers);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
      signal(SIGINT, SIG_DFL);
      setenv("TMPDIR", place, 1);
      qn_option_set("cxx", compiler);
      compile_text("");
      _exit(0);
    }
    for (int ms = 0; ms < 10000 && access(numbers, F_OK); ms++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    int first = 0, second = 0, status;
    FILE *file = fopen(numbers, "r");
    if (file && fgets(line, sizeof line, file)) sscanf(line, "%d %d", &first, &second);
    if (file) fclose(file);
    kill(pid, how[turn]);
    waitpid(pid, &status, 0);
    check(WIFSIGNALED(status) && WTERMSIG(status) == how[turn], "signal %d ends a process that compiles", how[turn]);
    check(first > 0 && second > 0 && is_gone(first) && is_gone(second),
          "its compiler (%d) and that one's child (%d) end", first, second);
    check(files_in(place) == 0, "no file stays");
  }
}

/* A file that a text opens would be missing from its key. */
static void texts_open_nothing(void)
{
  char text[1024];
  const char *file = scratch_path("opened.h");
  write_file(file, "// nothing\n", 11, 0600);
  snprintf(text, sizeof text, PRELUDE "#include \"%s\"\nQN_KERNEL(nothing, int, a) { (void)a; }\n", file);
  refuses(compile_text(text), QN_BAD_ARGUMENT, "opened.h");
  snprintf(text, sizeof text, PRELUDE "__asm__(\".section .note\\n.incbin \\\"%s\\\"\\n.text\");\n", file);
  check(compile_text(text) != QN_OK && (strstr(qn_last_error(), "opened.h") || strstr(qn_last_error(), "disabled")),
        "a file that an assembler reads: %s", qn_last_error());
  refuses(compile_text(PRELUDE "#include <stdint.h>\n"), QN_COMPILE_ERROR, "stdint.h");
}

static void a_late_child_is_killed(void)
{
  char *argv[] = {(char *)(uintptr_t)script("sleeps", "sleep 1000 & echo $!; wait"), NULL};
  qn_text said = {0};
  qn_child child = {0};
  struct timespec from, to;
  clock_gettime(CLOCK_MONOTONIC, &from);
  qn_status status = qn_child_run(argv, "", 0, NULL, 0, 300, &said, &child);
  clock_gettime(CLOCK_MONOTONIC, &to);
  pid_t grandchild = said.at ? (pid_t)atoi(said.at) : 0;
  check(status == QN_OK && child.end == QN_CHILD_TIMED_OUT && to.tv_sec - from.tv_sec < 60,
        "a child over its limit ends");
  check(grandchild > 0 && is_gone(grandchild), "and what it started ends with it (%d)", (int)grandchild);
  qn_text_free(&said);
}

/* The caller's process is as it was: files, children, signals; and no temporary file stays. */
static atomic_int signals_seen;
static void on_child(int number) { (void)number, atomic_fetch_add(&signals_seen, 1); }

static void nothing_is_left(void)
{
  static const char good[] = PRELUDE "struct a { int x; };\nQN_KERNEL(nothing, a, b) { (void)b; }\n";
  const char *place = scratch_path("tmp");
  struct sigaction was = {.sa_handler = on_child}, is;
  mkdir(place, 0700);
  setenv("TMPDIR", place, 1);
  check(compile_text(good) == QN_OK, "a kernel compiles in TMPDIR");
  int before = open_files();
  sigaction(SIGCHLD, &was, NULL);
  check(compile_text(good) == QN_OK && compile_text("broken") == QN_COMPILE_ERROR, "and under a handler for SIGCHLD");
  signal(SIGCHLD, SIG_IGN);
  check(compile_text(good) == QN_OK, "and with SIGCHLD ignored, where a child's status is lost: %s", qn_last_error());
  refuses(compile_text("broken"), QN_COMPILE_ERROR, "broken");
  sigaction(SIGCHLD, NULL, &is);
  check(is.sa_handler == SIG_IGN, "the caller's SIGCHLD is as it was");
  signal(SIGCHLD, SIG_DFL);
  check(open_files() == before, "files open: %d before, %d after", before, open_files());
  check(!has_children(), "no child is left");
  check(files_in(place) == 0, "TMPDIR is empty: %d files", files_in(place));
  setenv("TMPDIR", "/proc/none", 1);
  check(compile_text(good) == QN_OK, "a compile needs no place for temporary files: %s", qn_last_error());
  unsetenv("TMPDIR");
}

/* The compiler starts with default signals and an open mask, however the caller has them. */
static void signals_are_fresh(void)
{
  char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, (char[]){"exec grep Sig /proc/self/status"}, NULL};
  unsigned long long blocked = 1, ignored = 1;
  qn_text said = {0};
  qn_child child = {0};
  sigset_t set, was;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, &was);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_IGN);
  qn_status status = qn_child_run(argv, "", 0, NULL, 0, 10000, &said, &child);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGCHLD, SIG_DFL);
  pthread_sigmask(SIG_SETMASK, &was, NULL);
  const char *block = said.at ? strstr(said.at, "SigBlk:") : NULL,
             *ignore = said.at ? strstr(said.at, "SigIgn:") : NULL;
  if (block) blocked = strtoull(block + 7, NULL, 16);
  if (ignore) ignored = strtoull(ignore + 7, NULL, 16) & 0x7fffffff; /* the two behind are the C library's own */
  check(status == QN_OK && !blocked && !ignored, "a child has no signal blocked (%llx) or ignored (%llx)", blocked,
        ignored);
  qn_text_free(&said);
}

/* Standard input and output closed: the numbers of our files must not be mixed up with the child's. */
static void closed_standard_files(void)
{
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    close(0), close(1), close(2);
    _exit(compile_text(PRELUDE "struct a { int x; };\nQN_KERNEL(nothing, a, b) { (void)b; }\n") == QN_OK ? 0 : 1);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  check(status == 0, "a caller that has closed standard input, output and error compiles: %d", status);
}

int main(void)
{
  scratch_begin();
  qn_log_set(keep_log, NULL, QN_LOG_WARNING);
  every_index_once();
  the_cut_is_fixed();
  flags_follow_the_tier();
  every_load_is_its_own();
  launches_are_checked();
  misaligned_vectors_fail();
  errors_name_the_line();
  includes_are_put_in("// one\n// two\n// three\n");
  includes_are_put_in("#ifndef HERE\n#define HERE\n#endif\n");
  compilers_fail_in_many_ways();
  a_late_child_is_killed();
  nothing_outlives_its_process();
  texts_open_nothing();
  libraries_where_they_are_called();
  nothing_is_left();
  signals_are_fresh();
  closed_standard_files();
  free(logged);
  return test_end();
}
