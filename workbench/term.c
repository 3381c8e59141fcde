/* SPDX-License-Identifier: Apache-2.0 */
/* term.c - see term.h. It asks the environment at every call, as tests change it; it keeps nothing. */
#include "workbench/term.h"
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool qn_term_is(FILE *stream)
{
  const char *term = getenv("TERM");
  return term && *term && strcmp(term, "dumb") && isatty(fileno(stream));
}

static bool has_colours(FILE *stream)
{
  const char *no = getenv("NO_COLOR"); /* no-color.org: present and not empty */
  return !(no && *no) && qn_term_is(stream);
}

const char *qn_term_colour(FILE *stream, qn_colour colour)
{
  static const char *const escapes[] = {
      [QN_PLAIN] = "\033[0m",  [QN_BOLD] = "\033[1m",    [QN_DIM] = "\033[2m",   [QN_RED] = "\033[31m",
      [QN_GREEN] = "\033[32m", [QN_YELLOW] = "\033[33m", [QN_CYAN] = "\033[36m",
  };
  return has_colours(stream) ? escapes[colour] : "";
}

int qn_term_width(FILE *stream)
{
  struct winsize size;
  if (isatty(fileno(stream)) && !ioctl(fileno(stream), TIOCGWINSZ, &size) && size.ws_col > 0) return size.ws_col;
  const char *columns = getenv("COLUMNS");
  char *end = NULL;
  long width = columns ? strtol(columns, &end, 10) : 0;
  return columns && end != columns && !*end && width >= 20 && width <= 10000 ? (int)width : 80;
}

void qn_term_wrap(FILE *stream, int column, const char *text)
{
  int room = qn_term_is(stream) ? qn_term_width(stream) - 1 - column : 0, used = 0;
  while (room >= 20 && *text) {
    int length = (int)strcspn(text, " ");
    if (used && used + 1 + length > room) {
      fprintf(stream, "\n%*s", column, "");
      used = 0;
    }
    fprintf(stream, "%s%.*s", used ? " " : "", length, text);
    used += length + (used > 0);
    text += length;
    text += strspn(text, " ");
  }
  fprintf(stream, "%s\n", text);
}
