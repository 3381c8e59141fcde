/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_tuned.c - see kernel_tuned.h. */
#include "workbench/kernel_tuned.h"
#include "core/core.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- names ---- */

void qn_tuned_name(const qn_tuned *t, bool group, char name[QN_TUNE_NAME])
{
  size_t used = 0;
  *name = 0;
  if (group) used = (size_t)snprintf(name, QN_TUNE_NAME, "%ux%ux%u", t->group[0], t->group[1], t->group[2]);
  for (size_t k = 0; k < t->n && used < QN_TUNE_NAME; k++)
    used += (size_t)snprintf(name + used, QN_TUNE_NAME - used, "%s%s=%lld", used ? "+" : "", t->value[k].name,
                             (long long)t->value[k].value);
}

/* "128x1x1" */
static bool read_group(const char *word, uint32_t group[3])
{
  for (int d = 0; d < 3; d++) {
    char *end;
    const unsigned long value = *word >= '0' && *word <= '9' ? strtoul(word, &end, 10) : QN_KERNEL_MAX_GROUP + 1;
    if (!value || value > QN_KERNEL_MAX_GROUP || *end != (d < 2 ? 'x' : 0)) return false;
    group[d] = (uint32_t)value;
    word = end + 1;
  }
  return true;
}

/* "TILE=4" */
static bool read_value(const qn_folder *folder, const char *word, qn_tuned *t)
{
  char *end = NULL;
  const char *equals = strchr(word, '=');
  for (size_t k = 0; equals && k < folder->body.n_templates; k++) {
    const char *name = folder->body.templates[k].name;
    if (strlen(name) != (size_t)(equals - word) || strncmp(name, word, strlen(name)) != 0) continue;
    t->value[t->n++] = (qn_name){name, strtoll(equals + 1, &end, 10)};
    return end != equals + 1 && !*end;
  }
  return false;
}

qn_status qn_tuned_from_name(const qn_folder *folder, const char *name, qn_tuned *t)
{
  char copy[QN_TUNE_NAME], *at = copy;
  *t = (qn_tuned){.n = 0};
  snprintf(copy, sizeof copy, "%s", name);
  for (char *word; (word = strsep(&at, "+"));)
    if (t->n == QN_KERNEL_MAX_TEMPLATES || (!read_group(word, t->group) && !read_value(folder, word, t)))
      return qn_fail(QN_BAD_ARGUMENT,
                     "kernel %s has no variant \"%s\": \"%s\" is neither a threadgroup, as 128x1x1 is, nor "
                     "TEMPLATE=NUMBER",
                     folder->name, name, word);
  return QN_OK;
}

/* ---- tables ---- */

/* The variant that tuned.json has for a device by its name: {"devices": {"NVIDIA H200": {"threadgroup": [128, 1, 1],
 * "templates": {"TILE": 4}, ...}}}. "" where there is none. */
static qn_status read_former(const qn_folder *folder, qn_device device, char name[QN_TUNE_NAME])
{
  qn_device_info info = {.size = sizeof info};
  qn_text path = {0};
  json_error_t error;
  qn_tuned t = {.n = 0};
  const char *template;
  json_t *value;
  *name = 0;
  qn_text_add(&path, "%s/tuned.json", folder->path);
  json_t *root = path.failed || access(path.at, F_OK) ? NULL : json_load_file(path.at, 0, &error);
  const json_t *says = json_object_get(root, "schema");
  const bool known = says && !strcmp(json_string_value(says) ? json_string_value(says) : "", "quern tuned 1");
  const bool wrong = !path.failed && !access(path.at, F_OK) && !known;
  qn_status status =
      wrong ? qn_fail(QN_BAD_FILE, "%s: `quern tune` did not write it; remove it, or pass --untuned", path.at)
            : qn_device_query(device, &info);
  const json_t *entry = json_object_get(json_object_get(root, "devices"), info.name);
  const json_t *group = json_object_get(entry, "threadgroup");
  for (size_t d = 0; d < 3; d++) t.group[d] = (uint32_t)json_integer_value(json_array_get(group, d));
  json_object_foreach(json_object_get(entry, "templates"), template, value)
  {
    if (t.n < QN_KERNEL_MAX_TEMPLATES) t.value[t.n++] = (qn_name){template, json_integer_value(value)};
  }
  if (status == QN_OK && entry) qn_tuned_name(&t, group != NULL, name);
  json_decref(root);
  qn_text_free(&path);
  return status;
}

qn_status qn_tuned_apply(const qn_folder *folder, qn_kernel_case_order *order, char *text, size_t bytes)
{
  char name[QN_TUNE_NAME] = "";
  qn_tuned t;
  qn_tune_entry entry;
  qn_arch arch = {.size = sizeof arch};
  bool found = false;
  const qn_tune_key key = {.types = "*", .rows = 1, .cols = 1};
  *text = 0;
  qn_try(qn_tune_arch(order->device, &arch));
  qn_try(qn_tune_find_beside(folder->path, folder->name, &arch, &key, &entry, &found));
  if (found)
    memcpy(name, entry.choice, sizeof name);
  else
    qn_try(read_former(folder, order->device, name));
  if (!*name) return QN_OK;
  qn_try(qn_tuned_from_name(folder, name, &t));
  memcpy(order->tuned, t.value, sizeof t.value);
  order->n_tuned = t.n;
  if (!order->group[0]) memcpy(order->group, t.group, sizeof t.group);
  snprintf(text, bytes, "%s", name);
  return QN_OK;
}
