/* SPDX-License-Identifier: Apache-2.0 */
/* declarations.c - cuts a unit's text into declarations, and finds the names that each stands for. One that may be left
 * out begins in a line's first column with one of a few known forms: #define, a function or variable (QN_FN, QN_WORD,
 * QN_DEVICE, static ...), struct, class, typedef, using, each with or without template, and an invocation
 * QN_SOMETHING(word, ...) of a macro whose first parameter is called `name`: it stands for the word and for all names
 * that the macro pastes it into. Operators, enums, what stands within extern "C" { } (compilers may call it) and
 * everything that is not known stays. Sources are as clang-format leaves them. */
#include "device/declarations.h"
#include "core/source.h"
#include "device/lexer.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_NESTING = 4, NAME_BYTES = 256 };
static const uint64_t no_hash = 14695981039346656037u; /* FNV-1a's beginning */

typedef struct cutter {
  qn_declarations *p;
  const char *at, *end;
  const char *file; /* of the embedded source; NULL: the unit's own */
  size_t line;
  int depth, outside; /* of namespaces and extern "C" { }; the depth at which one of these began, 0: none */
} cutter;

static uint64_t hash_more(uint64_t hash, const char *at, size_t n)
{
  for (size_t k = 0; k < n; k++) hash = (hash ^ (unsigned char)at[k]) * 1099511628211u;
  return hash;
}

static uint64_t hash_of(qn_lexeme l) { return hash_more(no_hash, l.at, l.length); }

/* ---- what an invocation makes ---- */
typedef struct making {
  qn_declarations *p;
  qn_lexeme first, others; /* the macro's parameters: the first, all others */
  bool sure;               /* nothing is pasted but the first parameter and words */
} making;

static bool same(qn_lexeme a, qn_lexeme b) { return a.length == b.length && !memcmp(a.at, b.at, a.length); }

static bool is_among(qn_lexeme word, qn_lexeme list)
{
  const char *at = list.at, *end = list.at + list.length;
  for (qn_lexeme l; (l = qn_lex(&at, end)).kind;)
    if (l.kind == 'w' && same(l, word)) return true;
  return false;
}

/* Moves behind a ## that comes next. */
static bool pastes(const char **at, const char *end)
{
  const char *p = *at + strspn(*at, " ");
  if (p + 1 >= end || p[0] != '#' || p[1] != '#') return false;
  *at = p + 2;
  return true;
}

/* In a macro's text from `l` on: words that ## joins are a form of the argument if the first parameter is among them,
 * with at most one word behind it. */
static void make_form(making *m, qn_lexeme l, const char **at, const char *end)
{
  qn_declaration_form form = {no_hash, NULL, 0};
  int n = 1, place = 0; /* where the first parameter stands, from 1 */
  for (;; n++) {
    const bool is = l.kind == 'w' && same(l, m->first), known = is || !is_among(l, m->others);
    if (is && !place)
      place = n;
    else if (place)
      form.behind = l.at, form.length = l.length;
    else
      form.before = hash_more(form.before, l.at, l.length);
    if ((n > 1 || place) && (!known || (place && n > place + 1) || (is && n > place))) m->sure = false;
    if (!pastes(at, end)) break;
    if (!known) m->sure = false;
    l = qn_lex(at, end);
  }
  if (n > 1 && !place) m->sure = false;
  if (!place) return;
  qn_text_add_bytes(&m->p->forms, &form, sizeof form);
  m->p->n_forms += !m->p->forms.failed;
}

static void make_macro_forms(qn_declarations *p, uint64_t macro, bool *sure, int nesting);

static void make_forms(qn_declarations *p, const qn_declaration *macro, bool *sure, int nesting)
{
  const char *at = macro->at, *end = macro->at + macro->length;
  qn_lex(&at, end), qn_lex(&at, end), qn_lex(&at, end); /* # define NAME */
  if (*at != '(') return;
  making m = {.p = p, .sure = true};
  m.first = (qn_lex(&at, end), qn_lex(&at, end));
  m.others = (qn_lexeme){at, 0, 'w'};
  while (at < end && *at != ')') at++;
  m.others.length = (size_t)(at - m.others.at);
  at += at < end;
  for (qn_lexeme l; (l = qn_lex(&at, end)).kind;) {
    const char *behind = at;
    if (l.kind == 'w' && *at == '(' && (qn_lex(&behind, end), same(qn_lex(&behind, end), m.first)))
      make_macro_forms(p, hash_of(l), &m.sure, nesting + 1);
    if (l.kind == 'w' || l.kind == '0') make_form(&m, l, &at, end);
  }
  *sure &= m.sure;
}

static void make_macro_forms(qn_declarations *p, uint64_t macro, bool *sure, int nesting)
{
  for (int32_t n = qn_declarations_head(p, macro); n >= 0 && nesting < MOST_NESTING;
       n = qn_declarations_name(p, n)->next)
    if (qn_declarations_name(p, n)->hash == macro && qn_declarations_at(p, qn_declarations_name(p, n)->piece)->macro)
      make_forms(p, qn_declarations_at(p, qn_declarations_name(p, n)->piece), sure, nesting);
}

/* All names that MACRO(argument, ...) makes; false: and others that are not known. A macro's text is read once. */
static bool make_names(qn_declarations *p, uint64_t macro, qn_lexeme argument, void (*found)(void *user, uint64_t hash),
                       void *user)
{
  bool sure = true;
  for (int32_t n = qn_declarations_head(p, macro); n >= 0; n = qn_declarations_name(p, n)->next) {
    qn_declaration *piece = qn_declarations_at(p, qn_declarations_name(p, n)->piece);
    if (qn_declarations_name(p, n)->hash != macro || !piece->macro) continue;
    if (!piece->read) {
      piece->read = piece->sure = true;
      piece->forms = p->n_forms;
      make_forms(p, piece, &piece->sure, 0);
      piece->n_forms = p->n_forms - piece->forms;
    }
    sure &= piece->sure;
    for (int32_t k = piece->forms; k < piece->forms + piece->n_forms; k++) {
      const qn_declaration_form *form = (const qn_declaration_form *)(const void *)p->forms.at + k;
      found(user, hash_more(hash_more(form->before, argument.at, argument.length), form->behind, form->length));
    }
  }
  return sure;
}

/* QN_SOMETHING(argument */
static bool read_call(const char *at, const char *end, qn_lexeme *macro, qn_lexeme *argument)
{
  *macro = qn_lex(&at, end);
  if (macro->length < 4 || memcmp(macro->at, "QN_", 3) || qn_lex(&at, end).kind != '(') return false;
  *argument = qn_lex(&at, end);
  return true;
}

void qn_declaration_words(qn_declarations *pieces, const qn_declaration *piece,
                          void (*found)(void *user, uint64_t hash), void *user)
{
  const char *at = piece->at, *end = piece->at + piece->length;
  for (qn_lexeme l; (l = qn_lex(&at, end)).kind;) {
    const char *behind = at;
    if (l.kind == 'w') found(user, hash_of(l));
    if (l.kind != '#') continue;
    const qn_lexeme directive = qn_lex(&behind, end);
    if (qn_lexeme_is(directive, "undef") || qn_lexeme_is(directive, "line")) at = qn_directive_end(l.at, end);
  }
  qn_lexeme macro, argument;
  if (piece->call && read_call(piece->at, end, &macro, &argument))
    make_names(pieces, hash_of(macro), argument, found, user);
}

/* ---- a declaration's names ---- */
static void name_piece(void *user, uint64_t hash)
{
  qn_declarations *p = user;
  const qn_declaration_name name = {hash, p->n_pieces - 1, qn_declarations_head(p, hash)};
  qn_text_add_bytes(&p->names, &name, sizeof name);
  if (!p->names.failed) p->slots[hash % QN_DECLARATION_SLOTS] = p->n_names++;
}

static bool is_one_of(qn_lexeme l, const char *const *words)
{
  for (; *words; words++)
    if (qn_lexeme_is(l, *words)) return true;
  return false;
}

/* Behind the bracket that closes the one before *at; angles count only among angles. */
static void pass_brackets(const char **at, const char *end, bool angles)
{
  int depth = 1;
  for (qn_lexeme l; depth && (l = qn_lex(at, end)).kind;) {
    if (angles && l.kind == '(')
      pass_brackets(at, end, false);
    else if (angles && l.kind == '<' && **at == '=')
      continue;
    else
      depth += (l.kind == (angles ? '<' : '(')) - (l.kind == (angles ? '>' : ')'));
  }
}

/* The word before the first parameters, initialiser or end. */
static bool name_function(qn_declarations *p, const char *at, const char *end)
{
  static const char *const with_brackets[] = {"decltype", "alignas", "__attribute__", NULL};
  qn_lexeme last = {0};
  for (qn_lexeme l; (l = qn_lex(&at, end)).kind; last = l.kind == 'w' ? l : last) {
    if (qn_lexeme_is(l, "operator")) return false;
    if (l.kind == '<')
      pass_brackets(&at, end, true);
    else if (l.kind == '(' && last.at && is_one_of(last, with_brackets))
      pass_brackets(&at, end, false);
    else if (strchr("(={[;", l.kind))
      break;
  }
  if (last.at) name_piece(p, hash_of(last));
  return last.at != NULL;
}

static bool name_struct(qn_declarations *p, const char *at, const char *end)
{
  qn_lexeme l = qn_lex(&at, end);
  while (qn_lexeme_is(l, "alignas") && qn_lex(&at, end).kind == '(') {
    pass_brackets(&at, end, false);
    l = qn_lex(&at, end);
  }
  if (l.kind == 'w') name_piece(p, hash_of(l));
  return l.kind == 'w';
}

/* The last word, where nothing but ; is behind it. */
static bool name_typedef(qn_declarations *p, const char *at, const char *end)
{
  qn_lexeme last = {0}, before = {0};
  const char *from = at;
  if (qn_lexeme_is(qn_lex(&from, end), "struct") && !name_struct(p, from, end)) return false;
  for (qn_lexeme l; (l = qn_lex(&at, end)).kind; last = l) before = last;
  if (last.kind != ';' || before.kind != 'w') return false;
  name_piece(p, hash_of(before));
  return true;
}

static bool name_using(qn_declarations *p, const char *at, const char *end)
{
  const qn_lexeme l = qn_lex(&at, end);
  if (l.kind != 'w' || qn_lex(&at, end).kind != '=') return false;
  name_piece(p, hash_of(l));
  return true;
}

/* The beginning of a macro's text: `(name`. */
static bool takes_name(const qn_declarations *p, uint64_t macro)
{
  for (int32_t n = qn_declarations_head(p, macro); n >= 0; n = qn_declarations_name(p, n)->next) {
    const qn_declaration *piece = qn_declarations_at(p, qn_declarations_name(p, n)->piece);
    if (qn_declarations_name(p, n)->hash != macro || !piece->macro) continue;
    const char *at = piece->at, *end = piece->at + piece->length;
    qn_lex(&at, end), qn_lex(&at, end), qn_lex(&at, end);
    return *at == '(' && (qn_lex(&at, end), qn_lexeme_is(qn_lex(&at, end), "name"));
  }
  return false;
}

static bool name_call(qn_declarations *p, const qn_declaration *piece)
{
  qn_lexeme macro, argument;
  if (!read_call(piece->at, piece->at + piece->length, &macro, &argument) || argument.kind != 'w' ||
      !takes_name(p, hash_of(macro)))
    return false;
  name_piece(p, hash_of(argument));
  return make_names(p, hash_of(macro), argument, name_piece, p);
}

/* False: it has no name that is known, and stays. */
static bool name_declaration(qn_declarations *p, const qn_declaration *piece)
{
  static const char *const functions[] = {"QN_FN", "QN_WORD", "QN_DEVICE", "static", "inline", "constexpr", NULL};
  const char *at = piece->at, *end = piece->at + piece->length;
  if (piece->call) return name_call(p, piece);
  qn_lexeme l = qn_lex(&at, end);
  if (qn_lexeme_is(l, "template") && qn_lex(&at, end).kind == '<') {
    pass_brackets(&at, end, true);
    l = qn_lex(&at, end);
  }
  if (qn_lexeme_is(l, "struct") || qn_lexeme_is(l, "class")) return name_struct(p, at, end);
  if (qn_lexeme_is(l, "typedef")) return name_typedef(p, at, end);
  if (qn_lexeme_is(l, "using")) return name_using(p, at, end);
  return is_one_of(l, functions) && name_function(p, at, end);
}

/* ---- cutting ---- */
static qn_declaration *add_piece(cutter *c, const char *end)
{
  const qn_declaration piece = {.at = c->at, .length = (size_t)(end - c->at), .line = c->line, .file = c->file};
  c->line += qn_lines(c->at, end);
  c->at = end;
  qn_text_add_bytes(&c->p->pieces, &piece, sizeof piece);
  if (c->p->pieces.failed) return NULL;
  return qn_declarations_at(c->p, c->p->n_pieces++);
}

static void keep_last(cutter *c)
{
  qn_declaration *piece = qn_declarations_at(c->p, c->p->n_pieces - 1);
  piece->kept = true;
  piece->next = c->p->pending;
  c->p->pending = c->p->n_pieces - 1;
}

static void add_kept(cutter *c, const char *end)
{
  if (add_piece(c, end)) keep_last(c);
}

/* `#line 12 "base/simd.h"`: behind it lies that embedded source, else the unit's own text. */
static bool read_line(const char *at, const char *end, size_t *line, const char **file)
{
  char name[NAME_BYTES];
  if (qn_lex(&at, end).kind != '#' || !qn_lexeme_is(qn_lex(&at, end), "line")) return false;
  const qn_lexeme number = qn_lex(&at, end), string = qn_lex(&at, end);
  *file = NULL;
  *line = number.kind == '0' ? strtoul(number.at, NULL, 10) : 0;
  if (string.kind != '"' || string.length < 3 || string.length - 2 >= sizeof name) return true;
  memcpy(name, string.at + 1, string.length - 2);
  name[string.length - 2] = 0;
  if (qn_source_find(name)) *file = string.at + 1;
  return true;
}

/* The unit's own text up to the next embedded source. A macro of its own that pastes may name anything. */
static void cut_own(cutter *c)
{
  const char *at = c->at, *file = NULL;
  size_t line = 0;
  for (; at < c->end; at = qn_line_end(at, c->end))
    if (*at == '#' && read_line(at, c->end, &line, &file) && file) break;
  if (memmem(c->at, (size_t)(at - c->at), "##", 2)) c->p->pasting = true;
  if (at > c->at) add_kept(c, at);
  c->at = qn_line_end(at, c->end);
  c->file = file;
  c->line = line;
}

static void cut_directive(cutter *c)
{
  const char *file, *at = c->at;
  size_t line;
  if (read_line(c->at, c->end, &line, &file)) {
    c->line = line;
    c->file = file;
    if (file) c->at = qn_line_end(c->at, c->end);
    return;
  }
  const qn_lexeme word = (qn_lex(&at, c->end), qn_lex(&at, c->end)), name = qn_lex(&at, c->end);
  const char *end = qn_directive_end(c->at, c->end);
  if (!qn_lexeme_is(word, "define")) {
    add_kept(c, end);
    return;
  }
  qn_declaration *piece = add_piece(c, end);
  if (!piece) return;
  piece->macro = true;
  name_piece(c->p, hash_of(name));
}

/* Where a declaration ends: with a ; outside brackets, the } of its body, an invocation's ). A } in the first column
 * closes whatever is open: an #if may have opened it twice. */
static const char *declaration_end(const char *from, const char *end, bool call)
{
  int depth = 0;
  const char *at = from;
  for (qn_lexeme l; (l = qn_lex(&at, end)).kind;) {
    if (l.kind == '#') {
      at = qn_directive_end(l.at, end);
      continue;
    }
    if (l.kind == '}' && l.at[-1] == '\n') depth = 1;
    depth += (l.kind == '(' || l.kind == '[' || l.kind == '{') - (l.kind == ')' || l.kind == ']' || l.kind == '}');
    if (depth) continue;
    const char *behind = at, *next_line = qn_line_end(l.at, end);
    const qn_lexeme next = qn_lex(&behind, end);
    if (l.kind == ';' || (l.kind == '}' && next.at >= next_line) ||
        (call && l.kind == ')' && next.kind != '{' && next.kind != ';'))
      return next_line;
  }
  return end;
}

/* `namespace x {`, `extern "C" {` and their } */
static bool cut_frame(cutter *c)
{
  const char *at = c->at, *end = qn_line_end(c->at, c->end);
  const qn_lexeme first = qn_lex(&at, end), second = qn_lex(&at, end);
  const bool namespace = qn_lexeme_is(first, "namespace"), outside = qn_lexeme_is(first, "extern");
  const bool opens = second.kind == '{' || qn_lex(&at, end).kind == '{';
  if (first.kind != '}' && !namespace && !(outside && second.kind == '"' && opens)) return false;
  if (opens && !c->outside && outside) c->outside = c->depth + 1;
  if (opens) c->depth++;
  if (first.kind == '}' && c->outside == c->depth) c->outside = 0;
  if (first.kind == '}') c->depth--;
  add_kept(c, end);
  return true;
}

static void cut_declaration(cutter *c)
{
  qn_lexeme macro, argument;
  const bool call = read_call(c->at, c->end, &macro, &argument);
  qn_declaration *piece = add_piece(c, declaration_end(c->at, c->end, call));
  if (!piece) return;
  piece->call = call;
  if (c->outside || !name_declaration(c->p, piece)) keep_last(c);
}

/* Of an embedded source. Comments between declarations are nobody's. */
static void cut_source(cutter *c)
{
  const char *at = c->at;
  const qn_lexeme l = qn_lex(&at, c->end);
  const char *line = l.at;
  while (line > c->at && line[-1] != '\n') line--;
  c->line += qn_lines(c->at, line);
  c->at = line;
  if (!l.kind)
    c->at = c->end;
  else if (l.kind == '#')
    cut_directive(c);
  else if (!cut_frame(c))
    cut_declaration(c);
}

void qn_declarations_make(const char *whole, qn_declarations *pieces)
{
  *pieces = (qn_declarations){.pending = -1};
  for (int k = 0; k < QN_DECLARATION_SLOTS; k++) pieces->slots[k] = -1;
  cutter c = {.p = pieces, .at = whole, .end = whole + strlen(whole)};
  while (c.at < c.end && !pieces->pieces.failed && !pieces->names.failed && !pieces->forms.failed) {
    if (c.file)
      cut_source(&c);
    else
      cut_own(&c);
  }
  pieces->failed = pieces->pieces.failed || pieces->names.failed || pieces->forms.failed;
}

void qn_declarations_free(qn_declarations *pieces)
{
  qn_text_free(&pieces->pieces);
  qn_text_free(&pieces->names);
  qn_text_free(&pieces->forms);
}
