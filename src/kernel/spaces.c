/* SPDX-License-Identifier: Apache-2.0 */
/* spaces.c - finds the functions of a Metal header that differ in address spaces alone, and whose calls are which, by
 * tokens: no types are known, so that a call's argument has the space of the first name in it that has one. */
#include "kernel/spaces.h"
#include "kernel/look.h"
#include <stdio.h>

enum { MOST_PARAMETERS = 16 };

/* The fate of token `at` of a text. */
typedef struct edit {
  int text;                         /* QN_KERNEL_BODY or _HEADER */
  size_t at, end;                   /* end > at: tokens [at, end) are left out */
  char suffix[MOST_PARAMETERS + 3]; /* else: the word's new end */
} edit;

typedef struct edit_list {
  qn_text text; /* edits, of each text in order */
  size_t n;
} edit_list;

/* A function that the header declares. */
typedef struct function {
  size_t begin, name, end;          /* tokens: where its declaration begins, its name, behind its body or ; */
  size_t signature;                 /* where it begins in `signatures`: all but names of parameters and spaces */
  int parameters, original;         /* original: the first of this signature; itself where it is that */
  bool fixed;                       /* an operator or constructor: no other name */
  char spaces[MOST_PARAMETERS + 2]; /* a letter each: d t c h (thread) or _ (none); then the function's own */
} function;

typedef struct finder {
  const qn_kernel *kernel;
  edit_list *edits;
  qn_text functions, signatures;
  size_t n;
} finder;

static function *function_at(const finder *f, size_t k) { return (function *)(void *)f->functions.at + k; }

static char space_of_word(const qn_tokens *t, size_t k)
{
  if (!is_word(t, k)) return 0;
  return is(t, k, "device")        ? 'd'
         : is(t, k, "threadgroup") ? 't'
         : is(t, k, "constant")    ? 'c'
         : is(t, k, "thread")      ? 'h'
                                   : 0;
}

/* ---- declarations ---- */
static bool is_type_word(const qn_tokens *t, size_t k)
{
  static const char *const words[] = {"const", "unsigned", "signed", "int",    "long", "short", "char",   "float",
                                      "half",  "bool",     "uint",   "bfloat", "auto", "void",  "double", NULL};
  return is_one_of(t, k, words);
}

/* Behind the parameter that begins at k: a , or the closing ). */
static size_t parameter_end(const qn_tokens *t, size_t k, size_t close)
{
  int angles = 0;
  for (; k < close; k = after(t, k)) {
    const char c = letter(t, k);
    if (c == '(' || c == '[' || c == '{') k = closing(t, k);
    angles += (c == '<') - (c == '>' && angles > 0);
    if (c == ',' && !angles) return k;
  }
  return close;
}

/* A parameter's type without its space; its space. */
static char add_parameter(finder *f, const qn_tokens *t, size_t k, size_t end)
{
  size_t value = k, name = t->n;
  char space = '_';
  bool constant = false;
  while (value < end && !is(t, value, "=")) value = after(t, value);
  for (size_t j = k; j < value; j = after(t, j)) {
    if (space == '_' && space_of_word(t, j)) space = space_of_word(t, j);
    constant |= is(t, j, "const") || is(t, j, "constant");
    const char c = j > k ? letter(t, before(t, j)) : ',';
    if (is_word(t, j) && !is_type_word(t, j) && (c == '*' || c == '&' || c == '>' || (j > k && !c))) name = j;
    if (is(t, j, "[")) break;
  }
  qn_text_add(&f->signatures, constant ? ",const" : ",");
  for (size_t j = k; j < value; j = after(t, j))
    if (j != name && !space_of_word(t, j) && !is(t, j, "const"))
      qn_text_add(&f->signatures, " %.*s", (int)t->token[j].length, t->text + t->token[j].at);
  return space;
}

/* Behind the function whose parameters close at `close`; its own space into *space. 0: it is none. */
static size_t function_end(const qn_tokens *t, size_t close, char *space)
{
  static const char *const words[] = {"const", "noexcept", "override", "final", NULL};
  size_t k = after(t, close);
  *space = '_';
  for (; k < t->n && (is_one_of(t, k, words) || space_of_word(t, k)); k = after(t, k))
    if (space_of_word(t, k)) *space = space_of_word(t, k);
  if (is(t, k, "-") && is(t, k + 1, ">"))
    while (k < t->n && !is(t, k, "{") && !is(t, k, ";")) k = after(t, k);
  if (is(t, k, ":")) /* a constructor's members */
    while (k < t->n && !is(t, k, "{")) {
      k = after(t, k);
      while (k < t->n && !is(t, k, "(") && !is(t, k, "{")) k = after(t, k);
      k = after(t, closing(t, k));
    }
  if (is(t, k, "=")) /* default */
    while (k < t->n && !is(t, k, ";")) k = after(t, k);
  if (is(t, k, ";")) return k + 1;
  return is(t, k, "{") && closing(t, k) < t->n ? closing(t, k) + 1 : 0;
}

/* The word `operator` whose name ends at k; else k. */
static size_t operator_of(const qn_tokens *t, size_t k)
{
  size_t from = k;
  for (int marks = 0; letter(t, from) && marks < 3; marks++) from = before(t, from);
  if (!is(t, from, "operator")) from = before(t, k); /* operator float() */
  return is(t, from, "operator") ? from : k;
}

/* A function whose name is at k and whose declaration begins at `begin`; behind it, or 0. */
static size_t add_function(finder *f, const qn_tokens *t, size_t begin, size_t k, size_t scope)
{
  const size_t open = after(t, k), close = closing(t, open), back = before(t, k);
  const size_t first = operator_of(t, k);
  function made = {.begin = begin, .name = k, .signature = f->signatures.length, .fixed = first != k || k == begin};
  char own = '_';
  if (close >= t->n || (made.end = function_end(t, close, &own)) == 0) return 0;
  made.fixed |= !is_word(t, back) && !is(t, back, "*") && !is(t, back, "&") && !is(t, back, ">");
  qn_text_add(&f->signatures, "%zu", scope);
  for (size_t j = begin; j < k; j = after(t, j)) /* a template's parameters; no type of result tells two apart */
    if (is(t, j, "template"))
      for (size_t end = before(t, after_angles(t, after(t, j))); j < end && j < k; j = after(t, j))
        qn_text_add(&f->signatures, " %.*s", (int)t->token[j].length, t->text + t->token[j].at);
  for (size_t j = first; j < open; j = after(t, j))
    qn_text_add(&f->signatures, " %.*s", (int)t->token[j].length, t->text + t->token[j].at);
  for (size_t j = after(t, open); j < close; made.parameters++) {
    const size_t end = parameter_end(t, j, close);
    if (made.parameters == MOST_PARAMETERS) return made.end;
    made.spaces[made.parameters] = add_parameter(f, t, j, end);
    j = end < close ? after(t, end) : close;
  }
  made.spaces[made.parameters] = own;
  qn_text_add(&f->signatures, ")%s", is(t, after(t, close), "const") || own == 'c' ? "const" : "");
  qn_text_add_bytes(&f->signatures, "", 1);
  qn_text_add_bytes(&f->functions, &made, sizeof made);
  f->n += !f->functions.failed && !f->signatures.failed;
  return made.end;
}

/* The header's declarations outside of functions' bodies, in namespaces and structs too. */
static void find_functions(finder *f, const qn_tokens *t)
{
  size_t begin = 0, scope = 0;
  for (size_t k = 0; k < t->n; k++) {
    if (t->token[k].kind == QN_TOKEN_SPACE || t->token[k].kind == QN_TOKEN_DIRECTIVE) {
      if (begin == k) begin = k + 1;
      continue;
    }
    const char c = letter(t, k);
    if (is(t, k, "template") && is(t, after(t, k), "<")) {
      k = before(t, after_angles(t, after(t, k)));
      continue;
    }
    if (c == '(' && k > begin && !is(t, before(t, k), "alignas") && !is(t, before(t, k), "__attribute__")) {
      const size_t end = add_function(f, t, begin, before(t, k), scope);
      k = end ? end - 1 : closing(t, k);
      if (end) begin = end;
    } else if ((c == '=' || c == '[') && operator_of(t, k) == k)
      while (k + 1 < t->n && !is(t, k + 1, ";")) k++;
    else if (c == ';' || c == '}' || c == '{' || (c == ':' && !is(t, after(t, k), "{"))) {
      begin = k + 1;
      scope = c == '{' ? k : c == '}' ? 0 : scope;
    }
  }
}

/* ---- names and their spaces ---- */
static char space_of_tokens(const finder *f, int text, size_t k, size_t end);

/* The space that a declaration at or before `until` gives the name: `device T *name`, `T name[n]`, `auto p = name + 1`.
 */
static char space_declared(const finder *f, int text, const qn_tokens *of, size_t name, size_t until)
{
  static const char *const between[] = {"<", ">", ",", NULL};
  const qn_tokens *t = &f->kernel->tokens[text];
  for (size_t k = until; k-- > 0;) {
    if (!is_word(t, k) || t->token[k].length != of->token[name].length ||
        memcmp(t->text + t->token[k].at, of->text + of->token[name].at, of->token[name].length) != 0)
      continue;
    const char behind = letter(t, after(t, k));
    if (!behind || !strchr("=;,)[{:", behind)) continue;
    static const char *const none[] = {"return", "else", "do", "case", NULL};
    size_t back = before(t, k);
    const bool array = is(t, after(t, k), "[") && is_word(t, back) && !is_one_of(t, back, none);
    while (is(t, back, "*") || is(t, back, "&") || is(t, back, "const")) back = before(t, back);
    if (is(t, back, "auto") && is(t, after(t, k), "=")) {
      size_t end = k;
      while (end < t->n && !is(t, end, ";")) end++;
      return space_of_tokens(f, text, after(t, after(t, k)), end);
    }
    for (; is_word(t, back) || is(t, back, "::") || is_one_of(t, back, between); back = before(t, back))
      if (space_of_word(t, back)) return space_of_word(t, back);
    if (array) return 'h';
  }
  return 0;
}

/* Of an argument: a word in a cast, or the first name that has one; ? where none has. */
static char space_of_tokens(const finder *f, int text, size_t k, size_t end)
{
  const qn_tokens *t = &f->kernel->tokens[text];
  const qn_kernel_source *s = &f->kernel->source;
  for (size_t j = k; j < end; j++)
    if (space_of_word(t, j)) return space_of_word(t, j);
  for (size_t j = k; j < end; j++) {
    if (!is_word(t, j) || is_type_word(t, j)) continue;
    char space = space_declared(f, text, t, j, k);
    if (!space && text == QN_KERNEL_BODY) space = space_declared(f, QN_KERNEL_HEADER, t, j, f->kernel->tokens[1].n);
    for (size_t i = 0; !space && text == QN_KERNEL_BODY && i < s->n_inputs + s->n_outputs; i++)
      if (is(t, j, i < s->n_inputs ? s->inputs[i] : s->outputs[i - s->n_inputs])) space = 'd';
    if (space) return space;
  }
  return is(t, k, "&") ? 'h' : '?';
}

/* ---- calls ---- */
static void add_edit(finder *f, int text, size_t at, size_t end, const char *suffix)
{
  edit made = {.text = text, .at = at, .end = end};
  if (suffix) snprintf(made.suffix, sizeof made.suffix, "_%s", suffix);
  qn_text_add_bytes(&f->edits->text, &made, sizeof made);
  f->edits->n += !f->edits->text.failed;
}

static bool same_name(const qn_tokens *a, size_t j, const qn_tokens *b, size_t k)
{
  return a->token[j].length == b->token[k].length &&
         !memcmp(a->text + a->token[j].at, b->text + b->token[k].at, a->token[j].length);
}

/* Of the object whose member is named at k: `tile[i].f`; 0: it is no member. One without a space is a thread's. */
static char space_of_object(const finder *f, int text, size_t k)
{
  const qn_tokens *t = &f->kernel->tokens[text];
  size_t back = before(t, k);
  if (is(t, back, ">") && is(t, back - 1, "-")) back--;
  if (!is(t, back, ".") && !is(t, back, "-")) return 0;
  size_t object = before(t, back);
  for (int depth = 0; object < t->n; object = before(t, object)) {
    const char c = letter(t, object);
    depth += (c == ']' || c == ')') - (c == '[' || c == '(');
    if (!depth && is_word(t, object)) break;
  }
  const char space = object < t->n ? space_of_tokens(f, text, object, object + 1) : '?';
  return space == '?' ? 'h' : space;
}

/* How well arguments of these spaces fit; -1: not. An element (`x[k]`, `*p`) rather goes where no space is asked for.
 */
static int fit(const function *one, const char *spaces, const bool *element, int n, char object)
{
  const char own = one->spaces[one->parameters];
  int score = 0;
  if (n > one->parameters || (object && (own == '_' ? 'h' : own) != object)) return -1;
  for (int k = 0; k < n; k++) {
    if (one->spaces[k] == '_') score += 2 * element[k];
    if (one->spaces[k] == '_') continue;
    if (one->spaces[k] != spaces[k]) return -1;
    score++;
  }
  return score;
}

/* The call of a function with several spaces, whose name is at k: the suffix of the one that is meant. */
static void add_call(finder *f, int text, size_t k, size_t open)
{
  const qn_tokens *t = &f->kernel->tokens[text], *header = &f->kernel->tokens[QN_KERNEL_HEADER];
  const size_t close = closing(t, open);
  const char object = space_of_object(f, text, k);
  char spaces[MOST_PARAMETERS];
  bool element[MOST_PARAMETERS];
  int n = 0, best = -1;
  const function *chosen = NULL;
  for (size_t j = after(t, open); j < close && n < MOST_PARAMETERS; n++) {
    const size_t end = parameter_end(t, j, close);
    spaces[n] = space_of_tokens(f, text, j, end);
    element[n] = is(t, j, "*") || (is(t, before(t, end), "]") && !is(t, j, "&"));
    j = end < close ? after(t, end) : close;
  }
  for (size_t i = 0; i < f->n; i++) {
    const function *one = function_at(f, i);
    const int score = same_name(header, one->name, t, k) ? fit(one, spaces, element, n, object) : -1;
    if (score <= best) continue;
    best = score;
    chosen = one;
  }
  if (chosen && chosen->original >= 0 && strcmp(chosen->spaces, function_at(f, (size_t)chosen->original)->spaces))
    add_edit(f, text, k, 0, chosen->spaces);
}

static void find_calls(finder *f, int text)
{
  const qn_tokens *t = &f->kernel->tokens[text], *header = &f->kernel->tokens[QN_KERNEL_HEADER];
  for (size_t k = 0; k < t->n; k++) {
    const function *named = NULL, *declared = NULL;
    if (!is_word(t, k)) continue;
    for (size_t i = 0; i < f->n; i++) {
      const function *one = function_at(f, i);
      if (text == QN_KERNEL_HEADER && one->name == k) declared = one;
      if (same_name(header, one->name, t, k)) named = one;
      if (text == QN_KERNEL_HEADER && one->fixed && one->begin == k && (size_t)one->original != i)
        add_edit(f, text, one->begin, one->end, NULL);
    }
    const size_t next = after(t, k), open = is(t, next, "<") ? after_angles(t, next) : next;
    if (declared && !declared->fixed && strcmp(declared->spaces, function_at(f, (size_t)declared->original)->spaces))
      add_edit(f, text, k, 0, declared->spaces);
    else if (!declared && named && !named->fixed && is(t, open, "("))
      add_call(f, text, k, open);
  }
}

static void find_edits(const qn_kernel *kernel, edit_list *edits)
{
  finder f = {.kernel = kernel, .edits = edits};
  bool some = false;
  find_functions(&f, &kernel->tokens[QN_KERNEL_HEADER]);
  for (size_t k = 0; k < f.n; k++) {
    function *one = function_at(&f, k);
    one->original = (int)k;
    for (size_t j = 0; j < k && one->original == (int)k; j++)
      if (!strcmp(f.signatures.at + function_at(&f, j)->signature, f.signatures.at + one->signature)) {
        one->original = function_at(&f, j)->original;
        const bool other = strcmp(one->spaces, function_at(&f, (size_t)one->original)->spaces) != 0;
        some |= other;
        if (!other && one->fixed) one->fixed = false; /* a declaration and its definition */
      }
  }
  for (int text = 0; some && text < QN_KERNEL_TEXTS; text++) find_calls(&f, text);
  qn_text_free(&f.functions);
  qn_text_free(&f.signatures);
}

static const edit *edit_at(const edit_list *edits, int text, size_t token)
{
  const edit *all = (const edit *)(const void *)edits->text.at;
  for (size_t k = 0; k < edits->n; k++)
    if (all[k].text == text && all[k].at == token) return &all[k];
  return NULL;
}

/* A token that is left out keeps its line breaks. */
static void write_text(const edit_list *edits, int which, const qn_tokens *t, qn_text *text)
{
  for (size_t k = 0; k < t->n; k++) {
    const edit *e = edit_at(edits, which, k);
    const size_t end = e && e->end ? e->end : k;
    for (; k < end; k++)
      for (uint32_t j = 0; j < t->token[k].length; j++)
        if (t->text[t->token[k].at + j] == '\n') qn_text_add_bytes(text, "\n", 1);
    if (e && e->end) {
      k--;
      continue;
    }
    qn_text_add_bytes(text, t->text + t->token[k].at, t->token[k].length);
    if (e) qn_text_add(text, "%s", e->suffix);
  }
}

qn_status qn_spaces_rename(qn_kernel *kernel)
{
  edit_list edits = {0};
  if (kernel->source.dialect != QN_DIALECT_METAL || !kernel->source.header) return QN_OK;
  find_edits(kernel, &edits);
  bool failed = edits.text.failed;
  for (int which = 0; which < QN_KERNEL_TEXTS && edits.n && !failed; which++) {
    write_text(&edits, which, &kernel->tokens[which], &kernel->renamed[which]);
    failed = kernel->renamed[which].failed;
  }
  const bool some = edits.n > 0;
  qn_text_free(&edits.text);
  if (failed) return qn_fail(QN_NO_MEMORY, "kernel %s: no memory for its text", kernel->source.name);
  for (int which = 0; which < QN_KERNEL_TEXTS && some; which++) {
    if (!kernel->renamed[which].at) continue; /* an empty text */
    qn_tokens_free(&kernel->tokens[which]);
    qn_try(qn_tokens_make(kernel->renamed[which].at, &kernel->tokens[which]));
  }
  return QN_OK;
}
