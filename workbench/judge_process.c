/* SPDX-License-Identifier: Apache-2.0 */
/* judge_process.c - see judge_process.h. */
#include "workbench/judge_process.h"
#include "core/core.h"
#include "core/file.h"
#include "quern/cache.h"
#include "workbench/judge_images.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int qn_memory_file_make(const char *name) { return memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING); }

/* ---- its surroundings ---- */
enum { MOST_VARIABLES = 48 };

typedef struct surroundings {
  char *variable[MOST_VARIABLES + 1];
  size_t n;
  char text[QN_TALK_PATH * 4];
  size_t used;
} surroundings;

static void set(surroundings *s, const char *name, const char *value)
{
  const size_t left = sizeof s->text - s->used;
  const int length = snprintf(s->text + s->used, left, "%s=%s", name, value);
  if (length < 0 || (size_t)length >= left || s->n == MOST_VARIABLES) return;
  s->variable[s->n++] = s->text + s->used;
  s->used += (size_t)length + 1;
}

/* Where programs and libraries are, and the settings of this library; nothing else of the user's. The problem's own
 * body, which is trusted as its reference is, is looked for in the user's cache. */
static void make_surroundings(surroundings *s, const char *folder, bool own)
{
  const char *cache;
  static const char *const kept[] = {"PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME",    "CUDA_PATH",
                                     "CXX",  "ASAN_OPTIONS",    "UBSAN_OPTIONS",        "LSAN_OPTIONS", "TSAN_OPTIONS"};
  *s = (surroundings){.n = 0};
  for (size_t k = 0; k < sizeof kept / sizeof *kept; k++)
    if (getenv(kept[k])) set(s, kept[k], getenv(kept[k]));
  for (size_t k = 0; k < qn_option_count(); k++) {
    const char *name = qn_option_at(k)->variable;
    if (strcmp(name, "QUERN_CACHE") && strcmp(name, "QUERN_CACHE_DIR") && getenv(name)) set(s, name, getenv(name));
  }
  if (own && qn_cache_directory(&cache) == QN_OK)
    set(s, "QUERN_CACHE_DIR", cache);
  else
    set(s, "QUERN_CACHE", "off");
  set(s, "HOME", folder);
  set(s, "TMPDIR", folder);
  set(s, "LC_ALL", "C");
}

static qn_status make_folder(char *path, size_t bytes)
{
  const char *parent = getenv("TMPDIR");
  if (!parent || *parent != '/' || strlen(parent) + 24 > bytes) parent = "/tmp";
  snprintf(path, bytes, "%s/quern-judge-XXXXXX", parent);
  if (mkdtemp(path)) return QN_OK;
  const int error = errno;
  *path = 0;
  return qn_fail(QN_IO_ERROR, "no temporary folder could be made in %s: %s", parent, strerror(error));
}

/* A process that sleeps until this one ends, however it does, or wakes it; then it removes the folder. */
static void start_sweeper(qn_judge_process *p)
{
  static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE}; /* a terminal sends them to both */
  int ends[2];
  char byte;
  if (pipe2(ends, O_CLOEXEC)) return;
  p->sweeper = fork();
  if (p->sweeper == 0) {
    for (size_t k = 0; k < sizeof ignored / sizeof *ignored; k++) signal(ignored[k], SIG_IGN);
    close(ends[1]);
    while (read(ends[0], &byte, 1) < 0 && errno == EINTR) continue;
    qn_tree_remove(p->folder);
    _exit(0);
  }
  close(ends[0]);
  p->wake = ends[1];
}

static void remove_folder(qn_judge_process *p)
{
  const bool swept = p->sweeper > 0 && write(p->wake, "", 1) == 1;
  if (p->wake >= 0) close(p->wake);
  while (p->sweeper > 0 && waitpid(p->sweeper, NULL, 0) < 0 && errno == EINTR) continue;
  if (!swept && *p->folder) qn_tree_remove(p->folder);
  *p->folder = 0;
  p->wake = -1;
  p->sweeper = 0;
}

/* ---- starting ---- */
static qn_status make_arena(qn_judge_process *p, uint64_t bytes)
{
  p->arena_bytes = bytes;
  p->arena_file = qn_memory_file_make("quern-tensors");
  if (p->arena_file < 0 || ftruncate(p->arena_file, (off_t)(bytes ? bytes : 4096)) ||
      fcntl(p->arena_file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
    return qn_fail(QN_IO_ERROR, "no file in memory for tensors: %s", strerror(errno));
  if (!bytes) return QN_OK;
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->arena_file, 0);
  if (at == MAP_FAILED)
    return qn_fail(QN_NO_MEMORY, "%llu bytes for tensors: %s", (unsigned long long)bytes, strerror(errno));
  p->arena = at;
  return QN_OK;
}

static qn_status start(qn_judge_process *p, const qn_talk_job *job, qn_talk_phase phase, int images, int other_end)
{
  static char name[] = "quern", verb[] = "judge";
  static char phases[][20] = {"--inside=both", "--inside=compile", "--inside=run"};
  char *argv[] = {name, verb, phases[phase], NULL};
  surroundings around;
  make_surroundings(&around, p->folder, !*job->candidate);
  qn_sandbox_order order = {.argv = argv,
                            .environment = around.variable,
                            .folder = p->folder,
                            .files = {other_end, other_end, p->arena_file, images},
                            .n_files = images >= 0 ? 4 : 3,
                            .file_bytes = INT64_C(1) << 28,
                            .processes = 512};
  if ((uint64_t)order.file_bytes < p->arena_bytes) order.file_bytes = (int64_t)p->arena_bytes;
  if (job->device.kind != QN_CUDA) order.memory_bytes = p->limits.memory_bytes + (int64_t)p->arena_bytes;
  return qn_sandbox_start(&order, &p->box);
}

static bool read_answer(qn_judge_process *p, qn_talk_answer *answer)
{
  const int64_t until = qn_now_ns() + (int64_t)(p->limits.seconds * 1e9);
  for (size_t done = 0; done < sizeof *answer;) {
    const int64_t left = until - qn_now_ns();
    struct pollfd one = {.fd = p->talk, .events = POLLIN};
    const int ready = poll(&one, 1, left > 0 ? (int)(left / 1000000) + 1 : 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) snprintf(p->broken, sizeof p->broken, "it took more than %g s", p->limits.seconds);
    if (ready <= 0) return false;
    const ssize_t n = recv(p->talk, (char *)answer + done, sizeof *answer - done, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += (size_t)n;
  }
  answer->text[sizeof answer->text - 1] = 0;
  return true;
}

/* How it ended that no longer answers. */
static void find_end(qn_judge_process *p)
{
  enum { LAST_MS = 10000 };
  const bool known = *p->broken;
  const bool ended = qn_sandbox_end(&p->box, known ? 0 : LAST_MS);
  if (known) return;
  if (ended && p->box.signal)
    snprintf(p->broken, sizeof p->broken, "it crashed: signal %d, %s", p->box.signal, strsignal(p->box.signal));
  else if (ended)
    snprintf(p->broken, sizeof p->broken, "its process ended early with exit status %d", p->box.code);
  else
    snprintf(p->broken, sizeof p->broken, "its process answers no more");
}

static bool send_all(int socket, const void *data, size_t bytes)
{
  for (const char *at = data; bytes;) {
    const ssize_t n = send(socket, at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= (size_t)n;
  }
  return true;
}

qn_status qn_judge_process_start(qn_judge_process *p, const qn_talk_job *job, qn_talk_phase phase, int images,
                                 const qn_judge_limits *limits, qn_talk_answer *opened)
{
  int ends[2] = {-1, -1};
  *p = (qn_judge_process){.limits = *limits, .talk = -1, .arena_file = -1, .wake = -1, .box.report = -1};
  qn_status status = make_folder(p->folder, sizeof p->folder);
  if (status == QN_OK) start_sweeper(p);
  if (status == QN_OK) status = make_arena(p, job->arena_bytes);
  if (status == QN_OK && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
    status = qn_fail(QN_IO_ERROR, "no socket for a process in isolation: %s", strerror(errno));
  p->talk = ends[0];
  if (status == QN_OK) status = start(p, job, phase, images, ends[1]);
  if (ends[1] >= 0) close(ends[1]);
  if (status == QN_OK && (!send_all(p->talk, job, sizeof *job) || !read_answer(p, opened))) find_end(p);
  if (status != QN_OK) qn_judge_process_end(p);
  return status;
}

bool qn_judge_ask(qn_judge_process *p, qn_talk_ask *ask, qn_talk_answer *answer)
{
  if (*p->broken) return false;
  if (getrandom(&ask->nonce, sizeof ask->nonce, 0) != sizeof ask->nonce) ask->nonce = ++p->nonce;
  const int64_t waited = qn_sandbox_waited_ns(&p->box), from = qn_now_ns();
  const bool answered = send_all(p->talk, ask, sizeof *ask) && read_answer(p, answer);
  p->wall_ns = (double)(qn_now_ns() - from);
  p->waited_ns = (double)(qn_sandbox_waited_ns(&p->box) - waited);
  p->forbidden = answered && answer->status == QN_TALK_FORBIDDEN;
  if (p->forbidden)
    snprintf(p->broken, sizeof p->broken, "it made system call %.0f, which is no part of a kernel", answer->ns);
  else if (answered && answer->nonce == ask->nonce)
    return true;
  else if (answered)
    snprintf(p->broken, sizeof p->broken, "its process answers what nobody asked");
  find_end(p);
  return false;
}

void qn_judge_process_end(qn_judge_process *p)
{
  if (p->talk >= 0) close(p->talk);
  (void)qn_sandbox_end(&p->box, 0);
  if (p->arena) munmap(p->arena, p->arena_bytes);
  if (p->arena_file >= 0) close(p->arena_file);
  remove_folder(p);
  p->talk = p->arena_file = -1;
  p->arena = NULL;
}
