/* SPDX-License-Identifier: Apache-2.0 */
/* workbench_workload.c - the lists that benches run over: the counts that documents name, NxM, what safetensors headers
 * become, and settings of parameters from text. Files that lie are in tests/safetensors.c; here one of them shows that
 * the refusal reaches the caller. */
#include "test.h"
#include "op/op.h"
#include "quern/lion.h"
#include "scratch.h"
#include "workbench/bench.h"
#include "workbench/settings.h"
#include "workbench/table.h"
#include <stdint.h>

static void counts(const char *name, size_t tensors, uint64_t elements)
{
  qn_workload w;
  bool found = qn_workload_find(name, &w) == QN_OK;
  uint64_t sum = 0;
  for (size_t k = 0; found && k < w.n; k++) {
    uint64_t product = 1;
    for (int d = 0; d < w.item[k].ndim; d++) product *= (uint64_t)w.item[k].shape[d];
    sum += product;
    if (product != w.item[k].elements || !*w.item[k].name) sum = 0;
  }
  check(found && w.n == tensors && w.elements == elements && sum == elements, "%s is %zu tensors, %llu elements in all",
        name, tensors, (unsigned long long)elements);
  if (found) qn_workload_free(&w);
}

static void names(void)
{
  qn_workload w;
  counts("1x67.1M", 1, 67108864);
  counts("1x1.5G", 1, 1500000000);
  counts("512x64K", 512, UINT64_C(512) * 65536);
  counts("gpt2-124m", 148, 124439808);
  counts("gpt2-355m", 292, 354823168);
  counts("gpt2-xl", 580, 1557611200);
  counts("gpt-10m", 52, 10342656);
  counts("vit-b16", 152, 86567656);
  counts("1x16384^2", 1, 268435456);
  counts("12x3000", 12, 36000);
  counts("2x1m", 2, 2097152);
  for (const qn_workload_name *n = qn_workload_names; n->name; n++) {
    check(qn_workload_find(n->name, &w) == QN_OK, "%s, which help lists, is there", n->name);
    qn_workload_free(&w);
  }
  refuses(qn_workload_find("gpt2-124n", &w), QN_BAD_ARGUMENT, "did you mean gpt2-124m?");
  refuses(qn_workload_find("0x5", &w), QN_BAD_ARGUMENT, "0x5");
  refuses(qn_workload_find("5x0", &w), QN_BAD_ARGUMENT, "5x0");
  refuses(qn_workload_find("-1x5", &w), QN_BAD_ARGUMENT, "-1x5");
  refuses(qn_workload_find("3x4x5", &w), QN_BAD_ARGUMENT, "3x4x5");
  refuses(qn_workload_find("1x99999999999G", &w), QN_BAD_ARGUMENT, "1x99999999999G");
  refuses(qn_workload_find("4096x200G", &w), QN_BAD_ARGUMENT, "2^48");
  refuses(qn_workload_find("2000000x1", &w), QN_BAD_ARGUMENT, "2000000 tensors");
}

static const char *file_of(const char *name, const char *header, size_t data)
{
  char bytes[1024] = {0};
  size_t n = strlen(header);
  for (int k = 0; k < 8; k++) bytes[k] = (char)(n >> 8 * k);
  memcpy(bytes + 8, header, n);
  const char *path = scratch_path(name);
  write_file(path, bytes, 8 + n + data, 0600);
  return path;
}

static void files(void)
{
  qn_workload w;
  const char *path = file_of("two.safetensors",
                             "{\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                             "\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]}}",
                             26);
  bool read = qn_workload_read(path, &w) == QN_OK;
  check(read && w.n == 2 && w.elements == 7, "a safetensors header becomes the list");
  bool first = read && !strcmp(w.item[0].name, "a.weight") && w.item[0].ndim == 2 && w.item[0].shape[1] == 3;
  check(first && !strcmp(w.name, "two.safetensors"), "with its names and shapes, called as the file");
  if (read) qn_workload_free(&w);
  path = file_of("empty.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0);
  refuses(qn_workload_read(path, &w), QN_BAD_FILE, "nothing to time");
  path = file_of("liar.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[9],\"data_offsets\":[0,24]}}", 24);
  refuses(qn_workload_read(path, &w), QN_BAD_FILE, "liar.safetensors");
  path = file_of("huge.safetensors",
                 "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0);
  refuses(qn_workload_read(path, &w), QN_BAD_FILE, "huge.safetensors");
  refuses(qn_workload_read(scratch_path("none"), &w), QN_IO_ERROR, "none");
}

static void settings(void)
{
  qn_lion_params p = QN_LION_DEFAULTS;
  const qn_op_info *lion = &qn_op_lion.info;
  check(qn_settings_read(lion, &p, "lr=1e-3") == QN_OK && p.lr == 1e-3, "a number is set");
  check(qn_settings_read(lion, &p, "seed=18446744073709551615") == QN_OK && p.seed == UINT64_MAX,
        "and a whole one of 64 bits");
  check(qn_settings_read(lion, &p, "cautious=1") == QN_OK && p.cautious == 1, "a switch");
  check(qn_settings_read(lion, &p, "rounding=stochastic") == QN_OK && p.rounding == QN_STOCHASTIC, "and a name");
  refuses(qn_settings_read(lion, &p, "lr"), QN_BAD_ARGUMENT, "NAME=VALUE");
  refuses(qn_settings_read(lion, &p, "beta3=1"), QN_BAD_ARGUMENT, "did you mean beta");
  refuses(qn_settings_read(lion, &p, "lr=fast"), QN_BAD_ARGUMENT, "fast");
  refuses(qn_settings_read(lion, &p, "lr="), QN_BAD_ARGUMENT, "no number");
  refuses(qn_settings_read(lion, &p, "seed=-1"), QN_BAD_ARGUMENT, "-1");
  refuses(qn_settings_read(lion, &p, "cautious=2"), QN_BAD_ARGUMENT, "0 or 1");
  refuses(qn_settings_read(lion, &p, "rounding=up"), QN_BAD_ARGUMENT, "stochastic");
  refuses(qn_settings_read(lion, &p, "hyper=1"), QN_BAD_ARGUMENT, "pointer");
}

static void rows(void)
{
  size_t row = 99;
  char types[96];
  check(qn_bench_row(&qn_op_lion, "", &row) == QN_OK && row == 0, "no types asked for: the first row");
  check(qn_bench_row(&qn_op_lion, "bf16,bf16/bf16 f32", &row) == QN_OK, "types by role, however they stand apart");
  qn_bench_types(&qn_op_lion, row, types, sizeof types);
  check(!strcmp(types, "bf16 bf16 bf16 f32"), "the row found is %s", types);
  qn_lion_params params = QN_LION_DEFAULTS;
  check(qn_bench_bytes(&qn_op_lion, row, &params) == 16 && qn_bench_set(&qn_op_lion, row) == 10,
        "it moves 16 bytes an element of 10 there are");
  check(qn_bench_bytes(&qn_op_lion, 0, &params) == 20, "f32 moves 20");
  params.cautious = 1;
  check(qn_bench_bytes(&qn_op_lion, 0, &params) == 28, "and 28 where gradient and momentum are read to count first");
  check(qn_mix_of(&qn_op_lion.info.types[0]) == QN_MIX_3R2W, "f32 is judged by three read, two written");
  refuses(qn_bench_row(&qn_op_lion, "bf16 f64", &row), QN_BAD_ARGUMENT, "bf16 bf16 bf16 f32");
  refuses(qn_bench_row(&qn_op_lion, "bf1", &row), QN_BAD_ARGUMENT, "bf1");
  check(!strcmp(qn_grouped(124439808).text, "124,439,808") && !strcmp(qn_grouped(999).text, "999"), "digits in groups");
  check(!strcmp(qn_duration(52100000).text, "52.10 ms") && !strcmp(qn_duration(7.314).text, "7.314 ns"),
        "times in units");
}

int main(void)
{
  scratch_begin();
  names();
  files();
  settings();
  rows();
  return test_end();
}
