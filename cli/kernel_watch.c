/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_watch.c - `quern kernel watch`: a pass at every save, each in a process of its own, so that no body can end
 * the watching. A pass reads the folder anew and runs the quick check. */
#include "cli/kernel.h"
#include "core/core.h"
#include "workbench/kernel_check.h"
#include "workbench/kernel_say.h"
#include "workbench/sampler.h"
#include "workbench/term.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

enum { SETTLE_MS = 60, LIMIT_S = 20, GONE_MS = 1000 };

static volatile sig_atomic_t ended;
static void end(int signal_number)
{
  (void)signal_number;
  ended = 1;
}

/* ---- a pass ---- */
static void print_result(const qn_kernel_trial_request *r, int64_t from_ns)
{
  const double seconds = (double)(qn_now_ns() - from_ns) * 1e-9;
  if (r->failures)
    printf("%swrong%s  %s\n       (%.2f s)\n", qn_term_colour(stdout, QN_RED), qn_term_colour(stdout, QN_PLAIN),
           r->first, seconds);
  else
    printf("%sok%s     %zu checks, %.2f s\n", qn_term_colour(stdout, QN_GREEN), qn_term_colour(stdout, QN_PLAIN),
           r->run, seconds);
}

static int pass(void *user)
{
  qn_kernel_session s;
  qn_kernel_trial_request r = {.run = 0};
  int64_t from = qn_now_ns();
  signal(SIGINT, SIG_DFL);
  alarm(2 * LIMIT_S); /* a native loop without end */
  qn_status status = qn_kernel_open(&s, user);
  if (status == QN_OK) status = qn_kernel_trial_of(&s, LIMIT_S, &r);
  if (status == QN_OK) {
    r.quick = r.first_only = true;
    status = qn_kernel_trial(&r);
  }
  if (status == QN_OK)
    print_result(&r, from);
  else
    qn_say_failure(stdout, s.folder, "wrong  ");
  fflush(stdout);
  qn_kernel_close(&s);
  return status == QN_OK && !r.failures ? QN_EXIT_OK : QN_EXIT_FAILED;
}

static int run_pass(const qn_kernel_order *order)
{
  char said[128], clock[16];
  time_t now = time(NULL);
  struct tm local;
  qn_kernel_order copy = *order;
  strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now, &local));
  printf("%s ", clock);
  int status = qn_isolated(pass, &copy, said, sizeof said);
  if (status < 0 && !ended) printf("wrong  %s\n", said);
  fflush(stdout);
  return status;
}

/* ---- the folder ---- */
/* Editors leave files of their own behind, and a tuned kernel is the same kernel. */
static bool matters(const struct inotify_event *event)
{
  if (!event->len) return event->mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF);
  const size_t length = strlen(event->name);
  return length && event->name[0] != '.' && event->name[length - 1] != '~' && !strstr(event->name, ".tune");
}

/* Reads what has happened; *changed and *gone say what of it matters. */
static void read_events(int file, bool *changed, bool *gone)
{
  _Alignas(struct inotify_event) char buffer[4096];
  ssize_t n = read(file, buffer, sizeof buffer);
  for (char *at = buffer; n > 0 && at < buffer + n;) {
    const struct inotify_event *event = (const struct inotify_event *)(const void *)at;
    *gone = *gone || event->mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF);
    *changed = *changed || matters(event);
    at += sizeof *event + event->len;
  }
}

static bool wait_for_change(int file, bool *gone)
{
  bool changed = false;
  struct pollfd ready = {.fd = file, .events = POLLIN};
  while (!ended) {
    int n = poll(&ready, 1, changed ? SETTLE_MS : -1);
    if (n == 0) return true; /* quiet since the last change: a save is several events */
    if (n > 0) read_events(file, &changed, gone);
  }
  return false;
}

/* The folder may be taken away and come back: a checkout, an editor that writes a new one. */
static int watch_folder(int file, const char *path)
{
  static const uint32_t what = IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF;
  for (;;) {
    int id = inotify_add_watch(file, path, what);
    if (id >= 0 || ended || errno != ENOENT) return id;
    poll(NULL, 0, GONE_MS);
  }
}

static void listen_for_end(void)
{
  struct sigaction action = {.sa_handler = end};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL); /* without SA_RESTART: poll comes back */
  sigaction(SIGTERM, &action, NULL);
}

int qn_action_watch(const qn_kernel_order *order)
{
  qn_folder *folder = NULL;
  bool gone = false;
  int last = QN_EXIT_OK;
  char path[4096];
  if (access(order->folder, F_OK))
    return qn_complain(order->verb, QN_EXIT_USAGE, "%s: %s; `quern kernel new` makes a kernel's folder", order->folder,
                       strerror(errno));
  snprintf(path, sizeof path, "%s", order->folder);
  if (qn_folder_read(order->folder, &folder) == QN_OK) snprintf(path, sizeof path, "%s", folder->path);
  qn_folder_free(&folder);
  int file = inotify_init1(IN_CLOEXEC);
  if (file < 0 || watch_folder(file, path) < 0)
    return qn_complain(order->verb, QN_EXIT_FAILED, "%s cannot be watched: %s", path, strerror(errno));
  listen_for_end();
  printf("watching %s; Ctrl-C ends\n", path);
  for (int passes = 1; !ended; passes++) {
    last = run_pass(order);
    if (order->passes == passes || ended || !wait_for_change(file, &gone)) break;
    if (gone && watch_folder(file, path) < 0) break;
    gone = false;
  }
  close(file);
  return order->passes && last ? QN_EXIT_FAILED : QN_EXIT_OK;
}
