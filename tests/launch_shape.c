/* SPDX-License-Identifier: Apache-2.0 */
/* launch_shape.c - launch shapes as names, the rule, the forced one, and what the latest launch took. */
#include "core/core.h"
#include "op/launch_shape.h"
#include "op/call.h"
#include "test.h"
#include <pthread.h>

static const qn_op *op_of(const char *name)
{
  const qn_op_info *info = NULL;
  return qn_op_find(name, &info) == QN_OK ? qn_op_of(info) : NULL;
}

static bool round_trip(const char *name)
{
  qn_launch_shape g;
  char back[QN_LAUNCH_SHAPE_NAME];
  if (qn_launch_shape_from_name(name, &g) != QN_OK) return false;
  qn_launch_shape_name(&g, back);
  return !strcmp(back, name);
}

static void test_names(void)
{
  static const char *const good[] = {"flat-256x8x1", "rows-64x4x4", "tiles-1024x8x2", "rows-512x8x1-p2",
                                     "flat-128x4x1-p32"};
  static const struct {
    const char *name, *words;
  } bad[] = {{"", "no launch shape's name"},
             {"flat", "no launch shape's name"},
             {"flat-256x8", "no launch shape's name"},
             {"flat-256x8x1 ", "no launch shape's name"},
             {"flat-256x8x1-", "no launch shape's name"},
             {"flat-256x8x1-p0", "no launch shape's name"},
             {"flat-0256x8x1", "no launch shape's name"},
             {"flat-+256x8x1", "no launch shape's name"},
             {"fla-256x8x1", "no launch shape's name"},
             {"flatter-256x8x1", "no launch shape's name"},
             {"flat-99999x8x1", "no launch shape's name"},
             {"flat-96x8x1", "96 threads"},
             {"flat-32x8x1", "32 threads"},
             {"flat-2048x8x1", "2048 threads"},
             {"tiles-256x2x1", "vectors of 2"},
             {"tiles-256x16x1", "vectors of 16"},
             {"tiles-256x8x3", "3 vectors"},
             {"tiles-256x8x8", "8 vectors"},
             {"rows-256x8x1-p33", "33 blocks"}};
  qn_launch_shape g = {.threads = 7};
  for (size_t k = 0; k < sizeof good / sizeof *good; k++) check(round_trip(good[k]), "%s is read and written", good[k]);
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
    refuses(qn_launch_shape_from_name(bad[k].name, &g), QN_BAD_ARGUMENT, bad[k].words);
  check(g.threads == 7, "a refused name changes nothing");
  refuses(qn_launch_shape_from_name(NULL, &g), QN_BAD_ARGUMENT, "name is NULL");
}

static void test_choice(void)
{
  const qn_op *lion = op_of("lion");
  qn_launch_shape_key key = {.op = lion, .rows = 3, .cols = 5, .dense = true};
  qn_launch_shape g;
  const char *why;
  char name[QN_LAUNCH_SHAPE_NAME];
  size_t halves = 0;
  qn_option_set("launch_shape", NULL);
  for (key.row = 0; key.row < lion->info.n_types; key.row++) {
    bool small = true;
    for (size_t r = 0; r < lion->info.n_tensors; r++) {
      const qn_dtype dtype = lion->info.types[key.row].tensor[r].dtype;
      if (lion->info.types[key.row].tensor[r].access != QN_ABSENT && qn_dtype_bytes(dtype) != 2) small = false;
    }
    check(qn_launch_shape_choose(&key, &g, &why) == QN_OK && g.pack == (small ? 8 : 4) && !strcmp(why, "the rule"),
          "row %zu: %s by default, vectors of %u", key.row, why, g.pack);
    if (small) halves = key.row;
  }
  key.row = 0;
  key.dense = false;
  check(qn_launch_shape_choose(&key, &g, &why) == QN_OK && g.shape == QN_LAUNCH_TILES, "pitched tensors are not flat");
  key.dense = true;
  qn_option_set("launch_shape", "rows-128x8x2-p4");
  qn_status status = qn_launch_shape_choose(&key, &g, &why);
  qn_launch_shape_name(&g, name);
  check(status == QN_OK && !strcmp(name, "rows-128x8x2-p4") && !strcmp(why, "forced"), "%s is forced", name);
  key.counts = true;
  for (int many = 0; many < 2; many++) {
    key.elements = UINT64_C(1) << (many ? 24 : 12);
    check(qn_launch_shape_choose(&key, &g, &why) == QN_OK && g.packs == (many ? 16 : 4) && !strcmp(why, "the rule"),
          "a phase that counts %s has its own geometry", many ? "many" : "few");
  }
  key.counts = false;
  qn_option_set("launch_shape", "rows-100x8x2");
  refuses(qn_launch_shape_choose(&key, &g, &why), QN_BAD_ARGUMENT, "100 threads");
  qn_option_set("launch_shape", NULL);
  check(qn_launch_shape_choose(&key, &g, &why) == QN_OK && g.threads == 256 && !strcmp(why, "the rule"),
        "without the option the rule is back");
  key.row = halves;
  for (int log = 16; log <= 19; log++) {
    key.elements = UINT64_C(1) << log;
    check(qn_launch_shape_choose(&key, &g, &why) == QN_OK && g.pack == (log == 16  ? 1
                                                                        : log < 19 ? 4
                                                                                   : 8),
          "of 2^%d elements vectors of %u", log, g.pack);
  }
}

static void *ask_elsewhere(void *own)
{
  *(bool *)own = !*qn_op_last_variant();
  return NULL;
}

static void test_latest(void)
{
  qn_launch_shape g;
  check(!*qn_op_last_variant(), "nothing was launched yet");
  qn_launch_shape_from_name("tiles-128x8x1", &g);
  qn_launch_shape_note(&g, "forced");
  check(!strcmp(qn_op_last_variant(), "tiles-128x8x1 (forced)"), "%s", qn_op_last_variant());
  qn_variant_note("wgmma-128x256", "the shipped table");
  check(!strcmp(qn_op_last_variant(), "wgmma-128x256 (the shipped table)"), "%s", qn_op_last_variant());
  qn_launch_shape_note(&g, "the rule");
  check(!strcmp(qn_op_last_variant(), "tiles-128x8x1 (the rule)"), "%s", qn_op_last_variant());
  pthread_t thread;
  bool own = false;
  pthread_create(&thread, NULL, ask_elsewhere, &own);
  pthread_join(thread, NULL);
  check(own, "each thread has its own latest launch");
}

int main(void)
{
  test_names();
  test_choice();
  test_latest();
  return test_end();
}
