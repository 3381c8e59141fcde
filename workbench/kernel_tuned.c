/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_tuned.c - see kernel_tuned.h: {"schema": "quern tuned 1", "devices": {"NVIDIA H200": {"threadgroup": [128, 1,
 * 1], "templates": {"TILE": 4}, ...}}}. Written beside and renamed, so that a reader never sees half of it. */
#include "workbench/kernel_tuned.h"
#include "core/core.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char schema[] = "quern tuned 1";

static qn_status path_of(const qn_folder *folder, const char *name, char **path)
{
  qn_text text = {0};
  qn_text_add(&text, "%s/%s", folder->path, name);
  *path = text.at;
  return text.failed ? qn_fail(QN_NO_MEMORY, "a path in %s", folder->path) : QN_OK;
}

/* NULL with QN_OK: there is none. */
static qn_status load(const char *path, json_t **root)
{
  json_error_t error;
  *root = NULL;
  if (access(path, F_OK)) return QN_OK;
  *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (!*root) return qn_fail(QN_BAD_FILE, "%s:%d:%d: %s", path, error.line, error.column, error.text);
  const char *says = json_string_value(json_object_get(*root, "schema"));
  if (says && !strcmp(says, schema) && json_is_object(json_object_get(*root, "devices"))) return QN_OK;
  json_decref(*root);
  *root = NULL;
  return qn_fail(QN_BAD_FILE, "%s: it is not what `quern tune` writes; remove it, or pass --untuned", path);
}

static qn_status take_entry(const qn_folder *folder, const char *path, const json_t *entry, qn_tuned *t)
{
  const char *name;
  json_t *value;
  const json_t *group = json_object_get(entry, "threadgroup");
  for (size_t d = 0; d < 3 && json_array_size(group) == 3; d++) {
    json_int_t x = json_integer_value(json_array_get(group, d));
    if (x < 1 || x > QN_KERNEL_MAX_GROUP)
      return qn_fail(QN_BAD_FILE, "%s: threadgroup holds %lld, it must be from 1 to %d", path, (long long)x,
                     QN_KERNEL_MAX_GROUP);
    t->group[d] = (uint32_t)x;
  }
  json_object_foreach(json_object_get(entry, "templates"), name, value)
  {
    size_t k = 0;
    while (k < folder->body.n_templates && strcmp(folder->body.templates[k].name, name)) k++;
    if (k == folder->body.n_templates || !json_is_integer(value) || t->n == QN_KERNEL_MAX_TEMPLATES)
      return qn_fail(QN_BAD_FILE, "%s: the kernel has no template %s that is a number: tune again or remove the file",
                     path, name);
    t->value[t->n++] = (qn_name){folder->body.templates[k].name, json_integer_value(value)};
  }
  return QN_OK;
}

void qn_tuned_text(const qn_tuned *t, char *text, size_t bytes)
{
  size_t used = 0;
  *text = 0;
  if (t->group[0]) {
    snprintf(text, bytes, "threadgroup %u x %u x %u", t->group[0], t->group[1], t->group[2]);
    used = strlen(text);
  }
  for (size_t k = 0; k < t->n && used < bytes; k++) {
    snprintf(text + used, bytes - used, "%s%s=%lld", used ? ", " : "", t->value[k].name, (long long)t->value[k].value);
    used = strlen(text);
  }
}

qn_status qn_tuned_apply(const qn_folder *folder, qn_kernel_case_order *order, char *text, size_t bytes)
{
  qn_device_info info = {.size = sizeof info};
  qn_tuned t = {.n = 0};
  char *path;
  json_t *root = NULL;
  *text = 0;
  qn_try(path_of(folder, "tuned.json", &path));
  qn_status status = load(path, &root);
  if (status == QN_OK && root) status = qn_device_query(order->device, &info);
  const json_t *entry = json_object_get(json_object_get(root, "devices"), info.name);
  if (status == QN_OK && entry) status = take_entry(folder, path, entry, &t);
  if (status == QN_OK && entry) {
    memcpy(order->tuned, t.value, sizeof t.value);
    order->n_tuned = t.n;
    if (!order->group[0]) memcpy(order->group, t.group, sizeof t.group);
    qn_tuned_text(&t, text, bytes);
  }
  json_decref(root);
  qn_release(path);
  return status;
}

static json_t *entry_of(const qn_tuned *t)
{
  json_t *templates = json_object();
  for (size_t k = 0; k < t->n; k++) json_object_set_new(templates, t->value[k].name, json_integer(t->value[k].value));
  json_t *entry = json_pack("{s:o, s:s, s:s, s:f, s:f}", "templates", templates, "date", t->date, "workload",
                            t->workload, "before_ns", t->before_ns, "after_ns", t->after_ns);
  if (t->group[0])
    json_object_set_new(entry, "threadgroup",
                        json_pack("[i, i, i]", (int)t->group[0], (int)t->group[1], (int)t->group[2]));
  return entry;
}

static qn_status replace(const char *path, const char *beside, const json_t *root)
{
  if (json_dump_file(root, beside, JSON_INDENT(2)) || rename(beside, path)) {
    int why = errno;
    unlink(beside);
    return qn_fail(QN_IO_ERROR, "%s could not be written: %s", path, strerror(why));
  }
  return QN_OK;
}

qn_status qn_tuned_write(const qn_folder *folder, const qn_tuned *t)
{
  char *path, *beside = NULL;
  json_t *root = NULL;
  qn_try(path_of(folder, "tuned.json", &path));
  qn_status status = path_of(folder, ".tuned.json", &beside);
  if (status == QN_OK) status = load(path, &root);
  if (status == QN_OK && !root) root = json_pack("{s:s, s:{}}", "schema", schema, "devices");
  if (status == QN_OK) {
    json_object_set_new(json_object_get(root, "devices"), t->device, entry_of(t));
    status = replace(path, beside, root);
  }
  json_decref(root);
  qn_release(path);
  qn_release(beside);
  return status;
}
