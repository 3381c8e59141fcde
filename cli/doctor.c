/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.c - `quern doctor`: the report on this machine and installation. Here are the report itself, the options in
 * force and the cache; tools and build are in doctor_build.c, devices in doctor_device.c. It mends nothing: each line
 * is `ok` or says which command would. */
#include "cli/doctor.h"
#include "cli/verb.h"
#include "workbench/build.h"
#include "workbench/human.h"
#include "workbench/term.h"
#include "workbench/record_inner.h"
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct request {
  const char *required; /* as it was given */
  qn_device device;     /* that name */
  qn_device_kind backend;
  bool limited, json;
} order;

static QN_READER(read_device)
{
  if (qn_verb_device_name(text, to) != QN_OK) argp_error(state, "--%s: %s", option->name, qn_last_error());
}

static QN_READER(read_backend)
{
  order *o = to;
  qn_device device;
  read_device(state, option, &device, text);
  o->limited = true;
  o->backend = device.kind;
}

static QN_READER(read_required)
{
  order *o = to;
  read_device(state, option, &o->device, text);
  o->required = text;
}

static QN_READER(refuse_argument)
{
  argp_error(state, "what is %s? One backend is looked at by --backend cpu, cuda or emulator", text);
}

static const qn_verb_option options[] = {
    {"backend", 'b', "cpu|cuda|emulator", "Only what this backend needs", 0, .read = read_backend},
    {"require", 0, "cpu|cuda[:N]|emulator", "Exit with 3 unless a kernel compiled and ran there with the right result",
     0, .read = read_required},
    {"json", 0, NULL, "Print JSON", 0, QN_TO_FLAG(json)},
    {0},
};

void qn_doctor_say(qn_doctor *doctor, qn_doctor_finding finding, const char *topic, const char *mend,
                   const char *format, ...)
{
  static const char *const words[] = {"ok", "none", "MEND"};
  static const char *const states[] = {"ok", "absent", "mend"};
  static const qn_colour colours[] = {QN_GREEN, QN_DIM, QN_RED};
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  doctor->broken += finding == QN_DOCTOR_MEND;
  if (doctor->lines) {
    json_t *line = json_pack("{s:s, s:s, s:s}", "topic", topic, "state", states[finding], "text", text);
    if (line && mend) json_object_set_new(line, "mend", json_string(mend));
    json_array_append_new(doctor->lines, line);
    return;
  }
  printf("%s%-4s%s  %-9s ", qn_term_colour(stdout, colours[finding]), words[finding], qn_term_colour(stdout, QN_PLAIN),
         topic);
  qn_term_wrap(stdout, 16, text);
  if (mend) printf("%16s%s%s%s\n", "", qn_term_colour(stdout, QN_BOLD), mend, qn_term_colour(stdout, QN_PLAIN));
  fflush(stdout); /* the next examination may take a second */
}

/* ---- options in force ---- */
static void examine_options(qn_doctor *doctor)
{
  for (size_t k = 0; k < qn_option_count(); k++) {
    const qn_option_info *option = qn_option_at(k);
    const char *value, *variable = getenv(option->variable);
    if (qn_verb_value(option->name, &value) != QN_OK) {
      doctor->misled = true;
      char mend[96];
      snprintf(mend, sizeof mend, "unset %s   # or one of %s", option->variable, option->values);
      qn_doctor_say(doctor, QN_DOCTOR_MEND, "option", mend, "%s", qn_last_error());
    } else if (variable && *variable) {
      qn_doctor_say(doctor, QN_DOCTOR_OK, "option", NULL, "%s = %s, from %s", option->name, value, option->variable);
    }
  }
}

/* ---- the cache ---- */
typedef struct sums {
  size_t n, invalid;
  int64_t bytes;
} sums;

static int count(void *user, const qn_cache_entry *entry)
{
  sums *total = user;
  total->n++;
  total->invalid += !entry->valid;
  total->bytes += entry->bytes;
  return 0;
}

/* Whether files can be made in it; for one that is not there yet, whether it can be made. */
static bool usable(const char *directory)
{
  char path[4096];
  snprintf(path, sizeof path, "%s", directory);
  while (access(path, F_OK) && strlen(dirname(path)) > 1) {}
  return !access(path, W_OK | X_OK);
}

static void examine_cache(qn_doctor *doctor)
{
  const char *directory, *on = "on";
  sums total = {0};
  if (qn_option_get("cache", &on) == QN_OK && !strcmp(on, "off")) {
    qn_doctor_say(doctor, QN_DOCTOR_NONE, "cache", "unset QUERN_CACHE",
                  "off: every process compiles its kernels again");
    return;
  }
  if (qn_cache_directory(&directory) != QN_OK || qn_cache_each(count, &total) != QN_OK) {
    qn_doctor_say(doctor, QN_DOCTOR_MEND, "cache",
                  "export QUERN_CACHE_DIR=$HOME/.cache/quern   # or another of your own", "%s", qn_last_error());
    return;
  }
  char mend[1024];
  snprintf(mend, sizeof mend, "chmod u+rwx '%.900s'", directory);
  if (!usable(directory))
    qn_doctor_say(doctor, QN_DOCTOR_MEND, "cache", mend, "%s cannot be written: kernels are compiled in every process",
                  directory);
  else if (total.invalid)
    qn_doctor_say(doctor, QN_DOCTOR_MEND, "cache", "quern cache clear --invalid",
                  "%zu of %zu entries in %s are damaged", total.invalid, total.n, directory);
  else
    qn_doctor_say(doctor, QN_DOCTOR_OK, "cache", NULL, "%s, %zu %s, %s", directory, total.n,
                  total.n == 1 ? "entry" : "entries", qn_human_bytes(total.bytes).text);
}

/* ---- the report ---- */
static bool examine(qn_doctor *doctor, const order *o)
{
  bool works[QN_DEVICE_KIND_COUNT] = {false};
  bool all = !o->limited;
  qn_doctor_say(doctor, QN_DOCTOR_OK, "quern", NULL, "%s%s%s, built with %s, %s", qn_version(),
                *qn_build_commit ? ", commit " : "", qn_build_commit, qn_build_compiler, qn_build_type);
  qn_doctor_library(doctor);
  qn_doctor_build(doctor);
  if (all) qn_doctor_tools(doctor);
  examine_options(doctor);
  examine_cache(doctor);
  if (all || o->backend == QN_CPU) works[QN_CPU] = qn_doctor_cpu(doctor);
  if (all || o->backend == QN_EMULATOR) works[QN_EMULATOR] = qn_doctor_emulator(doctor);
  bool one_device = o->required && o->device.kind == QN_CUDA && strchr(o->required, ':');
  if (all || o->backend == QN_CUDA) works[QN_CUDA] = qn_doctor_cuda(doctor, one_device ? o->device.index : -1);
  return !o->required || works[o->device.kind];
}

static int run(int argc, char **argv)
{
  order o = {0};
  qn_verb_parse_only(&qn_verb_doctor, argc, argv, &o);
  if (o.limited && o.required && o.device.kind != o.backend)
    return qn_complain(&qn_verb_doctor, QN_EXIT_USAGE, "--backend %s leaves out what --require %s asks for",
                       qn_device_kind_name(o.backend), o.required);
  qn_doctor doctor = {.lines = o.json ? json_array() : NULL};
  if (o.required) doctor.needs[o.device.kind] = true;
  bool met = examine(&doctor, &o);
  if (o.json) {
    json_t *report = json_pack("{s:s, s:b, s:I, s:O}", "version", qn_version(), "met", met, "to_mend",
                               (json_int_t)doctor.broken, "lines", doctor.lines);
    qn_json_print(stdout, report, JSON_INDENT(2));
    json_decref(doctor.lines);
  }
  if (!met)
    return qn_complain(&qn_verb_doctor, QN_EXIT_ENVIRONMENT, "%s does not work here; the report says why", o.required);
  if (doctor.misled) return QN_EXIT_USAGE;
  if (o.required) return QN_EXIT_OK;
  return doctor.broken ? QN_EXIT_FAILED : QN_EXIT_OK;
}

const qn_verb qn_verb_doctor = {
    .name = "doctor",
    .brief = "examine this machine: what works, and how to repair the rest",
    .run = run,
    .options = options,
    .argument = {.read = refuse_argument},
    .args_doc = "", /* parse tells a word by the option that was meant */
    .doc = "Examine this machine and this installation.\v"
           "  ok    works\n"
           "  none  missing, which is no fault; the next line installs it\n"
           "  MEND  wrong; the next line is a command that repairs it\n\n"
           "A GPU is required only by --require cuda. Exit status: 0 without a MEND line, 1 with one, 3 where the "
           "device of --require does not work.",
};
