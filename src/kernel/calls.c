/* SPDX-License-Identifier: Apache-2.0 */
/* calls.c - for the processor: marks calls of the text's own functions in which threads meet (barriers, words of a
 * simdgroup), so that the executor tells such a word reached by one call from the same word reached by another. A call
 * becomes `(QN_CALL.of((call, QN_WORDS::qn_void())))`, which tells the thread's state where it calls from for as long
 * as the call lasts (kernel/dialect/lanes.h); a function that the texts call in one place needs no mark. Words are
 * marked alike where a line has several, or in a macro, since all that a macro stands for has one line; and arguments
 * in which threads meet, which come before the call. It works on tokens and knows no types. Lines stay. */
#include "kernel/kernel.h"
#include <string.h>

enum { MOST_NAMES = 256 };

/* A name in one of the texts. */
typedef struct name {
  const char *at;
  size_t length;
  bool macro; /* its expansion is marked, its name is not */
  bool once;  /* the texts call it in one place: its words are reached by no other call */
} name;

typedef struct finder {
  const qn_kernel *kernel;
  size_t n;
  name names[MOST_NAMES]; /* of functions in which threads meet, and of macros that hold such a word */
  bool all;               /* one of them is passed on as a value: every function of the text may call it */
} finder;

/* ---- looking round; spaces are passed over ---- */
static size_t after(const qn_tokens *t, size_t k)
{
  while (++k < t->n && t->token[k].kind == QN_TOKEN_SPACE) {}
  return k < t->n ? k : t->n;
}

/* t->n where nothing is before, or k is no token. */
static size_t before(const qn_tokens *t, size_t k)
{
  if (k >= t->n) return t->n;
  while (k-- > 0)
    if (t->token[k].kind != QN_TOKEN_SPACE) return k;
  return t->n;
}

static bool is(const qn_tokens *t, size_t k, const char *text) { return k < t->n && qn_token_is(t, k, text); }

static bool is_word(const qn_tokens *t, size_t k) { return k < t->n && t->token[k].kind == QN_TOKEN_WORD; }

static bool is_one_of(const qn_tokens *t, size_t k, const char *const *words)
{
  for (; *words; words++)
    if (is(t, k, *words)) return true;
  return false;
}

static name name_at(const qn_tokens *t, size_t k)
{
  return k < t->n ? (name){.at = t->text + t->token[k].at, .length = t->token[k].length} : (name){.at = t->text};
}

/* The bracket that belongs to the one at k, in the direction of `step`; t->n: none. */
static size_t partner(const qn_tokens *t, size_t k, const char *opens, const char *closes, int step)
{
  size_t depth = 0;
  for (; k < t->n; k += (size_t)step) {
    if (t->token[k].kind != QN_TOKEN_MARK) continue;
    const char c = t->text[t->token[k].at];
    if (strchr(opens, c)) depth++;
    if (strchr(closes, c) && --depth == 0) return k;
    if (*opens == (step > 0 ? '<' : '>') && (c == ';' || c == '{' || c == '}')) return t->n;
  }
  return t->n;
}

static size_t closing(const qn_tokens *t, size_t k) { return partner(t, k, "([{", ")]}", 1); }
static size_t opening(const qn_tokens *t, size_t k) { return partner(t, k, ")]}", "([{", -1); }

/* The parenthesis of a call of the name at k, behind its template arguments; t->n: the name is not called. In a macro
 * a name may be put together of several by ##. */
static size_t arguments_of(const qn_tokens *t, size_t k)
{
  size_t open = after(t, k);
  while (is(t, open, "#") && is(t, open + 1, "#")) open = after(t, after(t, open + 1));
  if (is(t, open, "<")) {
    const size_t close = partner(t, open, "<", ">", 1);
    open = close < t->n ? after(t, close) : t->n;
  }
  return is(t, open, "(") ? open : t->n;
}

/* ---- names ---- */
static const name *known(const finder *f, name a)
{
  for (size_t k = 0; k < f->n; k++)
    if (f->names[k].length == a.length && !memcmp(f->names[k].at, a.at, a.length)) return &f->names[k];
  return NULL;
}

static bool is_known(const finder *f, name a) { return known(f, a) != NULL; }

static bool is_function(const finder *f, name a)
{
  const name *found = known(f, a);
  return found && !found->macro;
}

static bool add_name(finder *f, name a)
{
  if (!a.length || is_known(f, a) || f->n == MOST_NAMES) return false;
  f->names[f->n++] = a;
  return true;
}

/* A word of the dialect where threads meet, called. Words of cooperative groups are members. */
static bool is_meeting(const qn_tokens *t, size_t k)
{
  const size_t back = before(t, k);
  const bool member = is(t, back, ".") || is(t, back, ">") || is(t, back, "::");
  const char *at = t->text + t->token[k].at;
  const size_t n = t->token[k].length;
  return is_word(t, k) && (qn_words_meet(at, n, false) || (member && qn_words_meet(at, n, true))) &&
         arguments_of(t, k) < t->n;
}

/* Whether tokens [k, end) hold a word at which threads meet, or a name of which that is known. */
static bool holds_meeting(const finder *f, const qn_tokens *t, size_t k, size_t end);

static bool directive_holds(const finder *f, const qn_tokens *t, size_t k, qn_tokens *inside, char **text)
{
  *text = qn_allocate((size_t)t->token[k].length + 1);
  *inside = (qn_tokens){0};
  if (!*text) return false;
  memcpy(*text, t->text + t->token[k].at, t->token[k].length);
  (*text)[0] = ' '; /* the # */
  (*text)[t->token[k].length] = 0;
  if (qn_tokens_make(*text, inside) != QN_OK) return false;
  return is(inside, after(inside, 0), "define") && holds_meeting(f, inside, 0, inside->n);
}

static bool holds_meeting(const finder *f, const qn_tokens *t, size_t k, size_t end)
{
  for (; k < end && k < t->n; k++)
    if (is_meeting(t, k) || (is_word(t, k) && is_known(f, name_at(t, k)))) return true;
  return false;
}

/* ---- functions ---- */
typedef struct function {
  size_t open, close; /* its braces */
  size_t params;      /* its parameters' parenthesis; t->n: a lambda without */
  size_t name;        /* t->n: none: a lambda that nobody names, operator() */
} function;

/* The parenthesis that closes the parameters before the brace at k: behind it may stand const, noexcept, `-> type`. */
static size_t end_of_params(const qn_tokens *t, size_t k)
{
  static const char *const behind[] = {"const", "noexcept", "mutable", "override", "final", ">", "::", "*", "&", NULL};
  size_t back = before(t, k);
  for (int n = 0; n < 12 && back < t->n && !is(t, back, ")"); n++, back = before(t, back)) {
    if (is(t, back, "]")) return back; /* a lambda without parameters */
    if (!is_word(t, back) && !is_one_of(t, back, behind) && !is(t, back, "<") && !is(t, back, "-")) return t->n;
    static const char *const blocks[] = {"else", "do", "struct", "class", "union", "enum", "namespace", "try", NULL};
    if (is_one_of(t, back, blocks)) return t->n;
  }
  return is(t, back, ")") ? back : t->n;
}

/* [captures] at k, whose name, if it has one, stands in `auto name = `. */
static size_t name_of_lambda(const qn_tokens *t, size_t open)
{
  const size_t equals = before(t, open), of = equals < t->n ? before(t, equals) : t->n;
  return is(t, equals, "=") && is_word(t, of) ? of : t->n;
}

/* The function whose body's brace is at k. */
static bool function_at(const qn_tokens *t, size_t k, function *f)
{
  static const char *const statements[] = {"if", "for", "while", "switch", "catch", "constexpr", NULL};
  static const char *const behind[] = {"__attribute__", "noexcept", "decltype", "alignas", NULL};
  size_t end = end_of_params(t, k), open = opening(t, end), of = before(t, open);
  while (is_word(t, of) && is_one_of(t, of, behind))
    end = end_of_params(t, of), open = opening(t, end), of = before(t, open);
  if (open >= t->n) return false;
  *f = (function){.open = k, .close = closing(t, k), .params = is(t, end, "]") ? t->n : open, .name = t->n};
  if (is(t, end, "]") || is(t, of, "]")) {
    f->name = name_of_lambda(t, is(t, end, "]") ? open : opening(t, of));
    return true;
  }
  if (is(t, of, ")")) return is(t, before(t, opening(t, of)), "operator");
  if (is(t, of, ">")) of = before(t, partner(t, of, ">", "<", -1)); /* a specialisation's arguments */
  if (!is_word(t, of) || is_one_of(t, of, statements)) return false;
  f->name = of;
  return true;
}

static bool is_constexpr(const qn_tokens *t, size_t k)
{
  for (k = before(t, k); k < t->n && !is(t, k, ";") && !is(t, k, "}") && !is(t, k, "{"); k = before(t, k))
    if (is(t, k, "constexpr")) return true;
  return false;
}

/* Parameters' names: what stands before a comma or the end. */
static void add_params(finder *f, const qn_tokens *t, size_t open)
{
  const size_t end = open < t->n ? closing(t, open) : t->n;
  for (size_t k = open; k < end && end < t->n; k = after(t, k))
    if (is_word(t, k) && (is(t, after(t, k), ",") || after(t, k) == end)) add_name(f, name_at(t, k));
}

static bool same(const qn_tokens *t, size_t k, name a)
{
  return is_word(t, k) && a.length == t->token[k].length && !memcmp(a.at, t->text + t->token[k].at, a.length);
}

/* Names by which something is called that is passed on: objects of the types of `types`, whose operator() it may be,
 * pointers to functions, and what a known name is given to. */
static void add_values(finder *f, const qn_tokens *types, const qn_tokens *t)
{
  for (size_t k = 0; k < types->n; k++)
    if (is(types, k, "struct") || is(types, k, "class"))
      for (size_t j = 0; j < t->n; j++)
        if (same(t, j, name_at(types, after(types, k))) && is_word(t, after(t, j)))
          add_name(f, name_at(t, after(t, j)));
  for (size_t k = 0; k < t->n; k++) {
    const size_t next = after(t, k), of = before(t, before(t, k));
    if (is_word(t, k) && is(t, next, ")") && is(t, before(t, k), "*") && is(t, of, "(")) add_name(f, name_at(t, k));
    if (is_word(t, k) && is(t, next, "=") && is_word(t, after(t, next)) && is_function(f, name_at(t, after(t, next))))
      add_name(f, name_at(t, k));
  }
}

/* Outside of functions a macro that holds meetings makes functions, of names that it is given. */
static bool add_made(finder *f, const qn_tokens *t, size_t k)
{
  const size_t open = after(t, k), end = is(t, open, "(") ? closing(t, open) : t->n;
  bool more = false;
  for (size_t j = open; j < end && end < t->n; j = after(t, j))
    if (is_word(t, j)) more |= add_name(f, name_at(t, j));
  return more;
}

static size_t body_of_macro(const qn_tokens *t, size_t k) /* behind its name and parameters */
{
  const size_t open = k + 1;
  return is(t, open, "(") ? after(t, closing(t, open)) : after(t, k);
}

static bool add_macro(finder *f, const qn_tokens *t, size_t k)
{
  qn_tokens inside;
  char *text;
  bool more = false;
  if (directive_holds(f, t, k, &inside, &text)) {
    const size_t of = after(&inside, after(&inside, 0));
    if (is_word(&inside, of))
      more = add_name(f, (name){.at = t->text + t->token[k].at + inside.token[of].at,
                                .length = inside.token[of].length,
                                .macro = true});
  }
  qn_tokens_free(&inside);
  qn_release(text);
  return more;
}

static bool add_function(finder *f, const qn_tokens *t, const function *found)
{
  if (f->all) {
    add_params(f, t, found->params);
    return found->name < t->n && !is_constexpr(t, found->name) && add_name(f, name_at(t, found->name));
  }
  if (!holds_meeting(f, t, found->open, found->close)) return false;
  if (found->name < t->n) return add_name(f, name_at(t, found->name));
  return f->all = true; /* nobody can say by which name it is called */
}

/* One walk through a text. True: it added names. */
static bool look_through(finder *f, const qn_tokens *t, bool header)
{
  bool more = false;
  size_t inner = 0; /* the end of the outermost function */
  for (size_t k = 0; k < t->n; k++) {
    function found;
    const size_t back = before(t, k);
    const bool first =
        back == t->n || is(t, back, ";") || is(t, back, "}") || t->token[back].kind == QN_TOKEN_DIRECTIVE;
    if (t->token[k].kind == QN_TOKEN_DIRECTIVE)
      more |= add_macro(f, t, k);
    else if (header && k >= inner && first && is_word(t, k) && is_known(f, name_at(t, k)))
      more |= add_made(f, t, k);
    if (!is(t, k, "{") || !function_at(t, k, &found)) continue;
    if (found.close > inner) inner = found.close;
    more |= add_function(f, t, &found);
  }
  return more;
}

/* A function's name that is not called, and not being declared, is a value. */
static bool is_passed_on(const finder *f, const qn_tokens *t)
{
  for (size_t k = 0; k < t->n; k++)
    if (is_word(t, k) && is_function(f, name_at(t, k)) && arguments_of(t, k) == t->n && !is(t, after(t, k), "=") &&
        !is_word(t, before(t, k)))
      return true;
  return false;
}

/* The words that may stand before an expression; another word is the type of what is being declared. */
static bool begins_expression(const qn_tokens *t, size_t k)
{
  static const char *const words[] = {"return", "else", "do", "case", "and", "or", "not", "co_return", NULL};
  const size_t back = before(t, k);
  return !is_word(t, back) || is_one_of(t, back, words);
}

/* Where the expression begins that ends in the name at k: `a[i].b().name`, `of::name`. */
static size_t begin_of_call(const qn_tokens *t, size_t k)
{
  for (;;) {
    size_t back = before(t, k);
    if (is(t, back, "template")) back = before(t, back);
    const bool member = is(t, back, ".") || (is(t, back, ">") && back > 0 && is(t, back - 1, "-"));
    if (is(t, back, "::")) {
      k = back;
      size_t of = before(t, back);
      if (is(t, of, ">")) of = before(t, partner(t, of, ">", "<", -1));
      static const char *const ends[] = {"return", "else", "case", "do", NULL};
      if (!is_word(t, of) || is_one_of(t, of, ends)) return k;
      k = of;
      continue;
    }
    if (!member) return k;
    k = before(t, is(t, back, ".") ? back : back - 1);
    while (is(t, k, ")") || is(t, k, "]")) {
      const size_t open = opening(t, k), of = before(t, open);
      if (!is_word(t, of) && !is(t, of, ")") && !is(t, of, "]")) return open;
      k = of;
    }
    if (!is_word(t, k)) return k;
  }
}

/* In how many places a text calls a function; a macro that names it may stand in any number of places. */
static size_t count_calls(const qn_tokens *t, name a)
{
  size_t n = 0;
  for (size_t k = 0; k < t->n; k++) {
    if (t->token[k].kind == QN_TOKEN_DIRECTIVE)
      n += 2 * !!memmem(t->text + t->token[k].at, t->token[k].length, a.at, a.length);
    n += same(t, k, a) && arguments_of(t, k) < t->n && begins_expression(t, begin_of_call(t, k));
  }
  return n;
}

static void find_names(finder *f)
{
  const qn_tokens *body = &f->kernel->tokens[QN_KERNEL_BODY], *header = &f->kernel->tokens[QN_KERNEL_HEADER];
  for (bool more = true; more;) {
    more = look_through(f, header, true);
    more |= look_through(f, body, false);
    if (!more && !f->all && (is_passed_on(f, header) || is_passed_on(f, body))) more = f->all = true;
    if (f->all && more) add_values(f, header, header), add_values(f, header, body), add_values(f, body, body);
  }
  for (size_t k = 0; k < f->n && !f->all; k++)
    f->names[k].once = count_calls(header, f->names[k]) + count_calls(body, f->names[k]) < 2;
}

/* ---- marking ---- */
typedef struct marker {
  const finder *f;
  qn_text *text;
  bool macro;             /* words themselves are marked too */
  uint8_t *calls, *inner; /* how many marks open before each token: of calls, and of arguments within them */
  uint8_t *closes;        /* and close behind it */
} marker;

/* Another place where threads meet stands on the line of token k. */
static bool shares_line(const marker *m, const qn_tokens *t, size_t k)
{
  for (int step = -1; step < 2; step += 2)
    for (size_t j = k + (size_t)step; j < t->n; j += (size_t)step) {
      if (t->token[j].kind == QN_TOKEN_SPACE && memchr(t->text + t->token[j].at, '\n', t->token[j].length)) break;
      if (is_meeting(t, j) || (is_word(t, j) && is_function(m->f, name_at(t, j)))) return true;
    }
  return false;
}

static bool is_marked(const marker *m, const qn_tokens *t, size_t k)
{
  const name *found = known(m->f, name_at(t, k));
  return (found && !found->macro && !found->once) || (is_meeting(t, k) && (m->macro || shares_line(m, t, k)));
}

static void copy(const marker *m, const qn_tokens *t, size_t k)
{
  qn_text_add_bytes(m->text, t->text + t->token[k].at, t->token[k].length);
}

/* The comma or parenthesis behind the argument that begins at k. */
static size_t end_of_argument(const qn_tokens *t, size_t k, size_t last)
{
  for (; k < last && !is(t, k, ","); k++) {
    if (is(t, k, "(") || is(t, k, "[") || is(t, k, "{")) k = closing(t, k);
    if (!is(t, k, "<") || !is_word(t, before(t, k))) continue;
    const size_t close = partner(t, k, "<", ">", 1), next = close < last ? after(t, close) : t->n;
    if (is(t, next, "(") || is(t, next, "::") || is(t, next, "{")) k = close;
  }
  return k;
}

/* Arguments in which threads meet come before the call in the order of the text. */
static void mark_arguments(marker *m, const qn_tokens *t, size_t open, size_t last)
{
  for (size_t k = after(t, open), end; k < last; k = after(t, end)) {
    end = end_of_argument(t, k, last);
    if (end > last || end == k) return;
    if (is(t, k, "{") || !holds_meeting(m->f, t, k, end)) continue;
    m->inner[k]++;
    m->closes[before(t, end)]++;
  }
}

static void mark_call(marker *m, const qn_tokens *t, size_t k)
{
  if (!is_word(t, k) || (!is_marked(m, t, k) && !is_meeting(t, k))) return;
  const size_t open = arguments_of(t, k), last = open < t->n ? closing(t, open) : t->n, begin = begin_of_call(t, k);
  if (last == t->n || !begins_expression(t, begin)) return;
  mark_arguments(m, t, open, last);
  if (!is_marked(m, t, k)) return;
  m->calls[begin]++;
  m->closes[last]++;
}

static void mark_macro(const marker *m, const qn_tokens *t, size_t k);

/* Tokens from `first` on, of which those in functions are looked at. */
static void mark(marker *m, const qn_tokens *t, size_t first, bool inside)
{
  size_t inner = inside ? t->n : 0;
  uint8_t *counts = qn_allocate_zero(t->n + 1, 3);
  m->text->failed |= !counts;
  if (!counts) return;
  m->calls = counts, m->inner = counts + t->n + 1, m->closes = m->inner + t->n + 1;
  for (size_t k = first; k < t->n; k++) {
    function found;
    if (k >= inner && is(t, k, "{") && function_at(t, k, &found)) inner = found.close;
    if (k < inner) mark_call(m, t, k);
  }
  for (size_t k = first; k < t->n; k++) {
    for (int n = m->inner[k]; n > 0; n--) qn_text_add(m->text, "(QN_ARGUMENT.of((");
    for (int n = m->calls[k]; n > 0; n--) qn_text_add(m->text, "(QN_CALL.of((");
    if (t->token[k].kind == QN_TOKEN_DIRECTIVE)
      mark_macro(m, t, k);
    else
      copy(m, t, k);
    for (int n = m->closes[k]; n > 0; n--) qn_text_add(m->text, ", QN_WORDS::qn_void())))");
  }
  qn_release(counts);
}

static void mark_macro(const marker *m, const qn_tokens *t, size_t k)
{
  marker within = {.f = m->f, .text = m->text, .macro = true};
  qn_tokens inside;
  char *text;
  if (!directive_holds(m->f, t, k, &inside, &text)) {
    copy(m, t, k);
  } else {
    const size_t of = after(&inside, after(&inside, 0)), body = body_of_macro(&inside, of);
    qn_text_add(m->text, "#");
    for (size_t j = 0; j < inside.n && j < body; j++)
      qn_text_add_bytes(m->text, inside.text + inside.token[j].at + !j, inside.token[j].length - !j);
    mark(&within, &inside, body, true);
  }
  qn_tokens_free(&inside);
  qn_release(text);
}

qn_status qn_calls_mark(const qn_kernel *kernel, int which, qn_text *text)
{
  finder *f = qn_allocate_zero(1, sizeof *f);
  if (!f) return qn_fail(QN_NO_MEMORY, "kernel %s: no memory to look through its text", kernel->source.name);
  f->kernel = kernel;
  find_names(f);
  const qn_tokens *t = &kernel->tokens[which];
  mark(&(marker){.f = f, .text = text}, t, 0, which == QN_KERNEL_BODY);
  qn_release(f);
  return text->failed ? qn_fail(QN_NO_MEMORY, "kernel %s: no memory for its text", kernel->source.name) : QN_OK;
}
