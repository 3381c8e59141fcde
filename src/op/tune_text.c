/* SPDX-License-Identifier: Apache-2.0 */
/* tune_text.c - tune tables as text, both ways. What is read may be anything: another program's file, half a file, one
 * from a version to come. Nothing of a line that is not understood to its last letter is taken.
 *
 *   quern tune 1 OP
 *   arch=sm_90 types=bf16/bf16/bf16 rows=1025- cols=8193-16384 layout=dense choice=tiles-128x8x1 over=flat-256x8x1
 *     ratio=1.043 low=1.039 high=1.047 registers=32 shared=0 blocks=8 copy=1.012 state=measured date=2026-11-22
 *     commit=1a2b3c4
 *
 * (on one line); products have precision=tf32 depth=513-1024 width=1-64 besides. Numbers are decimal, with a point, in
 * every locale. */
#include "core/core.h"
#include "device/arch.h"
#include "op/tune.h"
#include <stdio.h>
#include <string.h>

static const char head[] = "quern tune 1 ";
static const char *const layouts[] = {"dense", "pitched", "*"}, *const states[] = {"measured", "published"};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts, N_STATES = sizeof states / sizeof *states };
static const char digits[] = "0123456789", small[] = "abcdefghijklmnopqrstuvwxyz0123456789";

/* ---- words ---- */

static bool made_of(const char *text, const char *letters, const char *more)
{
  for (; *text; text++)
    if (!strchr(letters, *text) && !strchr(more, *text)) return false;
  return true;
}

static bool take_word(const char *value, const char *more, char *to, size_t bytes)
{
  const size_t n = strlen(value);
  if (!n || n >= bytes || !made_of(value, small, more)) return false;
  memcpy(to, value, n + 1);
  return true;
}

static bool take_among(const char *value, const char *const *words, int n, int *which)
{
  for (int k = 0; k < n; k++)
    if (!strcmp(value, words[k])) return *which = k, true;
  return false;
}

/* At most 18 digits. */
static bool take_whole(const char **at, uint64_t *value)
{
  const size_t n = strspn(*at, digits);
  if (n < 1 || n > 18) return false;
  for (*value = 0; strchr(digits, **at) && **at; ++*at) *value = 10 * *value + (uint64_t)(**at - '0');
  return true;
}

static bool take_int(const char *value, int *number)
{
  uint64_t whole;
  if (!take_whole(&value, &whole) || *value || whole > 1 << 20) return false;
  *number = (int)whole;
  return true;
}

/* "1025-16384", "8193-" without an end. */
static bool take_range(const char *value, uint64_t *least, uint64_t *most)
{
  if (!take_whole(&value, least) || *value++ != '-') return false;
  *most = UINT64_MAX;
  if (*value && !take_whole(&value, most)) return false;
  return !*value && *least >= 1 && *least <= *most;
}

/* "1.043": digits, a point, digits; above 0 and below 10^6. The library's host may have any locale, so no strtod. */
static bool take_real(const char *value, double *real)
{
  uint64_t whole, part = 0;
  double scale = 1;
  if (strspn(value, digits) > 6 || !take_whole(&value, &whole)) return false;
  if (*value == '.') {
    const size_t n = strspn(++value, digits);
    if (n < 1 || n > 9 || !take_whole(&value, &part)) return false;
    for (size_t k = 0; k < n; k++) scale *= 10;
  }
  *real = (double)whole + (double)part / scale;
  return !*value && *real > 0;
}

static bool take_date(const char *value, char to[12])
{
  if (strlen(value) != 10) return false;
  for (int k = 0; k < 10; k++)
    if (k == 4 || k == 7 ? value[k] != '-' : !strchr(digits, value[k])) return false;
  memcpy(to, value, 11);
  return true;
}

/* ---- a line ---- */

static bool take_types(const char *v, qn_tune_entry *e)
{
  return take_word(v, strcmp(v, "*") ? "_/-" : "*", e->types, sizeof e->types);
}
static bool take_arch(const char *v, qn_tune_entry *e)
{
  qn_arch arch;
  return take_word(v, "_-", e->arch, sizeof e->arch) && qn_arch_from_name(v, &arch) && !strcmp(arch.name, v);
}
static bool take_rows(const char *v, qn_tune_entry *e) { return take_range(v, &e->rows_least, &e->rows_most); }
static bool take_cols(const char *v, qn_tune_entry *e) { return take_range(v, &e->cols_least, &e->cols_most); }
static bool take_layout(const char *v, qn_tune_entry *e)
{
  int which;
  if (!take_among(v, layouts, N_LAYOUTS, &which)) return false;
  e->layout = (qn_tune_layout)which;
  return true;
}
static bool take_precision(const char *v, qn_tune_entry *e)
{
  return take_word(v, "", e->precision, sizeof e->precision);
}
static bool take_depth(const char *v, qn_tune_entry *e) { return take_range(v, &e->depth_least, &e->depth_most); }
static bool take_width(const char *v, qn_tune_entry *e) { return take_range(v, &e->width_least, &e->width_most); }
/* "tiles-128x8x1", "128x1x1+TILE=4". */
static const char in_names[] = "_-.+=ABCDEFGHIJKLMNOPQRSTUVWXYZ";
static bool take_choice(const char *v, qn_tune_entry *e) { return take_word(v, in_names, e->choice, sizeof e->choice); }
static bool take_over(const char *v, qn_tune_entry *e) { return take_word(v, in_names, e->over, sizeof e->over); }
static bool take_ratio(const char *v, qn_tune_entry *e) { return take_real(v, &e->ratio); }
static bool take_low(const char *v, qn_tune_entry *e) { return take_real(v, &e->low); }
static bool take_high(const char *v, qn_tune_entry *e) { return take_real(v, &e->high); }
static bool take_registers(const char *v, qn_tune_entry *e) { return take_int(v, &e->registers); }
static bool take_shared(const char *v, qn_tune_entry *e) { return take_int(v, &e->shared); }
static bool take_blocks(const char *v, qn_tune_entry *e) { return take_int(v, &e->blocks); }
static bool take_copy(const char *v, qn_tune_entry *e) { return take_real(v, &e->copy); }
static bool take_state(const char *v, qn_tune_entry *e)
{
  int which;
  if (!take_among(v, states, N_STATES, &which)) return false;
  e->state = (qn_tune_state)which;
  return true;
}
static bool take_day(const char *v, qn_tune_entry *e) { return take_date(v, e->date); }
static bool take_commit(const char *v, qn_tune_entry *e) { return take_word(v, "-", e->commit, sizeof e->commit); }

static const struct {
  const char *key, *wrong;
  bool (*take)(const char *value, qn_tune_entry *entry);
  bool needed;
} fields[] = {
    {"arch", "arch is no architecture", take_arch, true},
    {"types", "types are not types by role", take_types, true},
    {"rows", "rows are no range", take_rows, true},
    {"cols", "cols are no range", take_cols, true},
    {"layout", "layout is none of dense, pitched, *", take_layout, true},
    {"precision", "precision is no class", take_precision, false},
    {"depth", "depth is no range", take_depth, false},
    {"width", "width is no range", take_width, false},
    {"choice", "choice is no name", take_choice, true},
    {"over", "over is no name", take_over, false},
    {"ratio", "ratio is no number above 0", take_ratio, false},
    {"low", "low is no number above 0", take_low, false},
    {"high", "high is no number above 0", take_high, false},
    {"registers", "registers are no number", take_registers, false},
    {"shared", "shared is no number of bytes", take_shared, false},
    {"blocks", "blocks are no number", take_blocks, false},
    {"copy", "copy is no number above 0", take_copy, false},
    {"state", "state is neither measured nor published", take_state, true},
    {"date", "date is no YYYY-MM-DD", take_day, true},
    {"commit", "commit is no name", take_commit, false},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

/* One "key=value" of a line; its bit in *seen. */
static bool take_field(char *word, qn_tune_entry *e, unsigned *seen, const char **why)
{
  char *value = strchr(word, '=');
  *why = "a word is no key=value";
  if (!value) return false;
  *value++ = 0;
  *why = "a key is unknown";
  for (int k = 0; k < N_FIELDS; k++) {
    if (strcmp(word, fields[k].key) != 0) continue;
    *why = "a key stands twice";
    if (*seen >> k & 1) return false;
    *seen |= 1u << k;
    *why = fields[k].wrong;
    return fields[k].take(value, e);
  }
  return false;
}

static bool is_whole(const qn_tune_entry *e, unsigned seen, const char **why)
{
  *why = "a key is missing";
  for (int k = 0; k < N_FIELDS; k++)
    if (fields[k].needed && !(seen >> k & 1)) return false;
  *why = "ratio, low, high and over belong together";
  const bool ratio = e->ratio > 0;
  if (ratio != (e->low > 0) || ratio != (e->high > 0) || (ratio && !*e->over)) return false;
  *why = "ratio is not between low and high";
  if (ratio && !(e->low <= e->ratio && e->ratio <= e->high)) return false;
  *why = "a measured entry has a ratio";
  return e->state == QN_TUNE_PUBLISHED || ratio;
}

bool qn_tune_parse_line(const char *line, qn_tune_entry *entry, const char **why)
{
  char copy[QN_TUNE_LINE + 1], *at = copy;
  qn_tune_entry e = {.registers = -1, .shared = -1, .blocks = -1};
  unsigned seen = 0;
  const size_t n = strlen(line);
  *why = "it is too long";
  if (n > QN_TUNE_LINE) return false;
  memcpy(copy, line, n + 1);
  for (char *word; (word = strsep(&at, " "));)
    if (*word && !take_field(word, &e, &seen, why)) return false;
  if (!is_whole(&e, seen, why)) return false;
  *entry = e;
  return true;
}

/* ---- a text ---- */

static bool is_text(const char *text, size_t bytes)
{
  for (size_t k = 0; k < bytes; k++)
    if (text[k] != '\n' && (text[k] < ' ' || text[k] > '~')) return false;
  return true;
}

static qn_status check_head(const char *op, const char *where, const char *text, size_t bytes)
{
  char want[sizeof head + 64];
  const int n = snprintf(want, sizeof want, "%s%s\n", head, op);
  if (bytes > QN_TUNE_BYTES)
    return qn_fail(QN_BAD_FILE, "%s: it has %zu bytes, at most %d are read", where, bytes, QN_TUNE_BYTES);
  if (n > 0 && bytes >= (size_t)n && !memcmp(text, want, (size_t)n))
    return is_text(text, bytes) ? QN_OK : qn_fail(QN_BAD_FILE, "%s: it holds bytes that are no text", where);
  return qn_fail(QN_BAD_FILE, "%s: it is no tune table of version 1 for %s: its first line must be \"%.*s\"", where, op,
                 n > 0 ? n - 1 : 0, want);
}

static qn_status append(qn_tune_table *table, const qn_tune_entry *entry)
{
  if ((table->n & (table->n - 1)) == 0) { /* full at every power of 2 */
    qn_tune_entry *more = qn_reallocate(table->entry, (table->n ? 2 * table->n : 1) * sizeof *more);
    if (!more) return qn_fail(QN_NO_MEMORY, "no memory for a tune table of %zu entries", table->n + 1);
    table->entry = more;
  }
  table->entry[table->n++] = *entry;
  return QN_OK;
}

qn_status qn_tune_parse(const char *op, const char *where, const char *text, size_t bytes, qn_tune_table *table,
                        size_t *dropped)
{
  *table = (qn_tune_table){0};
  *dropped = 0;
  qn_try(check_head(op, where, text, bytes));
  const char *at = memchr(text, '\n', bytes), *end = text + bytes;
  qn_status status = QN_OK;
  for (size_t number = 2; status == QN_OK && ++at < end; number++) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    const size_t n = (size_t)((stop ? stop : end) - at);
    char line[QN_TUNE_LINE + 2];
    const char *why = stop ? NULL : "the file ends in the middle of it";
    qn_tune_entry entry;
    const size_t taken = n < sizeof line ? n : sizeof line - 1; /* one that is too long stays too long */
    memcpy(line, at, taken);
    line[taken] = 0;
    at = stop ? stop : end;
    if (stop && (!n || *line == '#')) continue;
    if (!why && qn_tune_parse_line(line, &entry, &why)) {
      why = table->n < QN_TUNE_ENTRIES ? NULL : "there are too many entries before it";
      if (!why) status = append(table, &entry);
    }
    if (!why) continue;
    ++*dropped;
    qn_log(QN_LOG_WARNING, "%s: line %zu is ignored: %s", where, number, why);
  }
  if (status != QN_OK) qn_tune_free(table);
  return status;
}

void qn_tune_free(qn_tune_table *table)
{
  qn_release(table->entry);
  *table = (qn_tune_table){0};
}

/* ---- entries to text ---- */

void qn_tune_write_head(qn_text *text, const char *op) { qn_text_add(text, "%s%s\n", head, op); }

/* Thousandths, as digits: no locale has a say. */
static void add_real(qn_text *text, const char *key, double value)
{
  unsigned long thousandths = value < 1e6 ? (unsigned long)(value * 1000 + 0.5) : 999999999;
  if (!thousandths) thousandths = 1; /* above 0 is read as above 0 */
  qn_text_add(text, " %s=%lu.%03lu", key, thousandths / 1000, thousandths % 1000);
}

static void add_range(qn_text *text, const char *key, uint64_t least, uint64_t most)
{
  qn_text_add(text, " %s=%llu-", key, (unsigned long long)least);
  if (most != UINT64_MAX) qn_text_add(text, "%llu", (unsigned long long)most);
}

void qn_tune_write_line(qn_text *text, const qn_tune_entry *e)
{
  qn_text_add(text, "arch=%s types=%s", e->arch, e->types);
  add_range(text, "rows", e->rows_least, e->rows_most);
  add_range(text, "cols", e->cols_least, e->cols_most);
  qn_text_add(text, " layout=%s", layouts[e->layout]);
  if (*e->precision) qn_text_add(text, " precision=%s", e->precision);
  if (e->depth_least) add_range(text, "depth", e->depth_least, e->depth_most);
  if (e->width_least) add_range(text, "width", e->width_least, e->width_most);
  qn_text_add(text, " choice=%s", e->choice);
  if (*e->over) qn_text_add(text, " over=%s", e->over);
  if (e->ratio > 0 && e->low > 0 && e->high > 0) {
    add_real(text, "ratio", e->ratio);
    add_real(text, "low", e->low);
    add_real(text, "high", e->high);
  }
  if (e->registers >= 0) qn_text_add(text, " registers=%d", e->registers);
  if (e->shared >= 0) qn_text_add(text, " shared=%d", e->shared);
  if (e->blocks >= 0) qn_text_add(text, " blocks=%d", e->blocks);
  if (e->copy > 0) add_real(text, "copy", e->copy);
  qn_text_add(text, " state=%s date=%s", states[e->state], e->date);
  if (*e->commit) qn_text_add(text, " commit=%s", e->commit);
  qn_text_add(text, "\n");
}
