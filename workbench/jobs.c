/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.c - see jobs.h. Children are forked once the list stands. They take items that run on the processor from a
 * common counter and send records through one pipe each; a device's driver does not survive a fork, so what runs on a
 * GPU runs in the parent meanwhile. With one job everything runs in the parent, as debuggers and leak checkers like it.
 */
#include "workbench/jobs.h"
#include "core/core.h"
#include "core/file.h"
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JOBS_MOST = 64 };

/* What a child sends: this, then the two texts. BEGIN says which item it is about to run. */
typedef struct record {
  uint32_t item, begin;
  uint32_t failure_bytes, skipped_bytes; /* with their NUL; 0: none */
  char note[256];
} record;

typedef struct child {
  pid_t pid;
  int pipe;
  long running; /* item; -1: none */
} child;

typedef struct board {
  const qn_check_options *options;
  const qn_item *items;
  qn_outcome *outcome;
  size_t n, done, told;
  child children[JOBS_MOST];
  int n_children;
  void (*tell)(void *, size_t, const qn_outcome *);
  void (*progress)(void *, size_t, size_t);
  void *user;
} board;

void qn_jobs_run_one(const qn_check_options *options, const qn_item *item, qn_outcome *outcome)
{
  const char *number = options->only ? strstr(options->only, "/case") : NULL;
  qn_trial trial = {.options = options, .item = item, .only = number ? strtol(number + 5, NULL, 10) : -1};
  qn_trial_run(&trial);
  *outcome = (qn_outcome){.done = true, .failure = trial.failure, .skipped = trial.skipped};
  memcpy(outcome->note, trial.note, sizeof outcome->note);
}

static void free_outcome(qn_outcome *outcome)
{
  free(outcome->failure);
  free(outcome->skipped);
  outcome->failure = outcome->skipped = NULL;
}

static void settle(board *b)
{
  while (b->told < b->n && b->outcome[b->told].done) {
    b->tell(b->user, b->told, &b->outcome[b->told]);
    free_outcome(&b->outcome[b->told++]);
  }
}

/* ---- a child ---- */

static bool send_outcome(int to, size_t item, const qn_outcome *o)
{
  record r = {.item = (uint32_t)item};
  if (o->failure) r.failure_bytes = (uint32_t)strlen(o->failure) + 1;
  if (o->skipped) r.skipped_bytes = (uint32_t)strlen(o->skipped) + 1;
  memcpy(r.note, o->note, sizeof r.note);
  return qn_write_all(to, &r, sizeof r) && qn_write_all(to, o->failure, r.failure_bytes) &&
         qn_write_all(to, o->skipped, r.skipped_bytes);
}

static bool is_for_children(const qn_item *item) { return item->target.device.kind != QN_CUDA; }

static _Noreturn void be_child(const board *b, int to, atomic_size_t *next)
{
  for (size_t k; (k = atomic_fetch_add(next, 1)) < b->n;) {
    if (!is_for_children(&b->items[k])) continue;
    qn_outcome outcome;
    record begin = {.item = (uint32_t)k, .begin = 1};
    if (!qn_write_all(to, &begin, sizeof begin)) _exit(1);
    qn_jobs_run_one(b->options, &b->items[k], &outcome);
    if (!send_outcome(to, k, &outcome)) _exit(1);
    free_outcome(&outcome);
  }
  _exit(0); /* not exit: what the parent registered is the parent's */
}

/* ---- the parent ---- */

static bool receive_text(int from, uint32_t bytes, char **text)
{
  *text = bytes ? malloc(bytes) : NULL;
  return !bytes || (*text && qn_read_next(from, *text, bytes));
}

/* False: the child has ended. */
static bool receive(board *b, child *c)
{
  record r;
  if (!qn_read_next(c->pipe, &r, sizeof r) || r.item >= b->n) return false;
  if (r.begin) {
    c->running = (long)r.item;
    b->progress(b->user, b->done, r.item);
    return true;
  }
  qn_outcome *o = &b->outcome[r.item];
  memcpy(o->note, r.note, sizeof o->note);
  if (!receive_text(c->pipe, r.failure_bytes, &o->failure) || !receive_text(c->pipe, r.skipped_bytes, &o->skipped))
    return false;
  o->done = true;
  c->running = -1;
  b->done++;
  settle(b);
  return true;
}

/* A child that is gone with an item unfinished was ended by it. */
static void bury(board *b, child *c)
{
  int status = 0;
  close(c->pipe);
  c->pipe = -1;
  waitpid(c->pid, &status, 0);
  if (c->running < 0) return;
  qn_outcome *o = &b->outcome[c->running];
  free_outcome(o);
  if (asprintf(&o->failure,
               WIFSIGNALED(status) ? "the process died by signal %d (%s)\nrerun: quern check --only '%s' -j1"
                                   : "the process ended with status %d%s\nrerun: quern check --only '%s' -j1",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
               WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "", b->items[c->running].name) < 0)
    o->failure = strdup("the process died");
  o->done = true;
  b->done++;
  settle(b);
}

/* Waits until some child has something to say; returns how many children there still are. */
static int listen(board *b, int wait_ms)
{
  struct pollfd fds[JOBS_MOST];
  child *whose[JOBS_MOST];
  nfds_t n = 0;
  for (int k = 0; k < b->n_children; k++) {
    if (b->children[k].pipe < 0) continue;
    whose[n] = &b->children[k];
    fds[n++] = (struct pollfd){.fd = b->children[k].pipe, .events = POLLIN};
  }
  if (n && poll(fds, n, wait_ms) > 0)
    for (nfds_t k = 0; k < n; k++)
      if (fds[k].revents && !receive(b, whose[k])) bury(b, whose[k]);
  return (int)n;
}

static void start_children(board *b, int jobs, atomic_size_t *next)
{
  for (int k = 0; k < jobs && k < JOBS_MOST; k++) {
    int ends[2];
    if (pipe(ends)) return;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      be_child(b, ends[1], next);
    }
    close(ends[1]);
    if (pid < 0) {
      close(ends[0]);
      return;
    }
    b->children[b->n_children++] = (child){pid, ends[0], -1};
  }
}

static int jobs_of(const qn_check_options *options)
{
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  if (options->jobs > 0) return options->jobs;
  return processors > 4 ? 4 : processors < 1 ? 1 : (int)processors;
}

static void run_here(board *b, bool all)
{
  for (size_t k = 0; k < b->n; k++) {
    if (b->outcome[k].done || (!all && is_for_children(&b->items[k]))) continue;
    b->progress(b->user, b->done, k);
    qn_jobs_run_one(b->options, &b->items[k], &b->outcome[k]);
    b->done++;
    settle(b);
    listen(b, 0);
  }
}

qn_status qn_jobs_run(const qn_check_options *options, const qn_item *items, size_t n,
                      void (*tell)(void *, size_t, const qn_outcome *), void (*progress)(void *, size_t, size_t),
                      void *user)
{
  board b = {.options = options, .items = items, .n = n, .tell = tell, .progress = progress, .user = user};
  atomic_size_t *next = mmap(NULL, sizeof *next, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int jobs = next == MAP_FAILED ? 1 : jobs_of(options);
  b.outcome = calloc(n, sizeof *b.outcome);
  if (b.outcome) {
    if (jobs > 1 && n > 1) start_children(&b, jobs, next);
    run_here(&b, b.n_children == 0);
    while (listen(&b, 200)) {}
    run_here(&b, true); /* what dead children left */
  }
  if (next != MAP_FAILED) munmap(next, sizeof *next);
  qn_status status = b.outcome ? QN_OK : qn_fail(QN_NO_MEMORY, "the outcomes of %zu checks", n);
  free(b.outcome);
  return status;
}
