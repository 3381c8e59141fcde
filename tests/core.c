/* SPDX-License-Identifier: Apache-2.0 */
/* core.c - tests of statuses, options, the log, allocation hooks, hashing and text. */
#include "core/core.h"
#include "core/source.h"
#include "test.h"
#include <pthread.h>

/* ---- statuses ---- */

static void *fail_elsewhere(void *own)
{
  const char *before = qn_last_error();
  bool empty = before && !*before;
  qn_fail(QN_IO_ERROR, "%s", "another thread's");
  *(bool *)own = empty && !strcmp(qn_last_error(), "another thread's");
  return NULL;
}

static void test_statuses(void)
{
  check(!strcmp(qn_last_error(), ""), "the sentence is empty before the first failure");
  check(!strcmp(qn_status_name(QN_NO_DEVICE), "QN_NO_DEVICE"), "a status has its enumerator's name");
  for (int k = 0; k < QN_STATUS_COUNT; k++)
    check(strlen(qn_status_text((qn_status)k)) >= 2, "%s: %s", qn_status_name((qn_status)k),
          qn_status_text((qn_status)k));
  check(!strcmp(qn_status_name(QN_STATUS_COUNT), "QN_UNKNOWN") && !strcmp(qn_status_name((qn_status)-1), "QN_UNKNOWN"),
        "a value that is no status is QN_UNKNOWN");
  qn_fail(QN_BAD_ARGUMENT, "first %d", 7);
  qn_fail(QN_BAD_ARGUMENT, "outer: %s", qn_last_error());
  check(!strcmp(qn_last_error(), "outer: first 7"), "a sentence may be made from the last one");
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", QN_VERSION_MAJOR, QN_VERSION_MINOR, QN_VERSION_PATCH);
  check(!strcmp(version, qn_version()), "header and library are both version %s", qn_version());
  pthread_t thread;
  bool own = false;
  pthread_create(&thread, NULL, fail_elsewhere, &own);
  pthread_join(thread, NULL);
  check(own && !strcmp(qn_last_error(), "outer: first 7"), "each thread has its own sentence");
  char longer[3000];
  memset(longer, 'x', sizeof longer);
  for (size_t k = 0; k + 2 < sizeof longer; k += 2) memcpy(longer + k, "\303\244", 2); /* characters of two bytes */
  longer[sizeof longer - 1] = 0;
  qn_fail(QN_BAD_FILE, "%s", longer);
  const char *cut = qn_last_error();
  size_t n = strlen(cut);
  check(n < 1024 && !strcmp(cut + n - 3, "...") && cut[n - 4] == '\244', "a long sentence is cut after a character");
}

/* ---- options ---- */

static void test_options(void)
{
  const char *value = NULL;
  int64_t bytes = 0;
  char small[4];
  check(qn_option_count() == QN_OPTION_COUNT && !qn_option_at(QN_OPTION_COUNT), "the table has %d rows",
        QN_OPTION_COUNT);
  for (size_t k = 0; k < qn_option_count(); k++) {
    const qn_option_info *row = qn_option_at(k);
    check(!strncmp(row->variable, "QUERN_", 6) && *row->doc && qn_option_set(row->name, row->default_value) == QN_OK,
          "option %s: its default \"%s\" is allowed", row->name, row->default_value);
    qn_option_set(row->name, NULL);
  }
  refuses(qn_option_get("cpuu", &value), QN_BAD_ARGUMENT, "the nearest is \"cpu\"");
  refuses(qn_option_get("zzzzzzzz", &value), QN_BAD_ARGUMENT, "there is none of that name");
  refuses(qn_option_get(NULL, &value), QN_BAD_ARGUMENT, "NULL");
  refuses(qn_option_get("cpu", NULL), QN_BAD_ARGUMENT, "NULL");
  refuses(qn_option_set("cpu", "avx9"), QN_BAD_ARGUMENT,
          "auto|ref|avx2|avx512|avx512bf16|amx|neon; the nearest is \"avx2\"");
  refuses(qn_option_set("device", "cuad"), QN_BAD_ARGUMENT, "\"cuad\" is not one of");
  refuses(qn_option_set("device", "cuda:"), QN_BAD_ARGUMENT, "cuda:");
  refuses(qn_option_set("device", "cuda:-1"), QN_BAD_ARGUMENT, "cuda:-1");
  refuses(qn_option_set("device", "cuda:99999999999"), QN_BAD_ARGUMENT, "cuda:9999");
  check(qn_option_set("device", "cuda:1") == QN_OK && qn_option_set("device", "cuda") == QN_OK,
        "cuda and cuda:1 are devices");

  setenv("QUERN_CPU", "avx9", 1);
  qn_option_set("cpu", NULL);
  refuses(qn_option_get("cpu", &value), QN_BAD_ARGUMENT, "QUERN_CPU: \"avx9\"");
  refuses(qn_option_get("cpu", &value), QN_BAD_ARGUMENT, "QUERN_CPU: \"avx9\"");
  setenv("QUERN_CPU", "ref", 1);
  check(qn_option_get("cpu", &value) == QN_OK && !strcmp(value, "ref"), "the variable is read");
  setenv("QUERN_CPU", "avx2", 1);
  check(qn_option_get("cpu", &value) == QN_OK && !strcmp(value, "ref"), "the variable is read once");
  unsigned before = qn_option_generation();
  check(qn_option_set("cpu", "auto") == QN_OK && qn_option_generation() != before, "a set is seen by who cares");
  check(qn_option_get("cpu", &value) == QN_OK && !strcmp(value, "auto"), "what was set comes before the variable");
  before = qn_option_generation();
  check(qn_option_set("cpu", "nonsense") != QN_OK && qn_option_generation() == before &&
            qn_option_get("cpu", &value) == QN_OK && !strcmp(value, "auto"),
        "a set that is refused changes nothing");
  setenv("QUERN_CPU", "", 1);
  check(qn_option_set("cpu", NULL) == QN_OK && qn_option_get("cpu", &value) == QN_OK && !strcmp(value, "auto"),
        "an empty variable is none");
  unsetenv("QUERN_CPU");

  static const char *const hostile[] = {"",
                                        "-1",
                                        " 1",
                                        "1 ",
                                        "1KK",
                                        "K",
                                        "1T",
                                        "0x10",
                                        "1.5G",
                                        "9223372036854775808",
                                        "1e9",
                                        "+5",
                                        "99999999999999999999999",
                                        "9007199254740992K",
                                        "8589934592G"};
  for (size_t k = 0; k < sizeof hostile / sizeof *hostile; k++)
    refuses(qn_option_set("cache_bytes", hostile[k]), QN_BAD_ARGUMENT, "is no number of bytes");
  static const struct {
    const char *text;
    int64_t bytes;
  } sizes[] = {{"0", 0},
               {"1", 1},
               {"7K", 7 << 10},
               {"256M", 256 << 20},
               {"3G", INT64_C(3) << 30},
               {"0007", 7},
               {"9223372036854775807", INT64_MAX},
               {"8589934591G", INT64_C(8589934591) << 30}};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
    check(qn_option_set("cache_bytes", sizes[k].text) == QN_OK &&
              qn_option_bytes(QN_OPTION_CACHE_BYTES, &bytes) == QN_OK && bytes == sizes[k].bytes,
          "%s is %lld bytes", sizes[k].text, (long long)sizes[k].bytes);
  qn_option_set("cache_bytes", "256M");
  refuses(qn_option_text(QN_OPTION_CACHE_BYTES, small, sizeof small), QN_BAD_ARGUMENT, "4 characters, 3 fit");
  qn_option_set("cache_bytes", NULL);
  char *huge = calloc(1, 5000);
  memset(huge, 'p', 4999);
  refuses(qn_option_set("cache_dir", huge), QN_BAD_ARGUMENT, "4999 characters");
  setenv("QUERN_CACHE_DIR", huge, 1);
  refuses(qn_option_get("cache_dir", &value), QN_BAD_ARGUMENT, "QUERN_CACHE_DIR: the value has 4999");
  unsetenv("QUERN_CACHE_DIR");
  free(huge);
}

/* ---- log ---- */

static struct {
  int n;
  qn_log_level level;
  char text[64];
} heard;

static void hear(void *user, qn_log_level level, const char *text)
{
  (void)user;
  heard.n++;
  heard.level = level;
  snprintf(heard.text, sizeof heard.text, "%s", text);
}

static void test_log(void)
{
  qn_log(QN_LOG_WARNING, "into silence");
  qn_log_set(hear, NULL, QN_LOG_INFO);
  qn_log(QN_LOG_DEBUG, "too fine");
  check(heard.n == 0, "nothing is heard above the level that was asked for");
  qn_log(QN_LOG_INFO, "entry %d", 3);
  check(heard.n == 1 && heard.level == QN_LOG_INFO && !strcmp(heard.text, "entry 3"), "the callback hears \"%s\"",
        heard.text);
  qn_log_set(NULL, NULL, QN_LOG_DEBUG);
  qn_log(QN_LOG_WARNING, "into silence");
  check(heard.n == 1, "NULL is silence again");
}

/* ---- allocation ---- */

/* Hooks that keep accounts, and fail the call number `fail_at`. */
typedef struct account {
  long calls, fail_at, blocks;
  size_t bytes;
  bool aligned;
} account;

static void *take(void *user, size_t bytes, size_t alignment)
{
  account *a = user;
  if (++a->calls == a->fail_at) return NULL;
  void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  a->blocks++;
  a->bytes += bytes;
  a->aligned = (uintptr_t)memory % alignment == 0 && (alignment & (alignment - 1)) == 0 && alignment >= 64;
  return memory;
}

static void give(void *user, void *memory, size_t bytes)
{
  account *a = user;
  a->blocks--;
  a->bytes -= bytes;
  free(memory);
}

static void test_allocation(void)
{
  account a = {0}, b = {0};
  const qn_allocator first = {take, give, &a}, second = {take, give, &b}, half = {take, NULL, &a},
                     other = {NULL, give, &a};
  refuses(qn_allocator_set(&half), QN_BAD_ARGUMENT, "release is NULL");
  refuses(qn_allocator_set(&other), QN_BAD_ARGUMENT, "allocate is NULL");
  qn_allocator_set(&first);
  char *small = qn_allocate(0), *text = qn_duplicate("stone mill"), *large = qn_allocate_aligned(1000, 4096);
  check(small && text && large && a.blocks == 3 && a.aligned, "blocks come from the hook, aligned as it was asked");
  check((uintptr_t)small % 64 == 0 && (uintptr_t)text % 64 == 0 && (uintptr_t)large % 4096 == 0, "so do pointers");
  memset(large, 1, 1000);
  qn_allocator_set(&second);
  text = qn_reallocate(text, 100000);
  check(!strcmp(text, "stone mill") && a.blocks == 2 && b.blocks == 1,
        "a block grows into the new hook, and leaves the old");
  text = qn_reallocate(text, 5);
  check(!memcmp(text, "stone", 5) && b.blocks == 1, "and shrinks");
  b.fail_at = b.calls + 1;
  check(!qn_reallocate(text, 50) && !memcmp(text, "stone", 5), "where there is none the old block stands");
  qn_release(small);
  qn_release(text);
  qn_release(large);
  qn_release(NULL);
  check(!a.blocks && !a.bytes && !b.blocks && !b.bytes, "every byte went back to the hook that it came from");
  check(!qn_allocate(SIZE_MAX) && !qn_allocate(SIZE_MAX - 63) && !qn_allocate_zero(SIZE_MAX / 2, 3),
        "sizes that overflow are refused");
  void *p = &a;
  b.fail_at = b.calls + 1;
  refuses(qn_try_allocate(&p, 12345, "the plan's table"), QN_NO_MEMORY, "the plan's table: 12345 bytes");
  check(!p, "and the pointer is NULL");
  unsigned char *zero = qn_allocate_zero(3, 5);
  bool cleared = true;
  for (int k = 0; zero && k < 15; k++) cleared &= zero[k] == 0;
  check(zero && cleared, "cleared memory is cleared");
  qn_release(zero);
  qn_allocator_set(NULL);
}

/* Everything that the core allocates for, with the k-th allocation failing, for every k. */
static qn_status use_the_core(void)
{
  qn_pool *pool = NULL;
  qn_text text = {0};
  qn_safetensors list = {0};
  static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
  qn_try(qn_pool_create(&pool, 2));
  qn_pool_destroy(&pool);
  for (int k = 0; k < 100; k++) qn_text_add(&text, "line %d\n", k);
  bool failed = text.failed;
  qn_text_free(&text);
  if (failed) return QN_NO_MEMORY;
  qn_try(qn_safetensors_parse(header, sizeof header - 1, 8, "memory", &list));
  qn_safetensors_free(&list);
  return QN_OK;
}

static void test_failing_allocations(void)
{
  bool done = false;
  long k = 1;
  for (; k < 100 && !done; k++) {
    account a = {.fail_at = k};
    const qn_allocator hooks = {take, give, &a};
    qn_allocator_set(&hooks);
    qn_status status = use_the_core();
    done = a.calls < k;
    check(status == (done ? QN_OK : QN_NO_MEMORY) && !a.blocks && !a.bytes, "allocation %ld %s: %s, nothing leaks", k,
          done ? "is one more than there are" : "fails", qn_status_name(status));
  }
  qn_allocator_set(NULL);
  check(done && k > 5, "all of them were made to fail");
}

/* ---- hash, text, sources, types ---- */

static void test_hash(void)
{
  qn_hash128 none = qn_hash("", 0), ten = qn_hash("stone mill", 10), other = qn_hash("stone mild", 10);
  check(none.high == 0x99aa06d3014798d8u && none.low == 0x6001c324468d497fu, "XXH3 of nothing is the published value");
  check(ten.low != other.low && ten.high != other.high, "one letter changes both halves");
  unsigned char counted[16];
  for (unsigned char k = 0; k < 16; k++) counted[k] = k;
  uint64_t secret[2];
  memcpy(secret, counted, sizeof secret);
  const qn_hash128 empty = qn_hash_keyed(secret, "", 0), fifteen = qn_hash_keyed(secret, counted, 15);
  check(empty.low == 0xe6a825ba047f81a3u && empty.high == 0x930255c71472f66du && fifteen.low == 0x11a8b03399e99354u &&
            fifteen.high == 0xd9c3cf970fec087eu,
        "SipHash of 0 and 15 bytes are the published values (%llx %llx)", (unsigned long long)fifteen.low,
        (unsigned long long)fifteen.high);
}

static void test_text(void)
{
  qn_text text = {0};
  for (int k = 0; k < 1000; k++) qn_text_add(&text, "%d,", k % 10);
  qn_text_add_bytes(&text, "a\0b", 3);
  check(!text.failed && text.length == 2003 && !memcmp(text.at, "0,1,2", 5) && !memcmp(text.at + 2000, "a\0b", 4),
        "text grows, NUL behind it");
  qn_text_add_bytes(&text, "x", SIZE_MAX);
  qn_text_add(&text, "after");
  check(text.failed && text.length == 2003, "what cannot be added is noted, what stands is kept");
  qn_text_free(&text);
  static const char *const names[] = {"bench", "check", "compare", "doctor", "list", "roofline", NULL};
  static const struct {
    const char *word, *nearest;
  } words[] = {{"chekc", "check"}, {"benhc", "bench"}, {"Doctor", "doctor"}, {"rooflien", "roofline"},
               {"lits", "list"},   {"", NULL},         {"x", NULL},          {"transmogrify", NULL}};
  for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
    const char *nearest = qn_nearest(words[k].word, names);
    check(words[k].nearest ? nearest && !strcmp(nearest, words[k].nearest) : !nearest, "\"%s\" is nearest to %s",
          words[k].word, nearest ? nearest : "nothing");
  }
  char longest[5000];
  memset(longest, 'b', sizeof longest);
  longest[sizeof longest - 1] = 0;
  check(!qn_nearest(longest, names), "a word of 4999 letters is near to nothing");
}

static void test_sources(void)
{
  const qn_source *lane = qn_source_find("base/simd.h");
  check(lane && lane->bytes == strlen(lane->text) && strstr(lane->text, "SPDX"), "base/simd.h is embedded whole");
  check(!qn_source_find("base/lane") && !qn_source_find(""), "no other name finds it");
}

static void test_types(void)
{
  bool round = true;
  for (int k = QN_F32; k < QN_DTYPE_COUNT; k++) round &= qn_dtype_from_name(qn_dtype_name((qn_dtype)k)) == (qn_dtype)k;
  check(round, "a type's name gives the type");
  check(qn_dtype_bytes(QN_BF16) == 2 && qn_dtype_bytes(QN_F64) == 8 && !qn_dtype_bytes(QN_NONE) &&
            !qn_dtype_bytes((qn_dtype)99) && !qn_dtype_bytes((qn_dtype)-1),
        "sizes are right, and 0 for what is none");
  check(qn_dtype_from_name("f31") == QN_NONE && qn_dtype_from_name(NULL) == QN_NONE &&
            !strcmp(qn_dtype_name((qn_dtype)99), "none"),
        "what is no type is none");
}

int main(void)
{
  test_statuses();
  test_options();
  test_log();
  test_allocation();
  test_failing_allocations();
  test_hash();
  test_text();
  test_sources();
  test_types();
  return test_end();
}
