/* SPDX-License-Identifier: Apache-2.0 */
/* workbench_ceiling.c [ARCH...] - ceilings must move what they say: a stream that left lines out would be a ceiling too
 * high, one that did more too low. With architectures: the device's ceilings compile for each, by NVRTC, no GPU needed,
 * and spill nothing. */
#include "test.h"
#include "core/source.h"
#include "device/backend.h"
#include "workbench/ceiling_cpu.h"

extern const qn_source qn_workbench_sources[];

static const struct mix {
  const char *name;
  int reads, updates, writes;
} mixes[] = {
#define X(id, name, reads, updates, writes) {name, reads, updates, writes},
    QN_MIX_MAP(X)
#undef X
};

enum { LINES = 40, FROM = 3, TO = 37, BYTES = LINES * QN_LINE };
static _Alignas(64) unsigned char after[QN_MAX_STREAMS][BYTES];

static unsigned char value(int stream, int at) { return (unsigned char)(17 * stream + 31 * (at / QN_LINE) + at + 1); }

/* Byte `at` of stream k after the run: writes get the reads' exclusive or, updates their own with it. */
static unsigned char expected(const struct mix *m, int k, int at)
{
  unsigned char sum = 0;
  if (k < m->reads || at < FROM * QN_LINE || at >= TO * QN_LINE) return value(k, at);
  for (int r = 0; r < m->reads; r++) sum ^= value(r, at);
  return k < m->reads + m->updates ? value(k, at) ^ sum : sum;
}

static void runs(qn_mix mix, qn_stores stores)
{
  const struct mix *m = &mixes[mix];
  qn_lines lines = {.from = FROM, .to = TO};
  int n = m->reads + m->updates + m->writes, wrong = 0;
  for (int k = 0; k < n; k++) {
    lines.stream[k] = (char *)after[k];
    for (int at = 0; at < BYTES; at++) after[k][at] = value(k, at);
  }
  qn_cpu_stream(&lines, mix, stores);
  for (int k = 0; k < n; k++)
    for (int at = 0; at < BYTES; at++) wrong += after[k][at] != expected(m, k, at);
  check(!wrong, "%s, stores of kind %d, goes over its lines and no others: %d bytes are wrong", m->name, (int)stores,
        wrong);
}

static void tells_bytes(qn_device_kind kind)
{
  qn_ceiling *c;
  double moved = 0;
  const qn_exec exec = {.size = sizeof exec, .device = {kind, 0}};
  bool made = qn_ceiling_create(&c, &exec, 3 << 16) == QN_OK;
  for (qn_mix mix = 0; made && mix < QN_MIX_COUNT; mix++) {
    const struct mix *m = &mixes[mix];
    int n = m->reads + m->updates + m->writes;
    double line = QN_LINE * (m->reads + 2.0 * m->updates + m->writes), lines = (3 << 16) / n / QN_LINE;
    for (int way = 0; way < qn_ceiling_ways(c, mix); way++)
      check(qn_ceiling_stream(c, mix, way, 3 << 16, 2, &moved) == QN_OK && moved == 2 * line * lines,
            "%s: %s, %s moves %.0f bytes in two passes", qn_device_kind_name(kind), m->name,
            qn_ceiling_way_name(c, mix, way), moved);
  }
  refuses(qn_ceiling_stream(c, QN_MIX_COPY, 0, 64, 1, &moved), QN_BAD_ARGUMENT, "64 bytes");
  qn_ceiling_destroy(&c);
}

static void compiles(const char *arch, const char *what, const char *const *defines)
{
  qn_image image = {0};
  const qn_unit unit = {.source = "workbench/ceiling.cu", .defines = defines, .text = qn_workbench_sources[0].text};
  bool made = qn_cuda_compile_for(arch, &unit, &image) == QN_OK;
  check(made && image.log && strstr(image.log, " 0 bytes spill stores, 0 bytes spill loads"), "%s %s: %s", arch, what,
        made ? "no spill" : qn_last_error());
  qn_image_free(&image);
}

static void compiles_all(const char *arch)
{
  for (qn_mix mix = 0; mix < QN_MIX_COUNT; mix++)
    for (int bytes = 8; bytes <= 16; bytes += 8) {
      char text[4][24], what[64];
      snprintf(text[0], sizeof *text, "READS=%d", mixes[mix].reads);
      snprintf(text[1], sizeof *text, "UPDATES=%d", mixes[mix].updates);
      snprintf(text[2], sizeof *text, "WRITES=%d", mixes[mix].writes);
      snprintf(text[3], sizeof *text, "BYTES=%d", bytes);
      snprintf(what, sizeof what, "%s, %s", mixes[mix].name, text[3]);
      compiles(arch, what, (const char *const[]){text[0], text[1], text[2], text[3], NULL});
    }
  compiles(arch, "multiply-add", (const char *const[]){"RATE", "RATE_FMA_F32", NULL});
  if (!strcmp(arch, "sm_75")) return; /* its matrix units know neither type */
  compiles(arch, "TF32", (const char *const[]){"RATE", "RATE_MMA_TF32", NULL});
  compiles(arch, "bf16", (const char *const[]){"RATE", "RATE_MMA_BF16", NULL});
}

int main(int argc, char **argv)
{
  for (int k = 1; k < argc; k++) compiles_all(argv[k]);
  if (argc > 1) return test_end();
  for (qn_mix mix = 0; mix < QN_MIX_COUNT; mix++)
    for (qn_stores stores = 0; stores < QN_STORES_COUNT; stores++) runs(mix, stores);
  tells_bytes(QN_CPU);
  tells_bytes(QN_EMULATOR);
  check(qn_cpu_fma(100) >= 100 * 2 * 4, "multiply-adds are counted by lanes");
  return test_end();
}
