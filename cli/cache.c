/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - `quern cache`: look at the store of compiled kernels, verify it, empty it. All through quern/cache.h; it
 * touches no file by itself. */
#include "cli/verb.h"
#include "core/core.h"
#include "workbench/human.h"
#include "workbench/term.h"
#include "workbench/record_inner.h"
#include <jansson.h>
#include <stdio.h>
#include <string.h>

typedef struct request {
  const char *action;
  bool invalid, json;
} order;

static const char *const actions[] = {"list", "verify", "clear", "path", "stat", NULL};

static QN_READER(read_action)
{
  qn_read_one(state, option, to, text);
  (void)qn_verb_option_word(state, "action", text, actions, " (actions: list, verify, clear, path, stat)");
}

static void check_words(const struct argp_state *state, void *input)
{
  order *o = input;
  if (!o->action) o->action = "list";
  if (o->invalid && strcmp(o->action, "clear")) argp_error(state, "--invalid belongs to clear, not to %s", o->action);
}

static const qn_verb_option options[] = {
    {"invalid", 0, NULL, "clear: only entries that do not verify", 0, QN_TO_FLAG(invalid)},
    {"json", 0, NULL, "Print JSON", 0, QN_TO_FLAG(json)},
    {0},
};

typedef struct sums {
  bool print, json_wanted;
  size_t n, invalid;
  int64_t bytes;
  json_t *entries;
} sums;

static void print_entry(const qn_cache_entry *entry)
{
  int room = qn_term_is(stdout) ? qn_term_width(stdout) - 29 : 1000;
  printf("%9s  %-16s  %s%.*s%s\n", qn_human_bytes(entry->bytes).text, qn_human_time(entry->used_unix_s).text,
         entry->valid ? "" : qn_term_colour(stdout, QN_RED), room < 20 ? 20 : room,
         entry->valid ? entry->summary : "damaged; will be dropped and rebuilt",
         entry->valid ? "" : qn_term_colour(stdout, QN_PLAIN));
}

static int visit(void *user, const qn_cache_entry *entry)
{
  sums *tally = user;
  if (!tally->n && tally->print) printf("     SIZE  LAST USE          WHAT\n");
  tally->n++;
  tally->bytes += entry->bytes;
  tally->invalid += !entry->valid;
  if (tally->print) print_entry(entry);
  if (tally->json_wanted)
    json_array_append_new(tally->entries, json_pack("{s:s, s:s, s:I, s:I, s:b}", "file", entry->file, "summary",
                                                    entry->summary, "bytes", (json_int_t)entry->bytes, "used_unix_s",
                                                    (json_int_t)entry->used_unix_s, "valid", entry->valid));
  return 0;
}

static void print_total(const order *o, const sums *tally, const char *directory)
{
  const char *limit = "";
  qn_option_get("cache_bytes", &limit);
  printf("%zu %s, %s of at most %s, in %s\n", tally->n, tally->n == 1 ? "entry" : "entries",
         qn_human_bytes(tally->bytes).text, limit, directory);
  if (tally->invalid)
    printf("%zu damaged: quern cache clear --invalid\n", tally->invalid);
  else if (!strcmp(o->action, "verify"))
    printf("all hold\n");
}

static int look(const order *o, const char *directory)
{
  sums tally = {.print = !o->json && !strcmp(o->action, "list"), .json_wanted = o->json};
  tally.entries = json_array();
  qn_status status = qn_cache_each(visit, &tally);
  if (status == QN_OK && o->json) {
    json_t *all = json_pack("{s:s, s:I, s:I, s:I, s:O}", "directory", directory, "n", (json_int_t)tally.n, "bytes",
                            (json_int_t)tally.bytes, "invalid", (json_int_t)tally.invalid, "entries", tally.entries);
    qn_json_print(stdout, all, JSON_INDENT(2));
  } else if (status == QN_OK) {
    print_total(o, &tally, directory);
  }
  json_decref(tally.entries);
  if (status != QN_OK) return qn_complain_status(&qn_verb_cache, status);
  return tally.invalid && !strcmp(o->action, "verify") ? QN_EXIT_FAILED : QN_EXIT_OK;
}

static int clear(const order *o)
{
  size_t removed = 0;
  qn_status status = qn_cache_clear(o->invalid, &removed);
  if (o->json)
    printf("{\"removed\": %zu}\n", removed);
  else if (status == QN_OK || removed)
    printf("%zu %s removed\n", removed, removed == 1 ? "file" : "files");
  return status == QN_OK ? QN_EXIT_OK : qn_complain_status(&qn_verb_cache, status);
}

static int run(int argc, char **argv)
{
  order o = {0};
  qn_verb_parse(&qn_verb_cache, argc, argv, &o);
  const char *directory;
  qn_status status = qn_cache_directory(&directory);
  if (status != QN_OK) return qn_complain_status(&qn_verb_cache, status);
  if (!strcmp(o.action, "clear")) return clear(&o);
  if (strcmp(o.action, "path")) return look(&o, directory);
  if (o.json) {
    qn_json_print(stdout, json_pack("{s:s}", "directory", directory), 0);
  } else {
    puts(directory);
  }
  return QN_EXIT_OK;
}

const qn_verb qn_verb_cache = {
    .name = "cache",
    .brief = "list, verify or empty the cache of compiled kernels",
    .run = run,
    .options = options,
    .argument = {QN_READ(read_action, action), .doc = "action"},
    .end = check_words,
    .args_doc = "[list|verify|clear|path|stat]",
    .doc = "List, verify or empty the cache of compiled kernels.\v"
           "  list    print every entry with size, last use and kernel (the default)\n"
           "  verify  read every entry; exit status 1 if one is damaged\n"
           "  clear   remove every entry; each is compiled again when needed\n"
           "  path    print the directory\n"
           "  stat    count the entries and their bytes\n\n"
           "QUERN_CACHE_DIR names the directory, QUERN_CACHE_BYTES bounds it, QUERN_CACHE=off disables it.",
};
