/* SPDX-License-Identifier: Apache-2.0 */
/* search_judge.c - see search_judge.h. */
#include "workbench/search_judge.h"
#include "core/core.h"
#include "core/utf8.h"
#include "workbench/sampler.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_TEXT = 16 << 20 };

/* ---- a line ---- */

/* The number behind "line 12" or "body.metal:12" in a reason. */
static long line_of(const char *reason)
{
  const char *at = strstr(reason, "line ");
  if (at && isdigit((unsigned char)at[5])) return strtol(at + 5, NULL, 10);
  for (at = reason; (at = strchr(at, ':')); at++)
    if (isdigit((unsigned char)at[1])) return strtol(at + 1, NULL, 10);
  return 0;
}

static double number_of(const json_t *value) { return json_is_number(value) ? json_number_value(value) : NAN; }

static void read_verdict(json_t *line, qn_search_verdict *v)
{
  static const char *const right[] = {"faster", "same", "slower", "unclear"};
  const char *word = json_string_value(json_object_get(line, "verdict"));
  const char *reason = json_string_value(json_object_get(line, "reason"));
  const json_t *better = json_object_get(json_object_get(line, "speedup"), "better");
  *v = (qn_search_verdict){.speedup = NAN, .low = NAN, .text = json_incref(line)};
  snprintf(v->word, sizeof v->word, "%s", word ? word : "no verdict");
  snprintf(v->reason, sizeof v->reason, "%s", reason ? reason : "");
  qn_utf8_mend(v->word);
  qn_utf8_mend(v->reason);
  v->line = line_of(v->reason);
  for (size_t k = 0; k < sizeof right / sizeof *right; k++) v->correct = v->correct || !strcmp(v->word, right[k]);
  v->judgeable = strcmp(v->word, "cannot be judged") != 0;
  if (v->correct) v->speedup = number_of(json_object_get(better, "ratio"));
  if (v->correct) v->low = number_of(json_array_get(json_object_get(better, "interval"), 0));
}

void qn_search_verdict_close(qn_search_verdict *v)
{
  json_decref(v->text);
  v->text = NULL;
}

/* ---- the process ---- */

qn_status qn_search_judge_begin(const qn_search_bench *b, const char *candidate, const char *level,
                                qn_search_judging *j)
{
  const char *const ours[] = {b->command,
                              "judge",
                              b->problem->path,
                              candidate,
                              "--level",
                              level,
                              "--json",
                              "-",
                              "--backend",
                              b->backend,
                              b->workload ? "--workload" : NULL,
                              b->workload,
                              NULL};
  const char *const another[] = {b->judge, b->problem->path, candidate, "--level", level, "--json", "-", NULL};
  *j = (qn_search_judging){.child = {0, -1, -1}, .began_ns = qn_now_ns()};
  const int errors = open(b->errors, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (errors < 0) return qn_fail(QN_IO_ERROR, "%s: it could not be written: %s", b->errors, strerror(errno));
  const qn_status status = qn_program_start(&j->child, b->judge ? another : ours, NULL, errors);
  close(errors);
  if (status == QN_OK) qn_program_close(&j->child.to);
  return status;
}

bool qn_search_judge_read(const qn_search_bench *b, qn_search_judging *j)
{
  if ((double)(qn_now_ns() - j->began_ns) * 1e-9 > b->limit_s) return true;
  return j->ended = qn_program_read(&j->child, &j->text, MOST_TEXT);
}

/* What it said last, in one line. */
static void read_errors(const char *path, char *text, size_t bytes)
{
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  const off_t end = file < 0 ? 0 : lseek(file, 0, SEEK_END), room = (off_t)bytes - 1;
  ssize_t n = file < 0 ? 0 : pread(file, text, bytes - 1, end > room ? end - room : 0);
  if (file >= 0) close(file);
  while (n > 0 && isspace((unsigned char)text[n - 1])) n--;
  text[n > 0 ? n : 0] = 0;
  for (char *c = text; *c; c++)
    if (*c == '\n') *c = ' ';
}

/* The last line that is an object with a verdict; NULL. */
static json_t *find_line(const char *text, size_t n)
{
  json_t *found = NULL;
  for (size_t from = 0, to; from < n; from = to + 1) {
    const char *end = memchr(text + from, '\n', n - from);
    to = end ? (size_t)(end - text) : n;
    json_t *line = json_loadb(text + from, to - from, 0, NULL);
    const bool is = json_is_string(json_object_get(line, "verdict"));
    json_decref(is ? found : line);
    if (is) found = line;
  }
  return found;
}

void qn_search_judge_end(const qn_search_bench *b, qn_search_judging *j, qn_search_verdict *v)
{
  char said[QN_PROGRAM_SAID], errors[400] = "";
  const bool flooded = j->text.failed || j->text.length > MOST_TEXT, whole = j->ended && !flooded;
  json_t *line = whole ? find_line(j->text.at, j->text.length) : NULL;
  qn_program_end(&j->child, whole ? 2000 : 0, said);
  read_verdict(line, v);
  json_decref(line);
  if (!line) {
    read_errors(b->errors, errors, sizeof errors);
    snprintf(v->word, sizeof v->word, "no verdict");
    if (!j->ended)
      snprintf(v->reason, sizeof v->reason, "the judge was stopped after %g s", b->limit_s);
    else
      snprintf(v->reason, sizeof v->reason, "the judge gave no verdict%s%s%s%s", *said ? ", " : "", said,
               *errors ? ": " : "", errors);
  }
  qn_utf8_mend(v->reason);
  qn_text_free(&j->text);
  *j = (qn_search_judging){.child = {0, -1, -1}};
}

qn_status qn_search_judge_run(const qn_search_bench *b, const char *candidate, const char *level,
                              const volatile int *stop, qn_search_verdict *v)
{
  qn_search_judging j;
  qn_try(qn_search_judge_begin(b, candidate, level, &j));
  j.ended = qn_program_read_all(&j.child, &j.text, MOST_TEXT, b->limit_s, stop);
  qn_search_judge_end(b, &j, v);
  if (*stop) *v->word = 0;
  return QN_OK;
}
