/* SPDX-License-Identifier: Apache-2.0 */
/* tune_state.c - see tune_state.h: lines "NS SPEEDUP KEY", appended as they come, so that a stop costs one at most. A
 * line that is none ends what is taken up. */
#include "workbench/tune_state.h"
#include "core/file.h"
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_line(char *line, double *ns, double *speedup, char **key)
{
  char *end;
  const size_t n = strlen(line);
  if (n < 5 || line[n - 1] != '\n') return false;
  line[n - 1] = 0;
  *ns = strtod(line, &end);
  if (end == line || *end != ' ') return false;
  char *second = end + 1;
  *speedup = strtod(second, key);
  if (*key == second || **key != ' ' || !isfinite(*ns) || !isfinite(*speedup) || *ns < 0 || *speedup < 0) return false;
  return strlen(++*key) < QN_SEEN_KEY;
}

/* False where the file is another's. */
static bool take_up(qn_tune_seen *s, FILE *file, const char *head)
{
  char line[QN_SEEN_KEY + 256], *key;
  double ns, speedup;
  if (!fgets(line, sizeof line, file) || strcmp(line, head) != 0) return false;
  while (fgets(line, sizeof line, file) && read_line(line, &ns, &speedup, &key))
    json_object_set_new(s->seen, key, json_real(speedup));
  s->resumed = json_object_size(s->seen);
  return true;
}

static qn_status begin(qn_tune_seen *s, int directory, const char *name, const char *head, bool append)
{
  s->file = openat(directory, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (append ? O_APPEND : O_TRUNC), 0600);
  if (s->file >= 0 && (append || qn_write_all(s->file, head, strlen(head)))) return QN_OK;
  return qn_fail(QN_IO_ERROR, "%s cannot be written: %s", s->path, strerror(errno));
}

qn_status qn_tune_state_open(qn_tune_seen *s, const char *op, const char *who, bool resume)
{
  char path[QN_TUNE_PATH], name[64], head[256];
  int directory;
  *s = (qn_tune_seen){.file = -1, .seen = json_object()};
  qn_try(qn_tune_open(true, path, &directory));
  snprintf(name, sizeof name, "%.48s.state", op);
  snprintf(s->path, sizeof s->path, "%s/%s", path, name);
  snprintf(head, sizeof head, "quern tune state 1 %.48s, %.160s\n", op, who);
  const int old = resume ? openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
  FILE *file = old >= 0 ? fdopen(old, "r") : NULL;
  const bool ours = file && take_up(s, file, head);
  if (file)
    fclose(file);
  else if (old >= 0)
    close(old);
  const qn_status status = begin(s, directory, name, head, ours);
  close(directory);
  if (status != QN_OK) qn_tune_state_close(s);
  return status;
}

void qn_tune_state_close(qn_tune_seen *s)
{
  if (s->file >= 0) close(s->file);
  json_decref(s->seen);
  *s = (qn_tune_seen){.file = -1};
}

qn_status qn_tune_state_add(qn_tune_seen *s, const char *key, double ns, double speedup)
{
  char line[QN_SEEN_KEY + 96];
  json_object_set_new(s->seen, key, json_real(speedup));
  const int n = snprintf(line, sizeof line, "%.1f %.6f %s\n", ns, speedup, key);
  if (n > 0 && qn_write_all(s->file, line, (size_t)n)) return QN_OK;
  return qn_fail(QN_IO_ERROR, "%s cannot be written: %s", s->path, strerror(errno));
}
