/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c - tune tables: what is read and what is left out, whose entry counts, what an unknown architecture takes, and
 * that a file which cannot be trusted is as if it were not there. */
#include "op/tune.h"
#include "core/core.h"
#include "device/arch.h"
#include "op/launch_shape.h"
#include "op/call.h"
#include "scratch.h"
#include "test.h"

#define HEAD "quern tune 1 swiglu\n"
#define KEY(arch, rows, cols) "arch=" arch " types=bf16/bf16/bf16 rows=" rows " cols=" cols " layout=dense"
#define TAIL " state=measured date=2026-11-22 commit=1a2b3c4d5e6f"
#define RATIO " over=flat-256x8x1 ratio=1.250 low=1.200 high=1.300"
#define LINE(arch, rows, cols, choice) KEY(arch, rows, cols) " choice=" choice RATIO TAIL

static char warned[4096];
static int warnings;
static void listen(void *user, qn_log_level level, const char *text)
{
  (void)user;
  if (level != QN_LOG_WARNING) return;
  warnings++;
  snprintf(warned, sizeof warned, "%s", text);
}

/* ---- lines ---- */

static void test_lines(void)
{
  static const struct {
    const char *line, *why; /* NULL: it is fine */
  } cases[] = {
      {LINE("sm_90", "1-", "8193-16384", "tiles-128x8x1"), NULL},
      {LINE("sm_90", "1-", "8193-16384", "tiles-128x8x1") " registers=32 shared=0 blocks=8 copy=1.012", NULL},
      {"arch=sm_100 types=* rows=1- cols=1- layout=* choice=rows-64x8x1 state=published date=2026-11-22", NULL},
      {"", "missing"},
      {"arch", "key=value"},
      {"arch=sm_90 arch=sm_90", "twice"},
      {LINE("sm_90", "1-", "1-", "a") " speed=9", "unknown"},
      {KEY("sm_90", "1-", "1-") TAIL, "missing"},
      {LINE("sm_9", "1-", "1-", "a"), "architecture"},
      {LINE("sm_90a", "1-", "1-", "a"), "architecture"},
      {LINE("SM_90", "1-", "1-", "a"), "architecture"},
      {LINE("sm_90", "0-", "1-", "a"), "rows"},
      {LINE("sm_90", "5-4", "1-", "a"), "rows"},
      {LINE("sm_90", "-4", "1-", "a"), "rows"},
      {LINE("sm_90", "1", "1-", "a"), "rows"},
      {LINE("sm_90", "1-", "1-9999999999999999999", "a"), "cols"},
      {LINE("sm_90", "1-", "1-", "tiles;128"), "choice"},
      {LINE("sm_90", "1-", "1-",
            "tiles-128x8x1-and-a-name-that-is-longer-than-all-names-of-threads-and-templates-of-any-kernel-together"),
       "choice"},
      {KEY("sm_90", "1-", "1-") " choice=a over=b ratio=nan low=1 high=2" TAIL, "ratio"},
      {KEY("sm_90", "1-", "1-") " choice=a over=b ratio=inf low=1 high=2" TAIL, "ratio"},
      {KEY("sm_90", "1-", "1-") " choice=a over=b ratio=-1.5 low=1 high=2" TAIL, "ratio"},
      {KEY("sm_90", "1-", "1-") " choice=a over=b ratio=0.0 low=1 high=2" TAIL, "ratio"},
      {KEY("sm_90", "1-", "1-") " choice=a over=b ratio=1e3 low=1 high=2" TAIL, "ratio"},
      {KEY("sm_90", "1-", "1-") " choice=a over=b ratio=1,5 low=1 high=2" TAIL, "ratio"},
      {KEY("sm_90", "1-", "1-") " choice=a over=b ratio=1.5 low=1.6 high=2" TAIL, "between"},
      {KEY("sm_90", "1-", "1-") " choice=a over=b ratio=1.5 low=1.4 high=1.45" TAIL, "between"},
      {KEY("sm_90", "1-", "1-") " choice=a over=b ratio=1.5 low=1.4" TAIL, "together"},
      {KEY("sm_90", "1-", "1-") " choice=a ratio=1.5 low=1.4 high=1.6" TAIL, "together"},
      {KEY("sm_90", "1-", "1-") " choice=a" TAIL, "measured entry has a ratio"},
      {LINE("sm_90", "1-", "1-", "a") " registers=x", "registers"},
      {LINE("sm_90", "1-", "1-", "a") " blocks=99999999", "blocks"},
      {LINE("sm_90", "1-", "1-", "a") " shared=-1", "shared"},
      {LINE("sm_90", "1-", "1-", "a") " copy=nan", "copy"},
      {KEY("sm_90", "1-", "1-") " choice=a" RATIO " state=guessed date=2026-11-22", "state"},
      {KEY("sm_90", "1-", "1-") " choice=a" RATIO " state=measured date=22-11-2026", "date"},
      {KEY("sm_90", "1-", "1-") " choice=a" RATIO " state=measured date=2026-11-22 commit=a/b", "commit"},
      {LINE("sm_90", "1-", "1-", "128x1x1+TILE=4"), NULL},
      {LINE("sm_90", "1-", "1-", "a") " precision=tf32 depth=1-64 width=65-", NULL},
      {LINE("sm_90", "1-", "1-", "a") " precision=", "precision"},
      {LINE("sm_90", "1-", "1-", "a") " precision=tf/32", "precision"},
      {LINE("sm_90", "1-", "1-", "a") " precision=a-class-of-some-name", "precision"},
      {LINE("sm_90", "1-", "1-", "a") " depth=64-1", "depth"},
      {LINE("sm_90", "1-", "1-", "a") " width=0-1", "width"},
      {"arch=sm_90 types=bf16,bf16 rows=1- cols=1- layout=* choice=a" RATIO TAIL, "types"},
      {"arch=sm_90 types=* rows=1- cols=1- layout=round choice=a" RATIO TAIL, "layout"},
  };
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    qn_tune_entry e = {.blocks = 77};
    const char *why = "";
    const bool good = qn_tune_parse_line(cases[k].line, &e, &why);
    if (!cases[k].why)
      check(good, "it is taken: %s", cases[k].line);
    else
      check(!good && e.blocks == 77 && strstr(why, cases[k].why), "left out, \"%s\": %s", why, cases[k].line);
  }
  char longest[QN_TUNE_LINE + 2] = LINE("sm_90", "1-", "1-", "a");
  const char *why = "";
  qn_tune_entry e;
  memset(longest + strlen(longest), ' ', sizeof longest - 1 - strlen(longest));
  check(!qn_tune_parse_line(longest, &e, &why) && strstr(why, "long"), "a line that is too long: %s", why);
}

static void test_write(void)
{
  qn_text text = {0};
  qn_tune_entry e, again;
  const char *why;
  check(
      qn_tune_parse_line(
          LINE("sm_90", "1-1024", "8193-", "tiles-128x8x1") " registers=32 shared=4096 blocks=0 copy=1.012", &e, &why),
      "a whole entry");
  qn_tune_write_line(&text, &e);
  text.at[text.length - 1] = 0;
  check(qn_tune_parse_line(text.at, &again, &why) && !memcmp(&e, &again, sizeof e), "is written as it was read: %s",
        text.at);
  check(strstr(text.at, "ratio=1.250 low=1.200 high=1.300") && strstr(text.at, "registers=32 shared=4096 blocks=0"),
        "with its numbers");
  qn_text_free(&text);
}

/* ---- texts ---- */

static size_t entries_of(const char *text, size_t bytes, size_t *dropped)
{
  qn_tune_table table;
  if (qn_tune_parse("swiglu", "a table", text, bytes, &table, dropped) != QN_OK) return SIZE_MAX;
  const size_t n = table.n;
  qn_tune_free(&table);
  return n;
}

static void test_texts(void)
{
  static const char good[] = HEAD "# a comment\n\n" LINE("sm_90", "1-", "1-", "flat-64x8x1") "\n";
  static const char bad_line[] = HEAD LINE("sm_90", "1-", "1-", "a") "\nnonsense\n" LINE("sm_80", "1-", "1-", "a") "\n";
  size_t dropped;
  qn_tune_table table;
  check(entries_of(good, sizeof good - 1, &dropped) == 1 && !dropped, "a table with comments");
  warnings = 0;
  check(entries_of(bad_line, sizeof bad_line - 1, &dropped) == 2 && dropped == 1 && warnings == 1 &&
            strstr(warned, "line 3"),
        "a wrong line is left out: %s", warned);
  check(entries_of(good, sizeof good - 2, &dropped) == 0 && dropped == 1 && strstr(warned, "middle"),
        "a file that ends in the middle of a line: %s", warned);
  check(entries_of(good, sizeof good, &dropped) == SIZE_MAX, "a zero in it is no text");
  static const char *const foreign[] = {"",
                                        "quern tune 2 swiglu\n",
                                        "quern tune 1 lion\n",
                                        "quern tune 1 swiglu",
                                        "{\"schema\": 1}\n",
                                        "quern tune 1 swiglu_backward\n"};
  for (size_t k = 0; k < sizeof foreign / sizeof *foreign; k++)
    refuses(qn_tune_parse("swiglu", "a table", foreign[k], strlen(foreign[k]), &table, &dropped), QN_BAD_FILE,
            "a table: it is no tune table of version 1 for swiglu");
  char *large = qn_allocate_zero(1, QN_TUNE_BYTES + 1);
  memcpy(large, HEAD, strlen(HEAD));
  refuses(qn_tune_parse("swiglu", "a table", large, QN_TUNE_BYTES + 1, &table, &dropped), QN_BAD_FILE, "at most");
  qn_release(large);
}

/* ---- whose entry counts ---- */

static void user_file(const char *text) /* NULL: none */
{
  const char *path = scratch_path("swiglu.tune");
  unlink(path);
  if (text) write_file(path, text, strlen(text), 0600);
  qn_tune_forget();
}

static qn_tune_source look(const char *types, const qn_arch *arch, uint64_t rows, uint64_t cols, qn_tune_layout layout,
                           qn_tune_entry *e)
{
  return qn_tune_find("swiglu", arch, &(qn_tune_key){.types = types, .rows = rows, .cols = cols, .layout = layout}, e);
}

static const char *choice(const char *arch_name, uint64_t rows, uint64_t cols, qn_tune_source *source)
{
  static qn_tune_entry e;
  qn_arch arch = {.size = sizeof arch};
  if (!qn_arch_from_name(arch_name, &arch)) return "no architecture";
  *source = look("bf16/bf16/bf16", &arch, rows, cols, QN_TUNE_DENSE, &e);
  return *source ? e.choice : "none";
}

static bool chooses(const char *arch, uint64_t rows, uint64_t cols, const char *want, qn_tune_source from)
{
  qn_tune_source source = QN_TUNE_NONE;
  const char *got = choice(arch, rows, cols, &source);
  return check(!strcmp(got, want) && source == from, "%s, %llu x %llu: %s of %d", arch, (unsigned long long)rows,
               (unsigned long long)cols, got, (int)source);
}

static void test_shipped(void)
{
  user_file(NULL);
  chooses("sm_100", 4096, 14336, "tiles-128x8x1", QN_TUNE_SHIPPED);
  chooses("sm_100", 1, 8193, "tiles-128x8x1", QN_TUNE_SHIPPED);
  chooses("sm_100", 4096, 8192, "rows-512x8x1", QN_TUNE_SHIPPED);
  chooses("sm_100", 4096, 2048, "rows-256x8x1", QN_TUNE_SHIPPED);
  chooses("sm_100", 4096, 1, "rows-128x8x1", QN_TUNE_SHIPPED);
  chooses("sm_103", 4096, 14336, "tiles-128x8x1", QN_TUNE_SHIPPED); /* of the family, and newer */
  chooses("sm_75", 4096, 14336, "none", QN_TUNE_NONE);              /* older than all */
  chooses("avx512", 4096, 14336, "none", QN_TUNE_NONE);
  chooses("emulator", 4096, 14336, "none", QN_TUNE_NONE);
}

static void test_architectures(void)
{
  user_file(HEAD LINE("sm_80", "1-", "1-", "flat-64x8x1") "\n" LINE("sm_90", "1-", "1-", "flat-128x8x1") "\n" LINE(
      "avx2", "1-", "1-", "stream") "\n");
  chooses("sm_80", 9, 9, "flat-64x8x1", QN_TUNE_USER);
  chooses("sm_86", 9, 9, "flat-64x8x1", QN_TUNE_USER); /* the nearest older of its family */
  chooses("sm_89", 9, 9, "flat-64x8x1", QN_TUNE_USER); /* the newest older one */
  chooses("sm_90", 9, 9, "flat-128x8x1", QN_TUNE_USER);
  chooses("sm_100", 9, 14336, "tiles-128x8x1", QN_TUNE_SHIPPED);
  chooses("sm_120", 9, 14336, "tiles-128x8x1",
          QN_TUNE_SHIPPED);                              /* its family goes before what was measured elsewhere */
  chooses("sm_130", 9, 9, "flat-128x8x1", QN_TUNE_USER); /* another family: measured, not published */
  chooses("sm_75", 9, 9, "none", QN_TUNE_NONE);
  chooses("avx512", 9, 9, "stream", QN_TUNE_USER);
  chooses("ref", 9, 9, "none", QN_TUNE_NONE);
  chooses("neon", 9, 9, "none", QN_TUNE_NONE);
}

static void test_override(void)
{
  user_file(
      HEAD LINE("sm_100", "1-1024", "8193-", "rows-64x8x1") "\n" LINE("sm_100", "1-1024", "1-", "rows-64x8x2") "\n");
  chooses("sm_100", 1024, 14336, "rows-64x8x1", QN_TUNE_USER); /* before the shipped one; the first that fits */
  chooses("sm_100", 1024, 8192, "rows-64x8x2", QN_TUNE_USER);
  chooses("sm_100", 1025, 14336, "tiles-128x8x1", QN_TUNE_SHIPPED); /* what it says nothing of is as shipped */
  user_file(HEAD KEY("sm_100", "1-",
                     "1-") " choice=rows-64x8x1 over=tiles-128x8x1 ratio=0.900 low=0.890 high=1.100" TAIL "\n");
  chooses("sm_100", 9, 14336, "tiles-128x8x1", QN_TUNE_SHIPPED); /* never what is said to be slower */
  user_file(HEAD KEY("sm_100", "1-", "1-") " choice=rows-64x8x1 over=rows-64x8x1 ratio=0.999 low=0.990 high=1.010" TAIL
                                           "\n");
  chooses("sm_100", 9, 14336, "rows-64x8x1", QN_TUNE_USER); /* the incumbent itself, kept */
}

static void test_types(void)
{
  qn_arch arch;
  qn_tune_entry e;
  char types[QN_TUNE_TYPES];
  const qn_op_info *lion = NULL;
  user_file(HEAD LINE("sm_90", "1-", "1-", "flat-64x8x1") "\n");
  qn_arch_from_name("sm_90", &arch);
  check(look("f16/f16/f16", &arch, 1, 1, QN_TUNE_DENSE, &e) == QN_TUNE_USER, "f16 is like bf16");
  check(!look("f32/f32/f32", &arch, 1, 1, QN_TUNE_DENSE, &e), "f32 is not");
  check(!look("bf16/bf16", &arch, 1, 1, QN_TUNE_DENSE, &e), "nor is another number of tensors");
  check(!look("bf16/bf16/-", &arch, 1, 1, QN_TUNE_DENSE, &e), "or one that is absent");
  check(!look("bf16/bf16/bf16", &arch, 1, 1, QN_TUNE_PITCHED, &e), "or another layout");
  check(qn_op_find("lion", &lion) == QN_OK, "there is lion");
  qn_tune_types(qn_op_of(lion), 0, types);
  check(!strcmp(types, "f32/f32/f32/-"), "types of a row: %s", types);
}

/* ---- files that are not trusted ---- */

static void test_files(void)
{
  static const char good[] = HEAD LINE("sm_100", "1-", "1-", "rows-64x8x1") "\n";
  char path[512], other[512];
  snprintf(path, sizeof path, "%s", scratch_path("swiglu.tune"));
  snprintf(other, sizeof other, "%s", scratch_path("other"));
  user_file(good);
  chooses("sm_100", 9, 14336, "rows-64x8x1", QN_TUNE_USER);
  warnings = 0;
  user_file("quern tune 2 swiglu\n");
  chooses("sm_100", 9, 14336, "tiles-128x8x1", QN_TUNE_SHIPPED);
  chooses("sm_100", 9, 9, "rows-128x8x1", QN_TUNE_SHIPPED);
  check(warnings == 1 && strstr(warned, "version 1 for swiglu"), "told once: %s", warned);
  user_file(good);
  chmod(path, 0666);
  chooses("sm_100", 9, 14336, "tiles-128x8x1", QN_TUNE_SHIPPED);
  check(strstr(warned, "others cannot write") != NULL, "a file that others can write to: %s", warned);
  user_file(NULL);
  write_file(other, good, sizeof good - 1, 0600);
  check(!symlink(other, path), "a link");
  chooses("sm_100", 9, 14336, "tiles-128x8x1", QN_TUNE_SHIPPED);
  check(strstr(warned, "cannot be read") != NULL, "which is not followed: %s", warned);
  user_file(NULL);
  check(!mkfifo(path, 0600), "a pipe, which must not be waited for");
  chooses("sm_100", 9, 14336, "tiles-128x8x1", QN_TUNE_SHIPPED);
  user_file(good);
  chmod(scratch, 0777);
  qn_tune_forget();
  chooses("sm_100", 9, 14336, "tiles-128x8x1", QN_TUNE_SHIPPED);
  check(strstr(warned, "is refused") != NULL, "a directory that others can write to: %s", warned);
  chmod(scratch, 0700);
  user_file(good);
  chooses("sm_100", 9, 14336, "rows-64x8x1", QN_TUNE_USER);
}

static void test_keep(void)
{
  char path[QN_TUNE_PATH];
  const char *why;
  qn_tune_entry e[2], at;
  qn_tune_parse_line(LINE("sm_90", "1-1024", "1-", "rows-64x8x1"), &e[0], &why);
  qn_tune_parse_line(LINE("sm_90", "1025-", "1-", "rows-128x8x1"), &e[1], &why);
  user_file(NULL);
  check(qn_tune_keep("swiglu", e, 2, path) == QN_OK && !strcmp(path, scratch), "a new table: %s", qn_last_error());
  chooses("sm_90", 1024, 9, "rows-64x8x1", QN_TUNE_USER);
  strcpy(e[0].choice, "flat-512x8x1");
  check(qn_tune_keep("swiglu", e, 1, path) == QN_OK, "an entry anew");
  chooses("sm_90", 1024, 9, "flat-512x8x1", QN_TUNE_USER);
  chooses("sm_90", 1025, 9, "rows-128x8x1", QN_TUNE_USER);
  check(qn_tune_at("swiglu", 1, &at) == QN_TUNE_USER && qn_tune_at("swiglu", 2, &at) == QN_TUNE_SHIPPED &&
            qn_tune_at("swiglu", 9999, &at) == QN_TUNE_NONE,
        "one of them takes its place");
  user_file("somebody's letter\n");
  check(qn_tune_keep("swiglu", e, 1, path) == QN_OK && access(scratch_path("swiglu.tune.old"), F_OK) == 0,
        "what was no table is put aside");
  chooses("sm_90", 1024, 9, "flat-512x8x1", QN_TUNE_USER);
}

/* ---- what a launch takes ---- */

static void test_geometry(void)
{
  const qn_op_info *op = NULL;
  qn_launch_shape g;
  const char *why;
  char name[QN_LAUNCH_SHAPE_NAME];
  check(qn_op_find("swiglu", &op) == QN_OK, "there is swiglu");
  qn_launch_shape_key key = {.op = qn_op_of(op), .device = {QN_EMULATOR, 0}, .rows = 64, .cols = 14336, .dense = true};
  user_file(NULL);
  check(qn_launch_shape_choose(&key, &g, &why) == QN_OK && !strcmp(why, "the rule"), "the emulator: %s", why);
  qn_option_set("arch", "sm_100");
  check(qn_launch_shape_choose(&key, &g, &why) == QN_OK && !strcmp(why, "the shipped table, published") &&
            g.shape == QN_LAUNCH_TILES && g.threads == 128,
        "as sm_100: %s", why);
  key.elements = 1000;
  check(qn_launch_shape_choose(&key, &g, &why) == QN_OK && !strcmp(why, "the rule") && g.pack == 1,
        "of few elements as sm_100: %s", why);
  key.elements = 0;
  qn_option_set("arch", "sm_103");
  check(qn_launch_shape_choose(&key, &g, &why) == QN_OK && strstr(why, "older architecture"), "as sm_103: %s", why);
  qn_option_set("arch", "sm_100");
  user_file(HEAD "arch=sm_100 types=* rows=1- cols=1- layout=* choice=rows-1024x8x4 state=published date=2026-11-22\n");
  qn_status status = qn_launch_shape_choose(&key, &g, &why);
  qn_launch_shape_name(&g, name);
  check(status == QN_OK && !strcmp(why, "your tune table") && !strcmp(name, "rows-1024x8x4"), "%s: %s", why, name);
  key.elements = 1000;
  check(qn_launch_shape_choose(&key, &g, &why) == QN_OK && !strcmp(why, "your tune table"), "of few elements too: %s",
        why);
  key.elements = 0;
  qn_option_set("launch_shape", "flat-64x4x2");
  status = qn_launch_shape_choose(&key, &g, &why);
  qn_launch_shape_name(&g, name);
  check(status == QN_OK && !strcmp(why, "forced") && !strcmp(name, "flat-64x4x2"), "%s: %s", why, name);
  qn_option_set("launch_shape", NULL);
  warnings = 0;
  user_file(HEAD "arch=sm_100 types=* rows=1- cols=1- layout=* choice=wgmma-128 state=published date=2026-11-22\n");
  check(qn_launch_shape_choose(&key, &g, &why) == QN_OK && !strcmp(why, "the rule") && g.threads == 256 &&
            warnings == 1,
        "a choice that is no geometry: %s, %s", why, warned);
  qn_option_set("arch", "sm_1");
  refuses(qn_launch_shape_choose(&key, &g, &why), QN_BAD_ARGUMENT, "\"sm_1\" is no architecture");
  qn_option_set("arch", NULL);
}

int main(void)
{
  scratch_begin();
  chmod(scratch, 0700);
  qn_log_set(listen, NULL, QN_LOG_WARNING);
  qn_option_set("tune_dir", scratch);
  test_lines();
  test_write();
  test_texts();
  test_shipped();
  test_architectures();
  test_override();
  test_types();
  test_files();
  test_keep();
  test_geometry();
  return test_end();
}
