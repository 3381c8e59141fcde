/* SPDX-License-Identifier: Apache-2.0 */
/* workbench_term.c - colours and the progress line, seen from the other end of a pseudo-terminal, and that a pipe gets
 * neither; amounts as people read them. */
#include "test.h"
#include "workbench/human.h"
#include "workbench/progress.h"
#include "workbench/term.h"
#include <poll.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static int master = -1, kept_stderr = -1;

/* Standard error becomes a terminal of so many columns, or with 0 a pipe; what is written there is read by `seen`. */
static bool redirect(int columns)
{
  int ends[2] = {-1, -1};
  if (columns) {
    ends[0] = posix_openpt(O_RDWR | O_NOCTTY);
    if (ends[0] < 0 || grantpt(ends[0]) || unlockpt(ends[0])) return false;
    ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY);
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    if (ends[1] < 0 || ioctl(ends[1], TIOCSWINSZ, &size)) return false;
  } else if (pipe(ends)) {
    return false;
  }
  master = ends[0];
  kept_stderr = dup(STDERR_FILENO);
  bool ok = fcntl(master, F_SETFL, O_NONBLOCK) != -1 && dup2(ends[1], STDERR_FILENO) >= 0;
  close(ends[1]);
  return ok;
}

/* Reads until nothing more arrives: the kernel hands a terminal's bytes on in its own time. */
static const char *seen(void)
{
  enum { SILENCE_MS = 50 };
  static char text[8192];
  size_t used = 0;
  ssize_t n = 1;
  while (n > 0 && used < sizeof text - 1 && poll(&(struct pollfd){.fd = master, .events = POLLIN}, 1, SILENCE_MS) > 0) {
    n = read(master, text + used, sizeof text - 1 - used);
    if (n > 0) used += (size_t)n;
  }
  text[used] = 0;
  return text;
}

static void restore(void)
{
  dup2(kept_stderr, STDERR_FILENO);
  close(kept_stderr);
  close(master);
}

static void wait_ms(int ms) { nanosleep(&(struct timespec){0, ms * 1000000L}, NULL); }

static void test_progress_on_a_terminal(void)
{
  static const char long_word[] = "a-name-far-longer-than-any-terminal-is-wide-a-name-far-longer-than-any-terminal";
  qn_progress progress;
  setenv("TERM", "xterm", 1);
  check(redirect(40), "a terminal of 40 columns");
  qn_progress_begin(&progress, "check lion", 200);
  qn_progress_at(&progress, 50, "%s", long_word);
  const char *line = seen();
  check(!strncmp(line, "\rcheck lion  25% 0:00 a-name", 28), "it says what, how far and what runs now: %s", line + 1);
  const char *end = strstr(line, "\033[K");
  check(end && end - line - 1 == 39, "it is cut one column short of 40: %d", end ? (int)(end - line - 1) : -1);
  bool drawn_again = true;
  for (int tries = 0; drawn_again && tries < 20; tries++) { /* unless the machine was busy elsewhere for as long */
    wait_ms(110);
    qn_progress_at(&progress, 50, "now");
    seen();
    qn_progress_at(&progress, 60, "next");
    drawn_again = *seen() != 0;
  }
  check(!drawn_again, "within a tenth of a second it is not drawn again");
  wait_ms(110);
  qn_progress_at(&progress, 60, "next");
  check(strstr(seen(), " 30% ") != NULL, "after it, it is");
  qn_progress_hide(&progress);
  check(!strcmp(seen(), "\r\033[K"), "hide takes the line away");
  qn_progress_hide(&progress);
  check(!*seen(), "a second hide writes nothing");
  qn_progress_at(&progress, 500, "later");
  check(strstr(seen(), "100%") != NULL, "it comes back at once, and never says more than 100%%");
  qn_progress_end(&progress);
  check(!strcmp(seen(), "\r\033[K"), "the end takes the line away");
  qn_progress_at(&progress, 70, "late");
  check(!*seen(), "behind the end nothing is drawn");
  restore();
}

static void test_wide_characters(void)
{
  qn_progress progress;
  check(redirect(24), "a terminal of 24 columns");
  qn_progress_begin(&progress, "x", 0);
  qn_progress_at(&progress, 0, "ääääääääääääääääääääääää");
  const char *line = seen(), *end = strstr(line, "\033[K");
  check(end && ((unsigned char)end[-1] & 0xC0) == 0x80 && (unsigned char)end[-2] == 0xC3, "no character is cut in two");
  qn_progress_end(&progress);
  restore();
}

static void silent(const char *where, int columns)
{
  qn_progress progress;
  check(redirect(columns), "standard error is %s", where);
  qn_progress_begin(&progress, "bench", 10);
  qn_progress_at(&progress, 5, "anything");
  qn_progress_hide(&progress);
  qn_progress_end(&progress);
  check(!*seen(), "no progress line: %s", where);
  check(!*qn_term_colour(stderr, QN_RED), "no colour: %s", where);
  restore();
}

static void test_silence(void)
{
  silent("a pipe", 0);
  setenv("TERM", "dumb", 1);
  silent("a dumb terminal", 80);
  unsetenv("TERM");
  silent("a terminal without TERM", 80);
  setenv("TERM", "xterm", 1);
}

static void test_colours(void)
{
  check(redirect(132), "a terminal of 132 columns");
  check(!strcmp(qn_term_colour(stderr, QN_RED), "\033[31m"), "red on a terminal");
  check(qn_term_width(stderr) == 132, "its width is %d", qn_term_width(stderr));
  setenv("NO_COLOR", "", 1);
  check(*qn_term_colour(stderr, QN_RED) != 0, "an empty NO_COLOR says nothing");
  setenv("NO_COLOR", "1", 1);
  check(!*qn_term_colour(stderr, QN_RED), "NO_COLOR=1: none");
  check(qn_term_is(stderr), "NO_COLOR leaves the progress line");
  unsetenv("NO_COLOR");
  restore();
}

static const char *wrapped(int columns, const char *text)
{
  redirect(columns);
  qn_term_wrap(stderr, 4, text);
  const char *line = seen();
  restore();
  return line;
}

static void test_wrap(void)
{
  check(!strcmp(wrapped(0, "one two three four five six"), "one two three four five six\n"),
        "in a pipe a line stays whole");
  check(!strcmp(wrapped(25, "one two three four five six"), "one two three four\r\n    five six\r\n"),
        "on a terminal it is broken at spaces and continued at its column");
  check(!strcmp(wrapped(25, "one abcdefghijklmnopqrstuvwxyz two"),
                "one\r\n    abcdefghijklmnopqrstuvwxyz\r\n    two\r\n"),
        "a word that is too long stays whole");
  check(!strcmp(wrapped(20, "one two three four"), "one two three four\r\n"), "no room to speak of: as it is");
}

static void test_width_in_a_pipe(void)
{
  check(redirect(0), "a pipe");
  setenv("COLUMNS", "100", 1);
  check(qn_term_width(stderr) == 100, "COLUMNS is taken: %d", qn_term_width(stderr));
  setenv("COLUMNS", "wide", 1);
  check(qn_term_width(stderr) == 80, "if it is a number: %d", qn_term_width(stderr));
  unsetenv("COLUMNS");
  check(qn_term_width(stderr) == 80, "else 80: %d", qn_term_width(stderr));
  restore();
}

static void human(int64_t bytes, const char *want)
{
  check(!strcmp(qn_human_bytes(bytes).text, want), "%lld bytes are %s: %s", (long long)bytes, want,
        qn_human_bytes(bytes).text);
}

int main(void)
{
  test_progress_on_a_terminal();
  test_wide_characters();
  test_silence();
  test_colours();
  test_wrap();
  test_width_in_a_pipe();
  human(0, "0 B");
  human(1023, "1023 B");
  human(1024, "1.0 KiB");
  human(10189, "10 KiB");
  human(1048063, "1023 KiB");
  human(1048064, "1.0 MiB");
  human(INT64_C(150754820096), "140 GiB");
  human(INT64_MAX, "8.0 EiB");
  return test_end();
}
