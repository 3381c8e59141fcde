/* SPDX-License-Identifier: Apache-2.0 */
/* jit.c - a kernel from its source: found in memory, else on disk, else compiled. Two tables. Calls: what a caller asks
 * for (device, source, defines, kernel) to the kernel found last time; read without a lock, since every step asks.
 * Modules: the full key (all text, compiler, flags) to what is loaded; under one lock, which is never held while
 * something compiles, so that different kernels compile at once and one kernel once. Nothing is ever unloaded. How to
 * compile is the backends' business, how to keep it on disk the cache's. */
#include "jit/jit.h"
#include "device/preprocess.h"
#include "jit/cache.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { N_BUCKETS = 256, ASK_BYTES = 4096, TARGET_BYTES = 8192 };

/* ---- what is asked for, as bytes ---- */
typedef struct ask {
  char bytes[ASK_BYTES];
  size_t length;
  const char *text; /* of a unit that brings its own; NULL */
  size_t text_bytes;
  uint64_t hash;
} ask;

typedef struct call {
  struct call *next;
  uint64_t hash;
  _Atomic(const qn_device_function *) function;
  atomic_uint_fast64_t stamp; /* of the time when `function` was found; 0 while it is exchanged */
  size_t length, text_bytes;
  char bytes[]; /* the ask's, then its text */
} call;

typedef struct module_entry {
  struct module_entry *next;
  qn_device device;
  qn_text key;
  qn_hash128 hash;
  qn_module *module; /* NULL until it is loaded */
  bool busy;         /* a thread builds it, or looks for a function in it */
  int users;         /* threads between enter and leave; without them an entry with no module goes */
  qn_status failed;  /* how the last build ended, for those who waited for it */
  char why[512];
} module_entry;

static struct {
  _Atomic(call *) calls[N_BUCKETS]; /* grow at the head only */
  pthread_mutex_t lock;             /* for what follows, and for adding calls */
  pthread_cond_t done;
  module_entry *modules;
  atomic_uint epoch; /* grows in a child of fork, where nothing found by the parent is taken unasked */
} jit = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

/* ---- fork: the child's tables are whole, and the threads that were building are not in it ---- */
static void before_fork(void) { pthread_mutex_lock(&jit.lock); }

static void after_fork(void) { pthread_mutex_unlock(&jit.lock); }

static void after_fork_in_child(void)
{
  pthread_cond_init(&jit.done, NULL);
  for (module_entry *m = jit.modules; m; m = m->next) {
    m->busy = false;
    m->users = 0;
  }
  atomic_fetch_add(&jit.epoch, 1);
  pthread_mutex_unlock(&jit.lock);
}

static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork_in_child); }

/* Never 0. What was found under another stamp is looked for again by its full key. */
uint64_t qn_jit_stamp(void)
{
  return ((uint64_t)atomic_load_explicit(&jit.epoch, memory_order_relaxed) << 32 | qn_option_generation()) + 1;
}

/* ---- calls ---- */
static bool add_bytes(ask *a, const void *bytes, size_t n)
{
  if (n > sizeof a->bytes - a->length) return false;
  memcpy(a->bytes + a->length, bytes, n);
  a->length += n;
  return true;
}

static qn_status make_ask(ask *a, qn_device device, const qn_unit *unit, const char *name)
{
  const int place[2] = {(int)device.kind, device.index};
  a->length = 0;
  bool fits = add_bytes(a, place, sizeof place) && add_bytes(a, unit->source, strlen(unit->source) + 1) &&
              add_bytes(a, name, strlen(name) + 1);
  for (const char *const *define = unit->defines; fits && define && *define; define++)
    fits = add_bytes(a, *define, strlen(*define) + 1);
  for (const char *const *flag = unit->flags; fits && flag && *flag; flag++)
    fits = add_bytes(a, *flag, strlen(*flag) + 1);
  qn_require(fits, "%.128s: its name, its kernel's, its defines and flags have more than %d characters in all",
             unit->source, ASK_BYTES - 64);
  a->text = unit->text;
  a->text_bytes = a->text ? strlen(a->text) + 1 : 0;
  a->hash = qn_hash(a->bytes, a->length).low;
  if (a->text) a->hash ^= qn_hash(a->text, a->text_bytes).low;
  return QN_OK;
}

static call *find_call(const ask *a)
{
  call *c = atomic_load_explicit(&jit.calls[a->hash % N_BUCKETS], memory_order_acquire);
  for (; c; c = c->next)
    if (c->hash == a->hash && c->length == a->length && c->text_bytes == a->text_bytes &&
        !memcmp(c->bytes, a->bytes, a->length) &&
        (!a->text_bytes || !memcmp(c->bytes + a->length, a->text, a->text_bytes)))
      return c;
  return NULL;
}

/* The function, if it was found under the present stamp. Stamps only grow, so the same one before and after means that
 * nobody exchanged the function in between. */
static const qn_device_function *read_call(call *c)
{
  uint64_t now = qn_jit_stamp(), before = atomic_load_explicit(&c->stamp, memory_order_acquire);
  const qn_device_function *function = atomic_load_explicit(&c->function, memory_order_acquire);
  uint64_t after = atomic_load_explicit(&c->stamp, memory_order_relaxed);
  return before == now && after == now ? function : NULL;
}

static void write_call(call *c, const qn_device_function *function, uint64_t stamp)
{
  atomic_store_explicit(&c->stamp, 0, memory_order_relaxed);
  atomic_store_explicit(&c->function, function, memory_order_release);
  atomic_store_explicit(&c->stamp, stamp, memory_order_release);
}

static qn_status keep_call(const ask *a, const qn_device_function *function, uint64_t stamp)
{
  call *made = NULL;
  qn_try(qn_try_allocate(&made, sizeof *made + a->length + a->text_bytes, "a kernel's place in memory"));
  pthread_mutex_lock(&jit.lock);
  call *c = find_call(a);
  if (c) {
    write_call(c, function, stamp);
  } else {
    _Atomic(call *) *head = &jit.calls[a->hash % N_BUCKETS];
    *made = (call){.next = atomic_load_explicit(head, memory_order_relaxed),
                   .hash = a->hash,
                   .length = a->length,
                   .text_bytes = a->text_bytes};
    memcpy(made->bytes, a->bytes, a->length);
    if (a->text) memcpy(made->bytes + a->length, a->text, a->text_bytes);
    write_call(made, function, stamp);
    atomic_store_explicit(head, made, memory_order_release);
    made = NULL;
  }
  pthread_mutex_unlock(&jit.lock);
  qn_release(made);
  return QN_OK;
}

/* ---- the full key: a line for people, the target, and all text that the compiler will see, defines and includes in
 * their places. The text itself, not a hash of it: what is compared in the end is everything. ---- */
static qn_status make_key(const qn_backend *backend, qn_device device, const qn_unit *unit, qn_text *key)
{
  char target[TARGET_BYTES];
  const char *slash = strrchr(unit->source, '/');
  qn_try(backend->target(device, target, sizeof target));
  qn_text_add(key, "%s for %.*s", slash ? slash + 1 : unit->source, (int)strcspn(target, "\n"), target);
  for (const char *const *define = unit->defines; define && *define; define++) qn_text_add(key, " %s", *define);
  for (const char *const *flag = unit->flags; flag && *flag; flag++) qn_text_add(key, " %s", *flag);
  qn_text_add(key, "%s\n%s\n", unit->straight ? " straight" : "", target);
  return qn_preprocess(unit, key);
}

/* ---- modules ---- */
static module_entry *find_module(qn_device device, const qn_text *key, qn_hash128 hash)
{
  for (module_entry *m = jit.modules; m; m = m->next)
    if (m->hash.low == hash.low && m->hash.high == hash.high && m->device.kind == device.kind &&
        m->device.index == device.index && m->key.length == key->length && !memcmp(m->key.at, key->at, key->length))
      return m;
  return NULL;
}

/* The entry for the key, ours alone until leave_module. Who had to wait for a build that failed gets its failure:
 * trying again at once would give every waiting thread a compile of its own. The key goes over to the entry. */
static qn_status enter_module(qn_device device, qn_text *key, module_entry **entered)
{
  module_entry *made = qn_allocate_zero(1, sizeof *made);
  if (!made) return qn_fail(QN_NO_MEMORY, "no memory for a module's place: %zu bytes", sizeof *made);
  qn_hash128 hash = qn_hash(key->at, key->length);
  pthread_mutex_lock(&jit.lock);
  module_entry *m = find_module(device, key, hash);
  if (!m) {
    m = made;
    *m = (module_entry){.next = jit.modules, .device = device, .key = *key, .hash = hash};
    *key = (qn_text){0};
    jit.modules = m;
    made = NULL;
  }
  m->users++;
  bool waited = m->busy;
  while (m->busy) pthread_cond_wait(&jit.done, &jit.lock);
  qn_status status = waited && !m->module ? m->failed : QN_OK;
  if (status == QN_OK)
    m->busy = true;
  else
    qn_fail(status, "%s", m->why);
  pthread_mutex_unlock(&jit.lock);
  qn_release(made);
  *entered = m;
  return status;
}

/* With the last thread that cared an entry without a module goes: nothing half-built stays. */
static void leave_module(module_entry *m, bool was_ours, qn_module *module, qn_status status)
{
  pthread_mutex_lock(&jit.lock);
  if (was_ours) {
    m->module = module;
    m->busy = false;
    m->failed = status;
    if (status != QN_OK) strncpy(m->why, qn_last_error(), sizeof m->why - 1);
    pthread_cond_broadcast(&jit.done);
  }
  bool gone = --m->users == 0 && !m->module;
  if (gone) {
    module_entry **link = &jit.modules;
    while (*link != m) link = &(*link)->next;
    *link = m->next;
  }
  pthread_mutex_unlock(&jit.lock);
  if (!gone) return;
  qn_text_free(&m->key);
  qn_release(m);
}

static qn_status build(const qn_backend *backend, qn_device device, const qn_unit *unit, const qn_text *key,
                       qn_module **module)
{
  void *kept = NULL;
  size_t bytes = 0;
  qn_image image = {0};
  qn_try(qn_cache_get(key->at, key->length, &kept, &bytes));
  qn_status status = kept ? backend->module_load(device, kept, bytes, module) : QN_COMPILE_ERROR;
  if (kept && status != QN_OK)
    qn_log(QN_LOG_WARNING, "%s: what the cache has of it cannot be loaded and is compiled again: %s", unit->source,
           qn_last_error());
  qn_release(kept);
  if (status == QN_OK) return QN_OK;
  qn_try(backend->compile(device, unit, &image));
  qn_cache_note_compile();
  if (image.log) qn_log(QN_LOG_DEBUG, "%s: the compiler says:\n%s", unit->source, image.log);
  status = backend->module_load(device, image.data, image.bytes, module);
  if (status == QN_OK) qn_cache_put(key->at, key->length, image.data, image.bytes);
  qn_image_free(&image);
  return status;
}

/* By the full key. The compile, if there is one, is made by one thread, with no lock held. */
static qn_status find_by_key(const qn_backend *backend, qn_device device, const qn_unit *unit, const char *name,
                             qn_text *key, const qn_device_function **function)
{
  module_entry *m = NULL;
  qn_module *module = NULL;
  qn_device_function *found = NULL;
  qn_try(make_key(backend, device, unit, key));
  qn_status status = enter_module(device, key, &m);
  if (!m) return status;
  const bool ours = status == QN_OK;
  if (ours) module = m->module;
  if (ours && !module) status = build(backend, device, unit, &m->key, &module);
  if (status == QN_OK) status = backend->module_function(device, module, name, &found);
  leave_module(m, ours, module, status);
  *function = found;
  return status;
}

qn_status qn_jit_function(qn_device device, const qn_unit *unit, const char *name, const qn_device_function **function)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  const qn_backend *backend;
  ask a;
  qn_try(make_ask(&a, device, unit, name));
  call *c = find_call(&a);
  if (c && (*function = read_call(c))) {
    qn_cache_note_memory_hit();
    return QN_OK;
  }
  pthread_once(&once, watch_forks);
  qn_try(qn_backend_of(device, &backend));
  if (!backend->compile)
    return qn_fail(QN_UNSUPPORTED, "%s: device \"%s\" runs no device kernels", unit->source,
                   qn_device_kind_name(device.kind));
  uint64_t stamp = qn_jit_stamp(); /* taken first: an option that changes meanwhile makes the find stale */
  qn_text key = {0};
  qn_status status = find_by_key(backend, device, unit, name, &key, function);
  qn_text_free(&key);
  return status == QN_OK ? keep_call(&a, *function, stamp) : status;
}
