/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_list.c - what kernels from a body there are: those that ship, and `quern list` over a kernel's folder. Also
 * the name of an op as a verb's argument, because a folder may stand in its place. */
#include "cli/kernel.h"
#include "cli/list.h"
#include "core/core.h"
#include "core/source.h"
#include "workbench/term.h"
#include "workbench/record_inner.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_SHIPPED = 64, MOST_NAME = 40, COLUMN = 21 };

/* ---- kernels that ship ---- */
size_t qn_shipped_names(const char *const **names)
{
  static char text[MOST_SHIPPED][MOST_NAME + 1];
  static const char *all[MOST_SHIPPED + 1];
  size_t n = 0;
  for (const qn_source *s = qn_shipped_kernels; s->name; s++) {
    const size_t length = strcspn(s->name, "/");
    if (length > MOST_NAME || n == MOST_SHIPPED) continue;
    if (n && strlen(text[n - 1]) == length && !strncmp(text[n - 1], s->name, length)) continue;
    memcpy(text[n], s->name, length);
    all[n] = text[n];
    n++;
  }
  all[n] = NULL;
  *names = all;
  return n;
}

static json_t *shipped(const char *name)
{
  char path[2 * MOST_NAME];
  json_error_t error;
  snprintf(path, sizeof path, "%s/kernel.json", name);
  for (const qn_source *s = qn_shipped_kernels; s->name; s++)
    if (!strcmp(s->name, path)) return json_loadb(s->text, s->bytes, 0, &error);
  return NULL;
}

static const char *text_of(const json_t *object, const char *member)
{
  const char *text = json_string_value(json_object_get(object, member));
  return text ? text : "";
}

json_t *qn_list_shipped(bool print)
{
  const char *const *names;
  const size_t n = qn_shipped_names(&names);
  json_t *all = json_array();
  for (size_t k = 0; k < n; k++) {
    json_t *root = shipped(names[k]);
    json_array_append_new(all, json_pack("{s:s, s:s}", "name", names[k], "doc", text_of(root, "doc")));
    if (print) {
      printf("  %-*s ", COLUMN - 3, names[k]);
      qn_term_wrap(stdout, COLUMN, text_of(root, "doc"));
    }
    json_decref(root);
  }
  return all;
}

/* ---- an op's name, or a folder ---- */
bool qn_is_kernel_folder(const char *path)
{
  struct stat is;
  qn_text file = {0};
  const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
  for (size_t k = 0; k < qn_op_count(); k++)
    if (!strcmp(qn_op_at(k)->name, path)) return false;
  if (!stat(path, &is) && S_ISREG(is.st_mode)) return !strcmp(last, "kernel.json");
  qn_text_add(&file, "%s/kernel.json", path);
  const bool there = !file.failed && !stat(file.at, &is);
  qn_text_free(&file);
  return there;
}

qn_status qn_verb_op(const char *name, const qn_op_info **op)
{
  enum { MOST = 128 };
  const char *known[MOST + 1], *const *ships;
  struct stat is;
  size_t n = 0;
  const size_t n_ships = qn_shipped_names(&ships);
  for (size_t k = 0; k < qn_op_count() && n < MOST; k++) {
    *op = qn_op_at(k);
    known[n++] = (*op)->name;
    if (!strcmp(name, (*op)->name)) return QN_OK;
  }
  *op = NULL;
  for (size_t k = 0; k < n_ships && n < MOST; k++) {
    known[n++] = ships[k];
    if (!strcmp(name, ships[k]))
      return qn_fail(QN_BAD_ARGUMENT,
                     "%s is a kernel that ships, not an op: `quern kernel new %s --from %s` makes a folder of it here",
                     name, name, name);
  }
  known[n] = NULL;
  if (!stat(name, &is))
    return qn_fail(QN_BAD_ARGUMENT, "%s is no op, and no kernel's folder: it has no file kernel.json", name);
  if (strchr(name, '/'))
    return qn_fail(QN_BAD_ARGUMENT, "%s: %s; `quern kernel new` makes a kernel's folder", name, strerror(errno));
  return qn_fail(QN_BAD_ARGUMENT, "there is no op and no kernel's folder \"%s\"%s (quern list)", name,
                 qn_suggest(name, known));
}

/* ---- quern list DIR ---- */
static void print_row(const char *name, const char *text)
{
  printf("    %-*s ", COLUMN - 5, name);
  qn_term_wrap(stdout, COLUMN, text);
}

/* "tensors" of kernel.json with their contracts, or "templates" with their values. */
static void print_members(const char *title, const qn_json *object)
{
  if (qn_json_count(object)) printf("\n  %s\n", title);
  for (const qn_json *value = qn_json_first(object); value; value = value->next) {
    qn_text text = {0};
    if (!qn_json_string(value)) qn_json_add(&text, value);
    print_row(value->key, text.at ? text.at : qn_json_string(value));
    qn_text_free(&text);
  }
}

static void print_sizes(const char *title, const qn_folder_size *size, size_t n)
{
  qn_text all = {0};
  for (size_t k = 0; k < n; k++) qn_text_add(&all, "%s%s", k ? "; " : "", size[k].name);
  printf("%s", n ? "\n" : "");
  if (n && !all.failed) {
    printf("  %-*s ", COLUMN - 3, title);
    qn_term_wrap(stdout, COLUMN, all.at);
  }
  qn_text_free(&all);
}

static void print_folder(const qn_folder *f)
{
  printf("%s%s%s - %s\n", qn_term_colour(stdout, QN_BOLD), f->name, qn_term_colour(stdout, QN_PLAIN), f->doc);
  printf("  a kernel from a body in %s/%s, %s\n", f->path, f->body.file,
         f->reference.source ? "checked against its reference" : "without a reference");
  print_members("inputs", qn_json_get(f->json.root, "inputs"));
  print_members("outputs", qn_json_get(f->json.root, "outputs"));
  print_members("templates", qn_json_get(f->json.root, "templates"));
  print_members("candidates of quern tune", qn_json_get(f->json.root, "tune"));
  print_sizes("sizes", f->size, f->n_sizes);
  print_sizes("workloads", f->workload, f->n_workloads);
}

int qn_action_list(const qn_kernel_order *o)
{
  qn_folder *folder = NULL;
  if (!o->folder) { /* `quern kernel list`, accepted for one more release */
    json_t *all = qn_list_shipped(!o->json);
    if (o->json)
      qn_json_print(stdout, all, JSON_INDENT(2));
    else
      json_decref(all);
    return QN_EXIT_OK;
  }
  if (qn_folder_read(o->folder, &folder) != QN_OK) return qn_complain_status(o->verb, QN_BAD_FILE);
  if (o->json) {
    qn_text text = {0};
    qn_json_add(&text, folder->json.root);
    json_t *all =
        json_pack("{s:s, s:[o]}", "version", qn_version(), "kernels", json_loads(text.at ? text.at : "", 0, NULL));
    qn_text_free(&text);
    qn_json_print(stdout, all, JSON_INDENT(2));
  } else {
    print_folder(folder);
  }
  qn_folder_free(&folder);
  return QN_EXIT_OK;
}
