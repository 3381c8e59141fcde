/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - a sanitizer's findings as what the caller gets: lines in place of places, positions in the grid in place
 * of numbers, a sentence each; and the list of them that each thread keeps until its next sanitized launch. */
#include "device/emulator/sanitizer_state.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct {
  size_t n;
  qn_finding finding[QN_SANITIZER_KEPT];
} kept;

static const char *const kind_names[QN_FINDING_KIND_COUNT] = {
    [QN_FINDING_OUT_OF_BOUNDS] = "out of bounds",
    [QN_FINDING_RACE] = "race",
    [QN_FINDING_DIVERGENT_BARRIER] = "divergent barrier",
    [QN_FINDING_MISSED_LANES] = "missed lanes",
    [QN_FINDING_UNINITIALISED] = "uninitialised",
    [QN_FINDING_NOT_WRITTEN] = "not written",
    [QN_FINDING_TIME_LIMIT] = "time limit",
    [QN_FINDING_DIVISION] = "division by zero",
    [QN_FINDING_SAME_VALUE] = "same value",
    [QN_FINDING_MISALIGNED] = "misaligned",
    [QN_FINDING_ABSENT_LANE] = "absent lane",
};

const char *qn_finding_kind_name(qn_finding_kind kind)
{
  return (unsigned)kind < QN_FINDING_KIND_COUNT ? kind_names[kind] : "unknown";
}

static bool is_kind(const char *name, const char *at, size_t n)
{
  if (strlen(name) != n) return false;
  for (size_t k = 0; k < n; k++)
    if (name[k] != (at[k] == '-' || at[k] == '_' ? ' ' : at[k])) return false;
  return true;
}

static qn_status refuse_kind(const char *at, size_t n)
{
  char all[256] = "";
  for (int k = 0; k < QN_FINDING_KIND_COUNT; k++)
    if (k != QN_FINDING_TIME_LIMIT)
      snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", *all ? ", " : "", kind_names[k]);
  return qn_fail(QN_BAD_ARGUMENT, "\"%.*s\" is no kind of finding that can be ignored; there are %s", (int)n, at, all);
}

qn_status qn_finding_kinds(const char *names, uint32_t *kinds)
{
  uint32_t found = 0;
  qn_require(names && kinds, "kinds of findings: the %s is NULL", names ? "place for them" : "list");
  for (const char *at = names; *(at += strspn(at, ", "));) {
    size_t n = strcspn(at, ",");
    const char *next = at + n;
    int kind = 0;
    while (n && at[n - 1] == ' ') n--;
    while (kind < QN_FINDING_KIND_COUNT && !is_kind(kind_names[kind], at, n)) kind++;
    if (kind == QN_FINDING_KIND_COUNT || kind == QN_FINDING_TIME_LIMIT) return refuse_kind(at, n);
    found |= UINT32_C(1) << kind;
    at = next;
  }
  *kinds = found;
  return QN_OK;
}

size_t qn_kernel_finding_count(void) { return kept.n; }

qn_status qn_kernel_finding_at(size_t k, qn_finding *finding)
{
  qn_require(finding && finding->size == sizeof *finding, "qn_finding is NULL or has another size than %zu",
             sizeof *finding);
  qn_require(k < kept.n, "finding %zu: there are %zu", k, kept.n);
  *finding = kept.finding[k];
  return QN_OK;
}

void qn_report_clear(void) { kept.n = 0; }

/* ---- positions: the inverse of kernel/dialect/thread_position.h ---- */
static void place_in(const qn_sanitizer *w, uint64_t block, uint32_t thread, uint32_t at[3], uint32_t size[3])
{
  const uint64_t row = block / w->blocks[0];
  const uint32_t b[3] = {(uint32_t)(block % w->blocks[0]), (uint32_t)(row % w->blocks[1]),
                         (uint32_t)(row / w->blocks[1])};
  uint32_t by[3];
  for (int d = 0; d < 3; d++) {
    const uint64_t first = (uint64_t)b[d] * w->plan.group[d], rest = w->plan.grid[d] - first;
    size[d] = rest < w->plan.group[d] ? (uint32_t)rest : w->plan.group[d];
    by[d] = w->plan.full_groups ? w->plan.group[d] : size[d];
  }
  at[0] = thread % by[0];
  at[1] = thread / by[0] % by[1];
  at[2] = thread / by[0] / by[1];
}

static void position_of(const qn_sanitizer *w, uint64_t block, uint32_t thread, uint32_t position[3])
{
  uint32_t at[3], size[3];
  const uint64_t row = block / w->blocks[0];
  place_in(w, block, thread, at, size);
  position[0] = (uint32_t)(block % w->blocks[0]) * w->plan.group[0] + at[0];
  position[1] = (uint32_t)(row % w->blocks[1]) * w->plan.group[1] + at[1];
  position[2] = (uint32_t)(row / w->blocks[1]) * w->plan.group[2] + at[2];
}

bool qn_sanitizer_exists(const qn_sanitizer *w, uint64_t block, uint32_t thread)
{
  uint32_t at[3], size[3];
  place_in(w, block, thread, at, size);
  return at[0] < size[0] && at[1] < size[1] && at[2] < size[2];
}

/* ---- places to lines ---- */
static void make_query(const qn_sanitizer *w, qn_sanitizer_place place, qn_line_query *query)
{
  size_t n = 0;
  query->line = 0;
  query->offset[n++] = place & ((1u << QN_PLACE_OFFSET_BITS) - 1);
  for (uint32_t chain = place >> QN_PLACE_OFFSET_BITS; chain && n + 1 < QN_SANITIZER_NESTING;
       chain = w->chain_parent[chain])
    query->offset[n++] = w->chain_offset[chain];
  query->offset[n] = 0;
}

/* A branch may have no line of the body: what gcc puts into an empty loop, a function's end. What ran before it has,
 * behind the branches before. */
static void look_before(const qn_sanitizer_place *before, qn_line_query *query)
{
  enum { STEP = 3, REACH = 96 };
  size_t n = 0;
  while (query->offset[n]) n++;
  for (size_t k = 0; k < QN_SANITIZER_BEFORE && before[k]; k++)
    query->offset[n++] = before[k] & ((1u << QN_PLACE_OFFSET_BITS) - 1);
  for (size_t k = 0; k < QN_SANITIZER_BEFORE; k++) {
    const uint32_t at = before[k] & ((1u << QN_PLACE_OFFSET_BITS) - 1);
    for (uint32_t on = 0; at && on < REACH && n + 1 < QN_SANITIZER_NESTING; on += STEP) query->offset[n++] = at + on;
  }
  query->offset[n] = 0;
}

/* Fills in the lines of all raw findings. False: they could not be looked up. */
static bool find_lines(qn_sanitizer *w)
{
  qn_line_query *query = qn_allocate(2 * w->n_raw * sizeof *query);
  if (!query || !w->object) {
    qn_release(query);
    return false;
  }
  for (size_t k = 0; k < w->n_raw; k++) {
    make_query(w, w->raw[k].place, &query[2 * k]);
    make_query(w, w->raw[k].other_place, &query[2 * k + 1]);
    look_before(w->raw[k].before, &query[2 * k + (w->raw[k].fault != QN_WRONG_TIME)]);
  }
  const bool found = qn_lines_find(w->object, w->plan.file, query, 2 * w->n_raw);
  for (size_t k = 0; k < w->n_raw && found; k++) {
    if (query[2 * k].line) w->raw[k].line = query[2 * k].line;
    if (query[2 * k + 1].line) w->raw[k].other_line = query[2 * k + 1].line;
  }
  qn_release(query);
  return found;
}

static bool needs_lines(const qn_sanitizer *w)
{
  for (size_t k = 0; k < w->n_raw; k++)
    if (w->raw[k].place || w->raw[k].other_place) return true;
  return false;
}

/* ---- sentences ---- */
typedef struct sentence {
  char *at;
  size_t bytes, length;
} sentence;

__attribute__((format(printf, 2, 3))) static void say(sentence *s, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  const int n = vsnprintf(s->at + s->length, s->bytes - s->length, format, arguments);
  va_end(arguments);
  if (n > 0) s->length += (size_t)n;
  if (s->length >= s->bytes) s->length = s->bytes - 1;
}

static void say_thread(sentence *s, const uint32_t at[3]) { say(s, "thread (%u, %u, %u)", at[0], at[1], at[2]); }

static void say_line(sentence *s, int line)
{
  if (line)
    say(s, "line %d", line);
  else
    say(s, "an unknown line");
}

static void say_bytes(sentence *s, int64_t first, int64_t last)
{
  if (first == last)
    say(s, "byte %lld", (long long)first);
  else
    say(s, "bytes %lld to %lld", (long long)first, (long long)last);
}

static void say_outside(sentence *s, const qn_raw_finding *r)
{
  say(s, " %s ", r->fault == QN_WRONG_READ_OUTSIDE ? "reads" : "writes");
  if (r->array_bytes < 0) {
    say(s, "%lld bytes at address 0x%llx, where no array of the launch is", (long long)(r->last - r->first + 1),
        (unsigned long long)r->first);
    return;
  }
  say_bytes(s, r->first, r->last);
  say(s, " of %s, which has %lld bytes", r->where, (long long)r->array_bytes);
}

static void say_race(sentence *s, const qn_raw_finding *r, const qn_finding *f)
{
  say(s, " %s ", r->write ? "writes" : "reads");
  say_bytes(s, r->first, r->last);
  say(s, " of %s, which ", r->where);
  say_thread(s, f->other);
  say(s, " %s at ", r->other_write ? "wrote" : "read");
  say_line(s, f->other_line);
  if (r->fault == QN_WRONG_SAME)
    say(s, "; the values are equal each time, but no barrier orders the two");
  else
    say(s, ", and no barrier orders the two");
}

static void say_meeting(sentence *s, const qn_raw_finding *r, const qn_finding *f)
{
  if (r->fault == QN_WRONG_LANES)
    say(s, " is in a word of its simdgroup with the lanes 0x%08x alone; ", r->lanes);
  else
    say(s, " waits at a barrier for ");
  say_thread(s, f->other);
  if (r->fault == QN_WRONG_RETURNED)
    say(s, ", which has returned (last seen at ");
  else if (r->other_write)
    say(s, r->fault == QN_WRONG_LANES ? " waits elsewhere (" : ", which waits at another (");
  else
    say(s, " has not come (last seen at ");
  say_line(s, f->other_line);
  say(s, ")");
}

static void say_fault(sentence *s, const qn_raw_finding *r, const qn_finding *f)
{
  switch (r->fault) {
  case QN_WRONG_READ_OUTSIDE:
  case QN_WRONG_WRITE_OUTSIDE: say_outside(s, r); break;
  case QN_WRONG_WRITE_INPUT:
    say(s, " writes ");
    say_bytes(s, r->first, r->last);
    say(s, " of %s, which it may only read", r->where);
    break;
  case QN_WRONG_INDEX: say(s, " takes element %lld of a %s", (long long)r->first, f->where); break;
  case QN_WRONG_STACK:
    say(s, " has used up its stack of %lld bytes: calls without an end, or large arrays of its own",
        (long long)r->array_bytes);
    break;
  case QN_WRONG_OWN: say(s, " %s outside of an array of its own", r->write ? "writes" : "reads"); break;
  case QN_WRONG_ALIGNMENT:
    say(s, " %s ", r->write ? "writes" : "reads");
    if (r->array_bytes < 0)
      say(s, "at address 0x%llx", (unsigned long long)r->first);
    else
      say(s, "at byte %lld of %s", (long long)r->first, r->where);
    say(s, " by a type whose alignment is %u: GPUs stop there, or read elsewhere", r->lanes);
    break;
  case QN_WRONG_ABSENT:
    say(s, " has what a shuffle gave it of lane %u, which was not there, and writes memory with it", r->lanes);
    break;
  case QN_WRONG_DIVISION: say(s, " divides an integer by zero, or the lowest by -1"); break;
  case QN_WRONG_RACE:
  case QN_WRONG_SAME: say_race(s, r, f); break;
  case QN_WRONG_RETURNED:
  case QN_WRONG_BARRIERS:
  case QN_WRONG_LANES: say_meeting(s, r, f); break;
  case QN_WRONG_UNINITIALISED:
    say(s, " reads ");
    say_bytes(s, r->first, r->last);
    say(s, " of %s before anything wrote there", r->where);
    break;
  case QN_WRONG_NOT_WRITTEN:
  case QN_WRONG_TIME: break;
  }
}

static void make_text(const qn_sanitizer *w, const qn_raw_finding *r, qn_finding *f, bool lines)
{
  sentence s = {f->text, sizeof f->text, 0};
  say(&s, "kernel %s", w->plan.kernel);
  if (r->fault == QN_WRONG_NOT_WRITTEN) {
    const int64_t element = r->lanes;
    say(&s, ": nothing wrote %llu of the %lld elements of %s, the first of them %lld to %lld",
        (unsigned long long)r->count, (long long)(r->array_bytes / element), r->where, (long long)(r->first / element),
        (long long)((r->last + 1) / element - 1));
    return;
  }
  if (r->fault == QN_WRONG_TIME) {
    say(&s, " ran longer than %g ms; stopped at ", (double)w->plan.limit_ns * 1e-6);
    say_line(&s, f->line);
    if (strcmp(w->plan.file, w->plan.kernel)) say(&s, " of %s", w->plan.file);
  } else {
    say(&s, ", ");
    if (strcmp(w->plan.file, w->plan.kernel)) say(&s, "%s, ", w->plan.file);
    say_line(&s, f->line);
    say(&s, ": ");
    say_thread(&s, f->thread);
    say_fault(&s, r, f);
    if (r->count > 1) say(&s, " (%llu times)", (unsigned long long)r->count);
  }
  if (!lines) say(&s, "; without addr2line (binutils) no line can be told");
}

qn_finding_kind qn_sanitizer_kind(qn_sanitizer_wrong fault)
{
  switch (fault) {
  case QN_WRONG_SAME: return QN_FINDING_SAME_VALUE;
  case QN_WRONG_DIVISION: return QN_FINDING_DIVISION;
  case QN_WRONG_ALIGNMENT: return QN_FINDING_MISALIGNED;
  case QN_WRONG_ABSENT: return QN_FINDING_ABSENT_LANE;
  case QN_WRONG_RACE: return QN_FINDING_RACE;
  case QN_WRONG_RETURNED:
  case QN_WRONG_BARRIERS: return QN_FINDING_DIVERGENT_BARRIER;
  case QN_WRONG_LANES: return QN_FINDING_MISSED_LANES;
  case QN_WRONG_UNINITIALISED: return QN_FINDING_UNINITIALISED;
  case QN_WRONG_NOT_WRITTEN: return QN_FINDING_NOT_WRITTEN;
  case QN_WRONG_TIME: return QN_FINDING_TIME_LIMIT;
  default: return QN_FINDING_OUT_OF_BOUNDS;
  }
}

static bool has_other(qn_sanitizer_wrong fault)
{
  return fault == QN_WRONG_RACE || fault == QN_WRONG_SAME || fault == QN_WRONG_RETURNED || fault == QN_WRONG_BARRIERS ||
         fault == QN_WRONG_LANES;
}

/* Several places may be one line (a loop unrolled, a vector's elements); then it is one finding. */
static bool joined(qn_raw_finding *raw, size_t k)
{
  const qn_raw_finding *r = &raw[k];
  for (size_t j = 0; j < k; j++) {
    qn_raw_finding *old = &raw[j];
    const bool same = old->line == r->line && old->other_line == r->other_line;
    const bool crossed = (old->fault == QN_WRONG_RACE || old->fault == QN_WRONG_SAME) && old->line == r->other_line &&
                         old->other_line == r->line;
    if (old->fault != r->fault || old->where != r->where || (!same && !crossed) || !old->count) continue;
    if (r->fault == QN_WRONG_NOT_WRITTEN) continue;
    old->count += r->count;
    return true;
  }
  return false;
}

/* Equal values some times and others at other times are a race. */
static void drop_same(qn_sanitizer *w)
{
  for (size_t k = 0; k < w->n_raw; k++)
    for (size_t j = 0; j < w->n_raw && w->raw[k].fault == QN_WRONG_SAME; j++) {
      const qn_raw_finding *race = &w->raw[j], *same = &w->raw[k];
      if (race->fault == QN_WRONG_RACE && race->write && race->other_write && race->where == same->where &&
          ((race->line == same->line && race->other_line == same->other_line) ||
           (race->line == same->other_line && race->other_line == same->line)))
        w->raw[k].fault = QN_WRONG_RACE;
    }
}

/* A type is told as gcc's "'float [4]'" or clang's "'float[4]'". */
static void name_array(const qn_raw_finding *r, qn_finding *f)
{
  const char *from = r->where ? r->where : "";
  size_t n = 0;
  if (r->fault != QN_WRONG_INDEX) {
    snprintf(f->where, sizeof f->where, "%s", from);
    return;
  }
  for (; *from && n + 1 < sizeof f->where; from++)
    if (*from != '\'' && !(*from == ' ' && from[1] == '[')) f->where[n++] = *from;
  f->where[n] = 0;
}

size_t qn_report_make(qn_sanitizer *w, char *first, size_t bytes)
{
  const bool lines = !needs_lines(w) || find_lines(w);
  drop_same(w);
  for (size_t k = 0; k < w->n_raw; k++)
    if (joined(w->raw, k)) w->raw[k].count = 0;
  kept.n = 0;
  for (size_t k = 0; k < w->n_raw && kept.n < QN_SANITIZER_KEPT; k++) {
    const qn_raw_finding *r = &w->raw[k];
    qn_finding *f = &kept.finding[kept.n];
    if (!r->count) continue;
    *f = (qn_finding){.size = sizeof *f,
                      .kind = qn_sanitizer_kind(r->fault),
                      .line = r->line,
                      .other_line = has_other(r->fault) ? r->other_line : 0,
                      .first = r->first,
                      .last = r->last};
    if (r->fault < QN_WRONG_NOT_WRITTEN) position_of(w, r->block, r->thread, f->thread);
    if (has_other(r->fault)) position_of(w, r->other_block, r->other_thread, f->other);
    if (r->fault >= QN_WRONG_RETURNED && r->fault <= QN_WRONG_LANES) f->first = f->last = -1;
    if (r->fault == QN_WRONG_TIME) f->first = f->last = -1;
    name_array(r, f);
    make_text(w, r, f, lines);
    kept.n++;
  }
  if (kept.n) snprintf(first, bytes, "%s", kept.finding[0].text);
  return kept.n;
}
