/* SPDX-License-Identifier: Apache-2.0 */
/* completion.c - `quern completion bash`: prints a completion script made from the verbs' tables of options, so that it
 * cannot lag behind them. What a word may be is read from how argp shows it: "cpu|cuda[:N]|emulator" is one of three
 * words, OP, VERB and WORKLOAD (or NAME, after --workload) for the names there are, FILE, DIR or anything with a dot
 * for a file. */
#include "cli/verb.h"
#include "core/core.h"
#include "workbench/workload.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static QN_READER(read_shell)
{
  static const char *const shells[] = {"bash", NULL};
  bool *named = to;
  if (*named || strcmp(text, "bash"))
    argp_error(state, "there is a script for bash only, not for %s%s", text, qn_suggest(text, shells));
  *named = true;
}

static void check_named(const struct argp_state *state, void *named)
{
  if (!*(bool *)named) argp_error(state, "name the shell: bash");
}

/* ---- the words that may stand in one place ---- */
static void add_names(qn_text *words, const char *what)
{
  if (!strcasecmp(what, "VERB"))
    for (size_t k = 0; qn_verbs[k]; k++) qn_text_add(words, " %s", qn_verbs[k]->name);
  if (!strcasecmp(what, "OP"))
    for (size_t k = 0; k < qn_op_count(); k++) qn_text_add(words, " %s", qn_op_at(k)->name);
  if (!strcasecmp(what, "WORKLOAD"))
    for (size_t k = 0; qn_workload_names[k].name; k++) qn_text_add(words, " %s", qn_workload_names[k].name);
}

/* shown: "[OP]", "list|verify", "cuda[:N]", "FILE"; several, one after another, count all. *files is set where a file
 * may stand. */
static void add_words(qn_text *words, const char *shown, bool *files)
{
  while (*shown) {
    shown += strspn(shown, " |[]");
    size_t length = strcspn(shown, " |[]");
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)length, shown);
    if (strchr(word, '.') || strstr(word, "FILE") || !strcmp(word, "DIR"))
      *files = *files || strcmp(word, "...");
    else if (islower((unsigned char)word[0]))
      qn_text_add(words, " %s", word);
    else
      add_names(words, word);
    shown += length;
    if (*shown == '[' && length) shown += strcspn(shown, " |"); /* "cuda[:N]" is "cuda" */
  }
}

/* ---- one arm of the script's two `case`s ---- */
typedef struct arms {
  const char *verb;
  qn_text values, flags;
} arms;

static void add_option(void *user, const qn_verb_option *option)
{
  arms *a = user;
  if (option->name) qn_text_add(&a->flags, " --%s", option->name);
  if (option->letter && option->letter != '?') qn_text_add(&a->flags, " -%c", option->letter);
  if (!option->arg) return;
  qn_text words = {0};
  bool files = false;
  add_words(&words, option->arg, &files);
  if (option->name && !strcmp(option->arg, "NAME")) add_names(&words, option->name);
  if (option->name) qn_text_add(&a->values, "    %s:--%s", a->verb, option->name);
  if (option->name && option->letter) qn_text_add(&a->values, "|");
  if (option->letter) qn_text_add(&a->values, "%s%s:-%c", option->name ? "" : "    ", a->verb, option->letter);
  qn_text_add(&a->values, ") words='%s' files=%s ;;\n", words.at ? words.at : "", files ? "yes" : "no");
  qn_text_free(&words);
}

static void print_script(const char *values, const char *plain)
{
  printf("# Completion of quern for bash, made by `quern completion bash`.\n"
         "_quern()\n"
         "{\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb= words= flags= files=no k\n"
         "  for ((k = 1; k < COMP_CWORD; k++)); do\n"
         "    [[ ${COMP_WORDS[k]} == -* ]] || { verb=${COMP_WORDS[k]}; break; }\n"
         "  done\n"
         "  [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD-2]}  # --flag=value comes as three words\n"
         "  [[ $word == = ]] && before=${COMP_WORDS[COMP_CWORD-1]} word=\n"
         "  case $verb:$before in\n%s"
         "  *)\n"
         "    case $verb in\n%s"
         "    esac\n"
         "    [[ $word == -* ]] && words=$flags files=no\n"
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "  if [[ $files == yes ]]; then\n"
         "    compopt -o filenames 2>/dev/null\n"
         "    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$word\")\n"
         "  fi\n"
         "}\n"
         "complete -F _quern quern\n",
         values, plain);
}

static int run(int argc, char **argv)
{
  bool named = false;
  qn_verb_parse_only(&qn_verb_completion, argc, argv, &named);
  qn_text values = {0}, plain = {0}, verbs = {0};
  add_names(&verbs, "VERB");
  qn_text_add(&plain, "    '') words='%s' flags='--help --usage --version' ;;\n", verbs.at ? verbs.at : "");
  for (size_t k = 0; qn_verbs[k]; k++) {
    arms a = {.verb = qn_verbs[k]->name};
    qn_text words = {0};
    bool files = false;
    qn_verb_each_option(qn_verbs[k], add_option, &a);
    add_words(&words, qn_verbs[k]->args_doc ? qn_verbs[k]->args_doc : "", &files);
    if (a.values.at) qn_text_add(&values, "%s", a.values.at);
    qn_text_add(&plain, "    %s) words='%s' flags='%s' files=%s ;;\n", a.verb, words.at ? words.at : "",
                a.flags.at ? a.flags.at : "", files ? "yes" : "no");
    values.failed |= a.values.failed || words.failed || a.flags.failed;
    qn_text_free(&words);
    qn_text_free(&a.values);
    qn_text_free(&a.flags);
  }
  bool failed = values.failed || plain.failed || verbs.failed;
  if (!failed) print_script(values.at ? values.at : "", plain.at);
  qn_text_free(&values);
  qn_text_free(&plain);
  qn_text_free(&verbs);
  return failed ? qn_complain(&qn_verb_completion, QN_EXIT_FAILED, "out of memory") : QN_EXIT_OK;
}

const qn_verb qn_verb_completion = {
    .name = "completion",
    .brief = "print a completion script for the shell",
    .run = run,
    .argument = {.read = read_shell},
    .end = check_named,
    .args_doc = "bash",
    .doc = "Print a completion script for the shell. For this session: source <(quern completion bash)",
};
