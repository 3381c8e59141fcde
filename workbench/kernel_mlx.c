/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_mlx.c - see kernel_mlx.h. An expression of kernel.json is nearly one of Python: a division is written
 * with two strokes, and names are those of local variables, of constants of the call, or of the group. */
#include "workbench/kernel_mlx.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
  const qn_kernel_case *c;
  const qn_kernel_case_order *o;
  bool used[QN_FOLDER_NAMES]; /* extents that some expression names */
  bool helpers;               /* ceildiv or align occurs */
} writer;

/* ---- names ---- */
/* A local variable's name: not a word of Python's, nor of the program's. */
static void add_variable(qn_text *text, const char *name)
{
  static const char *const words[] = {"and", "as",     "def", "del", "for", "from",   "if",    "in",   "is",
                                      "not", "lambda", "or",  "try", "mx",  "kernel", "align", "group"};
  bool taken = false;
  for (size_t k = 0; k < sizeof words / sizeof *words; k++) taken = taken || !strcmp(words[k], name);
  qn_text_add(text, "%s%s", name, taken ? "_size" : "");
}

static int extent_of(const writer *w, const char *name, size_t length)
{
  for (size_t k = 0; k < w->c->folder->n_extents; k++)
    if (strlen(w->c->folder->extent[k]) == length && !strncmp(w->c->folder->extent[k], name, length)) return (int)k;
  return -1;
}

static bool is_bound(const qn_name *names, size_t n, const char *name)
{
  for (size_t k = 0; k < n; k++)
    if (!strcmp(names[k].name, name)) return true;
  return false;
}

/* The expression of a template whose value follows from the sizes; NULL: it is a constant. */
static const char *template_expression(const writer *w, size_t k)
{
  const qn_folder_template *t = &w->c->body->templates[k];
  if (!t->expression || is_bound(w->o->set, w->o->n_set, t->name) || is_bound(w->o->tuned, w->o->n_tuned, t->name) ||
      (w->o->size && is_bound(w->o->size->value, w->o->size->n, t->name)))
    return NULL;
  return t->expression;
}

static bool is_number(const char *expression) { return strspn(expression, "0123456789 ") == strlen(expression); }

/* The group follows from the sizes. */
static bool has_group(const writer *w)
{
  const char *const *group = w->c->body->group;
  if (!group[0] || w->o->group[0]) return false;
  return !is_number(group[0]) || !is_number(group[1]) || !is_number(group[2]);
}

static void add_name(writer *w, qn_text *text, const char *name, size_t length)
{
  static const char *const axes[] = {"threadgroup.x", "threadgroup.y", "threadgroup.z"};
  const int extent = extent_of(w, name, length);
  if (extent >= 0) {
    w->used[extent] = true;
    add_variable(text, w->c->folder->extent[extent]);
    return;
  }
  for (size_t k = 0; k < w->c->body->n_templates; k++) {
    const char *template = w->c->body->templates[k].name;
    if (strlen(template) != length || strncmp(template, name, length) || !template_expression(w, k)) continue;
    add_variable(text, template);
    return;
  }
  for (int d = 0; d < 3; d++)
    if (strlen(axes[d]) == length && !strncmp(axes[d], name, length) && has_group(w)) {
      qn_text_add(text, "group[%d]", d);
      return;
    }
  for (size_t k = 0; k < w->c->bound.n_names; k++)
    if (strlen(w->c->bound.name[k].name) == length && !strncmp(w->c->bound.name[k].name, name, length)) {
      qn_text_add(text, "%lld", (long long)w->c->bound.name[k].value);
      return;
    }
  text->failed = true; /* the folder was read with all its names known */
}

static void add_expression(writer *w, qn_text *text, const char *at)
{
  while (*at) {
    size_t length = 0;
    while (isalnum((unsigned char)at[length]) || at[length] == '_' || at[length] == '.') length++;
    const bool named = length && !isdigit((unsigned char)*at);
    if (named && qn_expression_is_function(at, length)) {
      w->helpers = w->helpers || *at == 'c' || *at == 'a';
      qn_text_add_bytes(text, at, length);
    } else if (named) {
      add_name(w, text, at, length);
    } else if (length) {
      qn_text_add_bytes(text, at, length);
    } else {
      qn_text_add_bytes(text, "//", *at == '/');
      qn_text_add_bytes(text, at, 1);
    }
    at += length ? length : 1;
  }
}

static void add_triple(writer *w, qn_text *text, const char *const *expressions)
{
  for (int d = 0; d < 3; d++) {
    qn_text_add(text, d ? ", " : "(");
    add_expression(w, text, expressions[d] ? expressions[d] : "1");
  }
  qn_text_add(text, ")");
}

static void add_shape(writer *w, qn_text *text, const qn_folder_tensor *t)
{
  qn_text_add(text, t->leading ? "(*leading" : "(");
  for (int d = 0; d < t->ndim; d++) {
    if (d || t->leading) qn_text_add(text, ", ");
    add_expression(w, text, t->extent[d]);
  }
  qn_text_add(text, t->ndim + t->leading == 1 ? ",)" : ")");
}

/* ---- the function's first lines: every extent from the input that has it; else it is a parameter ---- */
static bool add_from_input(const writer *w, size_t extent, qn_text *text)
{
  const qn_folder *f = w->c->folder;
  for (size_t k = 0; k < f->n_inputs; k++)
    for (int d = 0; d < f->tensor[k].ndim; d++) {
      if (strcmp(f->tensor[k].extent[d], f->extent[extent])) continue;
      qn_text_add(text, "    ");
      add_variable(text, f->extent[extent]);
      qn_text_add(text, " = %s_.shape[%d]\n", f->tensor[k].name, f->tensor[k].leading ? d - f->tensor[k].ndim : d);
      return true;
    }
  return false;
}

static void add_leading(const writer *w, qn_text *text)
{
  const qn_folder *f = w->c->folder;
  for (size_t k = 0; k < f->n_inputs; k++) {
    if (!f->tensor[k].leading) continue;
    qn_text_add(text, "    leading = %s_.shape[: len(%s_.shape) - %d]\n", f->tensor[k].name, f->tensor[k].name,
                f->tensor[k].ndim);
    return;
  }
}

static int64_t value_of(const writer *w, const char *name)
{
  for (size_t k = 0; k < w->c->bound.n_names; k++)
    if (!strcmp(w->c->bound.name[k].name, name)) return w->c->bound.name[k].value;
  return 0;
}

/* `locals` are the lines behind the extents, made before them, because they say which are named. */
static void add_statements(writer *w, qn_mlx_words *p, const qn_text *locals)
{
  bool first = true;
  for (size_t k = 0; k < w->c->folder->n_extents; k++) {
    if (!w->used[k] || add_from_input(w, k, &p->statements)) continue;
    qn_text_add(&p->parameters, first ? ", *, " : ", ");
    add_variable(&p->parameters, w->c->folder->extent[k]);
    qn_text_add(&p->parameters, "=%lld", (long long)value_of(w, w->c->folder->extent[k]));
    first = false;
  }
  add_leading(w, &p->statements);
  qn_text_add(&p->statements, "%s", locals->at ? locals->at : "");
}

static void add_locals(writer *w, qn_mlx_words *p, qn_text *locals)
{
  for (size_t k = 0; k < w->c->body->n_templates; k++) {
    const char *expression = template_expression(w, k);
    if (!expression) continue;
    qn_text_add(locals, "    ");
    add_variable(locals, w->c->body->templates[k].name);
    qn_text_add(locals, " = ");
    add_expression(w, locals, expression);
    qn_text_add(locals, "\n");
    add_variable(&p->template_value[k], w->c->body->templates[k].name);
  }
  if (!has_group(w)) return;
  qn_text_add(locals, "    group = ");
  add_triple(w, locals, w->c->body->group);
  qn_text_add(locals, "\n");
  qn_text_add(&p->group, "group");
}

static void point(qn_mlx_words *p)
{
  qn_emit_words *words = &p->words;
  words->functions = p->functions.at;
  words->parameters = p->parameters.at;
  words->statements = p->statements.at;
  words->grid = p->grid.at;
  words->group = p->group.at;
  for (size_t k = 0; k < QN_KERNEL_MAX_TENSORS; k++) words->output_shape[k] = p->output_shape[k].at;
  for (size_t k = 0; k < QN_KERNEL_MAX_TEMPLATES; k++) words->template_value[k] = p->template_value[k].at;
}

bool qn_mlx_words_serves(const qn_kernel_case *c)
{
  return !(c->kernel->named_shape[1] || c->kernel->named_strides[1] || c->call.shared_bytes);
}

qn_status qn_mlx_words_make(qn_mlx_words *p, const qn_kernel_case *c, const qn_kernel_case_order *order)
{
  writer w = {.c = c, .o = order};
  qn_text locals = {0};
  *p = (qn_mlx_words){.grid = {0}};
  add_locals(&w, p, &locals);
  add_triple(&w, &p->grid, c->body->grid);
  for (size_t k = 0; k < c->n_outputs; k++) add_shape(&w, &p->output_shape[k], c->array[c->n_inputs + k].is);
  add_statements(&w, p, &locals);
  if (w.helpers)
    qn_text_add(&p->functions, "\ndef ceildiv(a, b):\n    return -(-a // b)\n\n\ndef align(a, b):\n"
                               "    return ceildiv(a, b) * b\n\n\n");
  bool failed = locals.failed || p->functions.failed || p->parameters.failed || p->statements.failed ||
                p->grid.failed || p->group.failed;
  for (size_t k = 0; k < c->n_outputs; k++) failed = failed || p->output_shape[k].failed;
  for (size_t k = 0; k < c->body->n_templates; k++) failed = failed || p->template_value[k].failed;
  qn_text_free(&locals);
  point(p);
  return failed ? qn_fail(QN_NO_MEMORY, "kernel %s: no memory for its text", c->folder->name) : QN_OK;
}

void qn_mlx_words_free(qn_mlx_words *p)
{
  qn_text_free(&p->functions);
  qn_text_free(&p->parameters);
  qn_text_free(&p->statements);
  qn_text_free(&p->grid);
  qn_text_free(&p->group);
  for (size_t k = 0; k < QN_KERNEL_MAX_TENSORS; k++) qn_text_free(&p->output_shape[k]);
  for (size_t k = 0; k < QN_KERNEL_MAX_TEMPLATES; k++) qn_text_free(&p->template_value[k]);
}
