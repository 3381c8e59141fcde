/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_new.c - `quern kernel new`: folders to begin from, embedded in the command. */
#include "cli/kernel.h"
#include "core/core.h"
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include <unistd.h>

extern const qn_source qn_new_sources[]; /* "<dialect>/kernel.json": @NAME@ to be replaced */
enum { MOST_NAME = 40 };

/* ---- texts ---- */
static void add_replaced(qn_text *to, const char *text, size_t bytes, const char *what, const char *with)
{
  for (const char *end = text + bytes, *at = text; at < end;) {
    const char *next = *what ? memmem(at, (size_t)(end - at), what, strlen(what)) : NULL;
    qn_text_add_bytes(to, at, (size_t)((next ? next : end) - at));
    if (next) qn_text_add(to, "%s", with);
    at = next ? next + strlen(what) : end;
  }
}

static qn_status write_file(const char *folder, const char *name, const qn_text *text)
{
  qn_text path = {0};
  qn_text_add(&path, "%s/%s", folder, name);
  FILE *stream = path.failed ? NULL : fopen(path.at, "wbx");
  bool written = stream && (!text->length || fwrite(text->at, 1, text->length, stream) == text->length);
  int why = written ? 0 : errno;
  if (stream && fclose(stream) && written) written = false, why = errno;
  qn_status status =
      written ? QN_OK : qn_fail(QN_IO_ERROR, "%s/%s could not be written: %s", folder, name, strerror(why));
  qn_text_free(&path);
  return status;
}

/* One file of the new folder: its name and its text with `what` replaced. */
static qn_status place(const char *folder, const char *file, const char *text, size_t bytes, const char *what,
                       const char *with)
{
  qn_text name = {0}, all = {0};
  add_replaced(&name, file, strlen(file), "@NAME@", with);
  add_replaced(&all, text, bytes, what, with);
  qn_status status =
      name.failed || all.failed ? qn_fail(QN_NO_MEMORY, "%s", folder) : write_file(folder, name.at, &all);
  qn_text_free(&name);
  qn_text_free(&all);
  return status;
}

/* kernel.json of a copied kernel: its name is the new one's, the files stay. */
static qn_status place_renamed(const char *folder, const char *text, size_t bytes, const char *name)
{
  json_error_t error;
  json_t *root = json_loadb(text, bytes, 0, &error);
  const char *old = json_string_value(json_object_get(root, "name"));
  char was[96], now[96];
  snprintf(was, sizeof was, "\"name\": \"%s\"", old ? old : "");
  snprintf(now, sizeof now, "\"name\": \"%s\"", name);
  qn_text all = {0};
  bool as_written = old && memmem(text, bytes, was, strlen(was)); /* else by the parser, which loses the layout */
  if (as_written) {
    add_replaced(&all, text, bytes, was, now);
  } else if (root) {
    json_object_set_new(root, "name", json_string(name));
    char *dumped = json_dumps(root, JSON_INDENT(2));
    qn_text_add(&all, "%s\n", dumped ? dumped : "");
    free(dumped);
  }
  if (root && !json_object_get(root, "source")) all.failed = true; /* its file would be looked for by the new name */
  qn_status status = root && !all.failed ? write_file(folder, "kernel.json", &all)
                                         : qn_fail(QN_BAD_FILE, "the kernel.json to copy cannot be renamed");
  json_decref(root);
  qn_text_free(&all);
  return status;
}

/* ---- from what is embedded, or from another folder ---- */
static qn_status from_sources(const qn_source *sources, const char *prefix, const char *folder, const char *what,
                              const char *name)
{
  size_t length = strlen(prefix);
  for (const qn_source *s = sources; s->name; s++) {
    if (strncmp(s->name, prefix, length) || s->name[length] != '/') continue;
    const char *file = s->name + length + 1;
    if (!strcmp(file, "kernel.json") && !*what)
      qn_try(place_renamed(folder, s->text, s->bytes, name));
    else if (!strchr(file, '/'))
      qn_try(place(folder, file, s->text, s->bytes, what, name));
  }
  return QN_OK;
}

static qn_status read_whole(const char *folder, const char *file, qn_text *text)
{
  qn_text path = {0};
  char piece[4096];
  qn_text_add(&path, "%s/%s", folder, file);
  FILE *stream = path.failed ? NULL : fopen(path.at, "rb");
  for (size_t n; stream && (n = fread(piece, 1, sizeof piece, stream)) > 0;) qn_text_add_bytes(text, piece, n);
  bool read = stream && !ferror(stream) && !text->failed;
  if (stream) fclose(stream);
  qn_text_free(&path);
  return read ? QN_OK : qn_fail(QN_IO_ERROR, "%s/%s could not be read: %s", folder, file, strerror(errno));
}

static qn_status from_folder(const char *from, const char *folder, const char *name)
{
  DIR *directory = opendir(from);
  if (!directory) return qn_fail(QN_BAD_FILE, "%s: %s", from, strerror(errno));
  qn_status status = QN_OK;
  for (struct dirent *entry; status == QN_OK && (entry = readdir(directory));) {
    if (entry->d_name[0] == '.' || entry->d_type == DT_DIR || !strcmp(entry->d_name, "tuned.json") ||
        strstr(entry->d_name, ".tune"))
      continue;
    qn_text text = {0};
    status = read_whole(from, entry->d_name, &text);
    if (status == QN_OK && !strcmp(entry->d_name, "kernel.json"))
      status = place_renamed(folder, text.at ? text.at : "", text.length, name);
    else if (status == QN_OK)
      status = write_file(folder, entry->d_name, &text);
    qn_text_free(&text);
  }
  closedir(directory);
  return status;
}

static qn_status check_from(const char *from, bool *shipped)
{
  const char *const *names;
  struct stat is;
  const size_t n = qn_shipped_names(&names);
  *shipped = false;
  for (size_t k = 0; k < n; k++) *shipped = *shipped || !strcmp(names[k], from);
  if (*shipped) return QN_OK;
  qn_text path = {0};
  qn_text_add(&path, "%s/kernel.json", from);
  bool there = !path.failed && !stat(path.at, &is);
  qn_text_free(&path);
  return there ? QN_OK
               : qn_fail(QN_BAD_ARGUMENT, "there is no kernel %s that ships%s, and no folder with a kernel.json", from,
                         qn_suggest(from, names));
}

/* ---- new ---- */
static bool is_identifier(const char *text)
{
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
  return *text && (*text < '0' || *text > '9') && strspn(text, letters) == strlen(text);
}

/* What a failure left of the new folder, so that the same command can be given again. */
static void remove_made(const char *folder)
{
  DIR *directory = opendir(folder);
  if (!directory) return;
  for (struct dirent *entry; (entry = readdir(directory));) unlinkat(dirfd(directory), entry->d_name, 0);
  closedir(directory);
  rmdir(folder);
}

static qn_status make(const qn_kernel_order *o, const char *folder, const char *name)
{
  bool shipped = false;
  if (o->from) qn_try(check_from(o->from, &shipped));
  if (mkdir(folder, 0777))
    return qn_fail(errno == EEXIST ? QN_BAD_ARGUMENT : QN_IO_ERROR, "%s cannot be made: %s", folder, strerror(errno));
  const char *dialect = o->dialect ? o->dialect : "metal";
  const qn_status status = o->from && !shipped ? from_folder(o->from, folder, name)
                           : shipped           ? from_sources(qn_shipped_kernels, o->from, folder, "", name)
                                               : from_sources(qn_new_sources, dialect, folder, "@NAME@", name);
  if (status != QN_OK) remove_made(folder);
  return status;
}

int qn_action_new(const qn_kernel_order *o)
{
  qn_text folder = {0};
  size_t length = strlen(o->folder);
  while (length > 1 && o->folder[length - 1] == '/') length--;
  qn_text_add_bytes(&folder, o->folder, length);
  if (folder.failed) return qn_complain(o->verb, QN_EXIT_FAILED, "out of memory");
  const char *slash = strrchr(folder.at, '/'), *name = slash ? slash + 1 : folder.at;
  int result = QN_EXIT_OK;
  qn_status status;
  if (!is_identifier(name) || strlen(name) > MOST_NAME)
    result = qn_complain(o->verb, QN_EXIT_USAGE,
                         "\"%s\" is no kernel's name: letters, digits and _, at most %d, not a digit first", name,
                         MOST_NAME);
  else if (o->from && o->dialect)
    result = qn_complain(o->verb, QN_EXIT_USAGE, "--from has its own dialect; --dialect belongs to a new kernel");
  else if ((status = make(o, folder.at, name)) != QN_OK)
    result = qn_complain_status(o->verb, status);
  else
    printf("%s is there. Next: quern check %s%s\n", folder.at, qn_is_kernel_folder(folder.at) ? "" : "./", folder.at);
  qn_text_free(&folder);
  return result;
}
