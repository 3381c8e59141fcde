/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c - the tables of each op, shipped and the user's, read at the first use; which entry counts; and the user's
 * file written anew. A table that cannot be trusted is a warning in the log and is as if it were not there. */
#include "op/tune.h"
#include "core/core.h"
#include "core/file.h"
#include "core/source.h"
#include "device/arch.h"
#include "jit/directory.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_OPS = 32, OP_NAME = 48 };

/* ---- where ---- */

qn_status qn_tune_open(bool make, char path[QN_TUNE_PATH], int *directory)
{
  static const qn_directory_place place = {"tune", "XDG_DATA_HOME", "quern/tune", ".local/share/quern/tune"};
  *directory = -1;
  qn_try(qn_directory_find(&place, QN_OPTION_TUNE_DIR, path, QN_TUNE_PATH));
  return qn_directory_open_private("tune", make, path, directory);
}

/* ---- reading ---- */

/* The file's text, NULL where there is none; to be released. Unless it may be anyone's, what is not a file of ours
 * alone is refused. */
static qn_status read_file(int directory, const char *where, const char *name, bool anyones, char **text, size_t *bytes)
{
  struct stat is;
  *text = NULL;
  const int file = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0 && errno == ENOENT) return QN_OK;
  qn_status status = QN_OK;
  if (file < 0 || fstat(file, &is))
    status = qn_fail(QN_IO_ERROR, "%s: it cannot be read: %s", where, strerror(errno));
  else if (!S_ISREG(is.st_mode) || (!anyones && (is.st_uid != geteuid() || (is.st_mode & (S_IWGRP | S_IWOTH)))))
    status =
        qn_fail(QN_BAD_FILE, "%s: it is refused: it must be a plain file of yours that others cannot write to", where);
  else if (is.st_size > QN_TUNE_BYTES)
    status =
        qn_fail(QN_BAD_FILE, "%s: it has %lld bytes, at most %d are read", where, (long long)is.st_size, QN_TUNE_BYTES);
  if (status == QN_OK) status = qn_try_allocate(text, (size_t)is.st_size + 1, "a tune table");
  if (status == QN_OK && !qn_read_all(file, *text, (size_t)is.st_size))
    status = qn_fail(QN_IO_ERROR, "%s: it cannot be read: %s", where, errno ? strerror(errno) : "it became shorter");
  if (file >= 0) close(file);
  if (status != QN_OK) {
    qn_release(*text);
    *text = NULL;
    return status;
  }
  *bytes = (size_t)is.st_size;
  (*text)[*bytes] = 0;
  return QN_OK;
}

/* An empty table where there is no file; *dropped: lines of it that are none. */
static qn_status read_table(int directory, const char *path, const char *op, bool anyones, qn_tune_table *table,
                            size_t *dropped)
{
  char where[QN_TUNE_PATH + OP_NAME + 16], name[OP_NAME + 8], *text;
  size_t bytes = 0;
  *table = (qn_tune_table){0};
  *dropped = 0;
  snprintf(name, sizeof name, "%s.tune", op);
  snprintf(where, sizeof where, "%s/%s", path, name);
  qn_status status = read_file(directory, where, name, anyones, &text, &bytes);
  if (status == QN_OK && text) status = qn_tune_parse(op, where, text, bytes, table, dropped);
  qn_release(text);
  return status;
}

static qn_status read_user(const char *op, qn_tune_table *table, size_t *dropped)
{
  char path[QN_TUNE_PATH];
  int directory;
  *table = (qn_tune_table){0};
  *dropped = 0;
  qn_try(qn_tune_open(false, path, &directory));
  if (directory < 0) return QN_OK;
  const qn_status status = read_table(directory, path, op, false, table, dropped);
  close(directory);
  return status;
}

static void load_user(const char *op, qn_tune_table *table)
{
  size_t dropped;
  const qn_status status = read_user(op, table, &dropped);
  if (status != QN_OK) qn_log(QN_LOG_WARNING, "the tune table of %s is ignored: %s", op, qn_last_error());
}

static void load_shipped(const char *op, qn_tune_table *table)
{
  char name[2 * OP_NAME + 16];
  size_t dropped;
  *table = (qn_tune_table){0};
  snprintf(name, sizeof name, "op/%s/%s.tune", op, op);
  const qn_source *source = qn_source_find(name);
  if (source && qn_tune_parse(op, name, source->text, source->bytes, table, &dropped) != QN_OK)
    qn_log(QN_LOG_WARNING, "the tune table of %s is ignored: %s", op, qn_last_error());
}

/* ---- what was read ---- */

typedef struct slot {
  char op[OP_NAME];
  bool loaded;
  unsigned options, files; /* generations at the time */
  qn_tune_table user, shipped;
} slot;

static struct {
  pthread_mutex_t lock;
  slot slot[MOST_OPS];
} tables = {.lock = PTHREAD_MUTEX_INITIALIZER};
static atomic_uint generation;

unsigned qn_tune_generation(void) { return atomic_load_explicit(&generation, memory_order_acquire); }

void qn_tune_forget(void) { atomic_fetch_add_explicit(&generation, 1, memory_order_release); }

static void lock(void) { pthread_mutex_lock(&tables.lock); }

static void unlock(void) { pthread_mutex_unlock(&tables.lock); }

static void watch_forks(void) { pthread_atfork(lock, unlock, unlock); }

static void lock_tables(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  lock();
}

static bool is_fresh(const slot *s)
{
  return s->loaded && s->options == qn_option_generation() && s->files == qn_tune_generation();
}

/* Under the lock: the slot of the op, or a free one; NULL where there are too many ops. */
static slot *slot_of(const char *op)
{
  for (slot *s = tables.slot; s < tables.slot + MOST_OPS; s++)
    if (!*s->op || !strcmp(s->op, op)) return s;
  return NULL;
}

/* The op's tables, with the lock held; NULL, and no lock, where there is no place for it. Files are read without the
 * lock, as the log's callback may call anything. */
static slot *hold(const char *op)
{
  if (strlen(op) >= OP_NAME) return NULL;
  lock_tables();
  slot *s = slot_of(op);
  if (s && *s->op && is_fresh(s)) return s;
  unlock();
  if (!s) return NULL;
  slot made = {.loaded = true, .options = qn_option_generation(), .files = qn_tune_generation()};
  snprintf(made.op, sizeof made.op, "%s", op);
  load_user(op, &made.user);
  load_shipped(op, &made.shipped);
  lock_tables();
  s = slot_of(op);
  slot old = s ? *s : made;
  if (s) *s = made;
  if (!s) unlock();
  qn_tune_free(&old.user);
  qn_tune_free(&old.shipped);
  return s;
}

/* ---- which entry ---- */

void qn_tune_types(const qn_op *op, size_t row, char types[QN_TUNE_TYPES])
{
  size_t used = 0;
  for (size_t r = 0; r < op->info.n_tensors; r++) {
    const bool given = op->info.types[row].tensor[r].access != QN_ABSENT;
    const char *name = given ? qn_dtype_name(op->info.types[row].tensor[r].dtype) : "-";
    const int n = snprintf(types + used, QN_TUNE_TYPES - used, "%s%s", r ? "/" : "", name);
    used += n > 0 ? (size_t)n : 0;
    if (used >= QN_TUNE_TYPES) used = QN_TUNE_TYPES - 1;
  }
}

/* Bytes of the type that the text begins with, 0 for "-"; the text behind it. -1: no type. */
static int type_bytes(const char **at)
{
  char name[16];
  const size_t n = strcspn(*at, "/");
  if (n >= sizeof name) return -1;
  memcpy(name, *at, n);
  name[n] = 0;
  *at += n + ((*at)[n] == '/');
  if (!strcmp(name, "-")) return 0;
  const qn_dtype dtype = qn_dtype_from_name(name);
  return dtype == QN_NONE ? -1 : (int)qn_dtype_bytes(dtype);
}

/* What is fastest depends on how much is moved, not on what the bits mean. */
static bool same_types(const char *a, const char *b)
{
  if (!strcmp(a, "*") || !strcmp(a, b)) return true;
  while (*a && *b) {
    const int bytes = type_bytes(&a);
    if (bytes < 0 || bytes != type_bytes(&b)) return false;
  }
  return !*a && !*b;
}

static bool says_slower(const qn_tune_entry *e)
{
  return e->ratio > 0 && e->ratio < 1 && strcmp(e->choice, e->over) != 0;
}

/* How far an architecture that the tables know is from the one asked for: less is better, 0 is itself; -1: it has no
 * say. */
static int distance(const qn_tune_entry *e, const qn_arch *arch)
{
  enum { OTHER_FAMILY = 1 << 16 };
  qn_arch known;
  if (!strcmp(e->arch, arch->name)) return 0;
  if (!qn_arch_from_name(e->arch, &known)) return -1;
  const int here = qn_arch_order(arch), there = qn_arch_order(&known);
  if (!here || !there || there >= here || !known.capability != !arch->capability) return -1;
  if (!strcmp(known.family, arch->family)) return here - there;
  return e->state == QN_TUNE_MEASURED && known.capability ? OTHER_FAMILY + here - there : -1;
}

static int nearest(const qn_tune_table *table, const qn_arch *arch, int best)
{
  for (size_t k = 0; k < table->n; k++) {
    const int d = distance(&table->entry[k], arch);
    if (d >= 0 && d < best) best = d;
  }
  return best;
}

static bool within(uint64_t value, uint64_t least, uint64_t most) { return value >= least && value <= most; }

static bool fits(const qn_tune_entry *e, const qn_tune_key *key)
{
  if (!within(key->rows, e->rows_least, e->rows_most) || !within(key->cols, e->cols_least, e->cols_most)) return false;
  if (e->layout != QN_TUNE_ANY_LAYOUT && e->layout != key->layout) return false;
  if (*e->precision && strcmp(e->precision, key->precision ? key->precision : "") != 0) return false;
  if (e->depth_least && !within(key->depth, e->depth_least, e->depth_most)) return false;
  if (e->width_least && !within(key->width, e->width_least, e->width_most)) return false;
  return same_types(e->types, key->types) && !says_slower(e);
}

static const qn_tune_entry *search(const qn_tune_table *table, const qn_arch *arch, int from, const qn_tune_key *key)
{
  for (size_t k = 0; k < table->n; k++)
    if (distance(&table->entry[k], arch) == from && fits(&table->entry[k], key)) return &table->entry[k];
  return NULL;
}

static _Atomic bool ignores;

void qn_tune_ignore(bool all)
{
  atomic_store(&ignores, all);
  qn_tune_forget();
}

qn_tune_source qn_tune_find(const char *op, const qn_arch *arch, const qn_tune_key *key, qn_tune_entry *entry)
{
  if (atomic_load(&ignores)) return QN_TUNE_NONE;
  const slot *s = hold(op);
  if (!s) return QN_TUNE_NONE;
  const int from = nearest(&s->shipped, arch, nearest(&s->user, arch, INT32_MAX));
  const qn_tune_entry *e = search(&s->user, arch, from, key);
  const qn_tune_source source = e ? QN_TUNE_USER : QN_TUNE_SHIPPED;
  if (!e) e = search(&s->shipped, arch, from, key);
  if (e) *entry = *e;
  unlock();
  return e ? source : QN_TUNE_NONE;
}

const char *qn_tune_reason(qn_tune_source source, const qn_tune_entry *e, const qn_arch *arch)
{
  const bool own = !strcmp(e->arch, arch->name), published = e->state == QN_TUNE_PUBLISHED;
  if (source == QN_TUNE_USER) return own ? "your tune table" : "your tune table, of an older architecture";
  if (published) return own ? "the shipped table, published" : "the shipped table, published of an older architecture";
  return own ? "the shipped table, measured" : "the shipped table, measured on an older architecture";
}

qn_tune_source qn_tune_at(const char *op, size_t k, qn_tune_entry *entry)
{
  const slot *s = hold(op);
  if (!s) return QN_TUNE_NONE;
  qn_tune_source source = k < s->user.n ? QN_TUNE_USER : QN_TUNE_SHIPPED;
  if (source == QN_TUNE_USER)
    *entry = s->user.entry[k];
  else if (k - s->user.n < s->shipped.n)
    *entry = s->shipped.entry[k - s->user.n];
  else
    source = QN_TUNE_NONE;
  unlock();
  return source;
}

/* ---- writing ---- */

static bool same_key(const qn_tune_entry *a, const qn_tune_entry *b)
{
  return !strcmp(a->arch, b->arch) && !strcmp(a->types, b->types) && a->layout == b->layout &&
         a->rows_least == b->rows_least && a->rows_most == b->rows_most && a->cols_least == b->cols_least &&
         a->cols_most == b->cols_most && !strcmp(a->precision, b->precision) && a->depth_least == b->depth_least &&
         a->depth_most == b->depth_most && a->width_least == b->width_least && a->width_most == b->width_most;
}

static void write_text(qn_text *text, const char *op, const qn_tune_table *old, const qn_tune_entry *entries, size_t n)
{
  qn_tune_write_head(text, op);
  for (size_t k = 0; k < old->n; k++) {
    bool stays = true;
    for (size_t i = 0; i < n; i++) stays = stays && !same_key(&old->entry[k], &entries[i]);
    if (stays) qn_tune_write_line(text, &old->entry[k]);
  }
  for (size_t i = 0; i < n; i++) qn_tune_write_line(text, &entries[i]);
}

/* Beside it and renamed, so that a reader finds the old table or the new one. */
static qn_status replace(int directory, const char *path, const char *name, const qn_text *text)
{
  char beside[OP_NAME + 24];
  snprintf(beside, sizeof beside, ".%s.%ld", name, (long)getpid());
  const int file = openat(directory, beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  bool good = file >= 0 && qn_write_all(file, text->at, text->length) && !fsync(file);
  int why = errno;
  if (file >= 0 && close(file) && good) good = false, why = errno;
  if (good && renameat(directory, beside, directory, name)) good = false, why = errno;
  if (good) return QN_OK;
  if (file >= 0) unlinkat(directory, beside, 0);
  return qn_fail(QN_IO_ERROR, "%s/%s could not be written: %s", path, name, strerror(why));
}

/* Puts entries into the table in that directory. What is there and not understood is put aside, not lost. */
static qn_status keep(int directory, const char *path, const char *op, bool anyones, const qn_tune_entry *entries,
                      size_t n)
{
  qn_tune_table old;
  qn_text text = {0};
  char name[OP_NAME + 8], aside[OP_NAME + 16];
  size_t dropped;
  snprintf(name, sizeof name, "%s.tune", op);
  snprintf(aside, sizeof aside, "%s.tune.old", op);
  qn_status status = read_table(directory, path, op, anyones, &old, &dropped);
  if (status == QN_OK ? dropped > 0 : status == QN_BAD_FILE) {
    status = QN_OK;
    (void)renameat(directory, name, directory, aside);
  }
  write_text(&text, op, &old, entries, n);
  if (status == QN_OK && text.failed) status = qn_fail(QN_NO_MEMORY, "tune: no memory for the text of a table");
  if (status == QN_OK) status = replace(directory, path, name, &text);
  qn_text_free(&text);
  qn_tune_free(&old);
  return status;
}

qn_status qn_tune_keep(const char *op, const qn_tune_entry *entries, size_t n, char path[QN_TUNE_PATH])
{
  int directory;
  qn_require(strlen(op) < OP_NAME, "tune: \"%.60s\" is no op", op);
  qn_try(qn_tune_open(true, path, &directory));
  const qn_status status = keep(directory, path, op, false, entries, n);
  close(directory);
  qn_tune_forget();
  return status;
}

/* ---- beside a kernel ---- */

static qn_status open_folder(const char *folder, const char *name, int *directory)
{
  qn_require(strlen(name) < OP_NAME && strlen(folder) < QN_TUNE_PATH, "%s: its name is too long for a tune table",
             name);
  *directory = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return *directory >= 0 ? QN_OK : qn_fail(QN_IO_ERROR, "%s: it cannot be opened: %s", folder, strerror(errno));
}

qn_status qn_tune_find_beside(const char *folder, const char *name, const qn_arch *arch, const qn_tune_key *key,
                              qn_tune_entry *entry, bool *found)
{
  qn_tune_table table;
  size_t dropped;
  int directory;
  *found = false;
  qn_try(open_folder(folder, name, &directory));
  qn_status status = read_table(directory, folder, name, true, &table, &dropped);
  close(directory);
  const qn_tune_entry *e = search(&table, arch, nearest(&table, arch, INT32_MAX), key);
  *found = status == QN_OK && e;
  if (*found) *entry = *e;
  qn_tune_free(&table);
  return status;
}

qn_status qn_tune_keep_beside(const char *folder, const char *name, const qn_tune_entry *entry)
{
  int directory;
  qn_try(open_folder(folder, name, &directory));
  const qn_status status = keep(directory, folder, name, true, entry, 1);
  close(directory);
  return status;
}
