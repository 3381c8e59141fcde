/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - the settings of the library: one table (core/core.h), a value for each from qn_option_set, else from its
 * environment variable, else the default. Every value is held against the table before anybody sees it. Values stand in
 * fixed storage, so that reading an option allocates nothing. */
#include "core/core.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_BYTES = 4096, MAX_CHOICES = 16 };

static const qn_option_info table[] = {
#define X(id, name, variable, value, values, doc) {name, variable, value, values, doc},
    QN_OPTION_MAP(X)
#undef X
};

static struct {
  bool known; /* false: the variable is still to be read */
  char text[VALUE_BYTES];
} settings[QN_OPTION_COUNT];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint generation = 1;

/* A fork waits for whoever reads an option just then, or the child would wait for a thread that it has not got. */
static void lock(void) { pthread_mutex_lock(&mutex); }

static void unlock(void) { pthread_mutex_unlock(&mutex); }

static void watch_forks(void) { pthread_atfork(lock, unlock, unlock); }

static void lock_options(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  lock();
}

size_t qn_option_count(void) { return QN_OPTION_COUNT; }

const qn_option_info *qn_option_at(size_t k) { return k < QN_OPTION_COUNT ? &table[k] : NULL; }

unsigned qn_option_generation(void) { return atomic_load_explicit(&generation, memory_order_acquire); }

/* Former names, which one more release accepts. */
static const struct {
  qn_option option;
  const char *name, *variable;
} former = {QN_OPTION_LAUNCH_SHAPE, "geometry", "QUERN_GEOMETRY"};

static qn_status find(const char *name, qn_option *option)
{
  const char *names[QN_OPTION_COUNT + 1] = {NULL};
  qn_require(name, "option: the name is NULL");
  if (!strcmp(name, former.name)) return *option = former.option, QN_OK;
  for (int k = 0; k < QN_OPTION_COUNT; k++) {
    if (!strcmp(name, table[k].name)) {
      *option = (qn_option)k;
      return QN_OK;
    }
    names[k] = table[k].name;
  }
  const char *nearest = qn_nearest(name, names);
  return qn_fail(QN_BAD_ARGUMENT, "option \"%.64s\": there is none of that name%s%s%s", name,
                 nearest ? "; the nearest is \"" : "", nearest ? nearest : "", nearest ? "\"" : "");
}

/* Digits with K, M or G behind them, powers of 1024. */
static bool parse_bytes(const char *text, int64_t *bytes)
{
  static const char units[] = "KMG";
  int64_t value = 0;
  const char *at = text;
  for (; *at >= '0' && *at <= '9'; at++)
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *at - '0', &value)) return false;
  if (at == text) return false;
  const char *unit = *at ? strchr(units, *at) : NULL;
  if (unit) {
    if (__builtin_mul_overflow(value, INT64_C(1) << (10 * (unit - units + 1)), &value)) return false;
    at++;
  }
  if (*at) return false;
  *bytes = value;
  return true;
}

/* Takes "cuda[:N]" as "cuda" or "cuda:" and digits, and any other choice as itself. */
static bool is_choice(const char *text, const char *choice)
{
  size_t stem = strcspn(choice, "[");
  if (!choice[stem]) return !strcmp(text, choice);
  if (strncmp(text, choice, stem)) return false;
  text += stem;
  if (!*text) return true;
  return *text == ':' && text[1] && strspn(text + 1, "0123456789") == strlen(text + 1) && strlen(text + 1) <= 9;
}

/* Whether the text is one of "a|b|c"; if not, the nearest of them or NULL, as a copy in `nearest`. */
static bool among(const char *text, const char *values, char *nearest, size_t bytes)
{
  char copy[128], *at = copy;
  const char *choices[MAX_CHOICES + 1] = {NULL};
  size_t n = 0;
  strncpy(copy, values, sizeof copy - 1);
  copy[sizeof copy - 1] = 0;
  for (char *word; n < MAX_CHOICES && (word = strsep(&at, "|"));) {
    if (is_choice(text, word)) return true;
    choices[n++] = word;
  }
  const char *near = qn_nearest(text, choices);
  nearest[0] = 0;
  if (near) strncpy(nearest, near, bytes - 1)[bytes - 1] = 0;
  return false;
}

/* Holds a value against its row. `by` says who gave it: the variable, or "option cpu". */
static qn_status validate(qn_option option, const char *text, const char *by)
{
  const qn_option_info *row = &table[option];
  int64_t bytes;
  char nearest[64];
  qn_require(strlen(text) < VALUE_BYTES, "%s: the value has %zu characters, at most %d are taken", by, strlen(text),
             VALUE_BYTES - 1);
  const bool free_text = !strcmp(row->values, "path") || !strcmp(row->values, "name"); /* a name: its user judges it */
  if (free_text || !strcmp(text, row->default_value)) return QN_OK;
  if (option == QN_OPTION_DEVICE && (!strcmp(text, "emu") || !strcmp(text, "host")))
    return QN_OK; /* other names of it */
  if (!strcmp(row->values, "bytes")) {
    qn_require(parse_bytes(text, &bytes),
               "%s: \"%.64s\" is no number of bytes; digits are taken, with K, M or G behind them, below 2^63 in all",
               by, text);
    return QN_OK;
  }
  if (among(text, row->values, nearest, sizeof nearest)) return QN_OK;
  return qn_fail(QN_BAD_ARGUMENT, "%s: \"%.64s\" is not one of %s%s%s%s", by, text, row->values,
                 nearest[0] ? "; the nearest is \"" : "", nearest, nearest[0] ? "\"" : "");
}

/* Under the lock: reads the variable at the first use (an empty one counts as not set; a program that runs with another
 * user's rights does not read it at all). A wrong value is never kept: every use fails until it is mended. */
static qn_status current(qn_option option, const char **text)
{
  const qn_option_info *row = &table[option];
  if (!settings[option].known) {
    const char *value = secure_getenv(row->variable);
    if ((!value || !*value) && option == former.option) value = secure_getenv(former.variable);
    if (!value || !*value) value = row->default_value;
    qn_try(validate(option, value, row->variable));
    strcpy(settings[option].text, value);
    settings[option].known = true;
  }
  *text = settings[option].text;
  return QN_OK;
}

qn_status qn_option_get(const char *name, const char **value)
{
  qn_option option;
  qn_require(value, "option: the place for the value is NULL");
  qn_try(find(name, &option));
  lock_options();
  qn_status status = current(option, value);
  unlock();
  return status;
}

qn_status qn_option_set(const char *name, const char *value)
{
  qn_option option;
  char by[96] = "option ";
  qn_try(find(name, &option));
  if (value) qn_try(validate(option, value, strcat(by, table[option].name)));
  lock_options();
  if (value) memmove(settings[option].text, value, strlen(value) + 1); /* it may be the text that get gave */
  settings[option].known = value != NULL;
  atomic_fetch_add_explicit(&generation, 1, memory_order_release);
  unlock();
  return QN_OK;
}

qn_status qn_option_text(qn_option option, char *text, size_t bytes)
{
  const char *value = NULL;
  lock_options();
  qn_status status = current(option, &value);
  size_t length = value ? strlen(value) : 0;
  if (status == QN_OK && length < bytes)
    memcpy(text, value, length + 1);
  else if (status == QN_OK)
    status = qn_fail(QN_BAD_ARGUMENT, "%s: the value has %zu characters, %zu fit", table[option].variable, length,
                     bytes ? bytes - 1 : 0);
  unlock();
  return status;
}

qn_status qn_option_bytes(qn_option option, int64_t *bytes)
{
  char text[VALUE_BYTES];
  qn_try(qn_option_text(option, text, sizeof text));
  qn_require(parse_bytes(text, bytes), "%s: \"%.64s\" is no number of bytes", table[option].variable, text);
  return QN_OK;
}
