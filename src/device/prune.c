/* SPDX-License-Identifier: Apache-2.0 */
/* prune.c - leaves out of a unit's text the declarations of embedded sources that nothing names, so that a compiler
 * does not read two thousand lines of words for a body of one. No table lists dependencies: a declaration is
 * kept if a kept text contains its name as a word, whatever the word means there. All declarations of one name stay or
 * go together, so overloads and specialisations are chosen from as before, and a missing declaration can only cause a
 * compile error, never another result. declarations.c finds declarations and their names. */
#include "device/prune.h"
#include "device/lexer.h"
#include "device/declarations.h"
#include <string.h>

static const char blank[] = "\n\n\n\n";

/* Everything of that name is kept from now on, and looked through later. */
static void keep(void *user, uint64_t hash)
{
  qn_declarations *p = user;
  for (int32_t n = qn_declarations_head(p, hash); n >= 0; n = qn_declarations_name(p, n)->next) {
    const qn_declaration_name *name = qn_declarations_name(p, n);
    qn_declaration *piece = qn_declarations_at(p, name->piece);
    if (name->hash != hash || piece->kept) continue;
    piece->kept = true;
    piece->next = p->pending;
    p->pending = name->piece;
  }
}

static void look_through(qn_declarations *p)
{
  while (p->pending >= 0) {
    const qn_declaration *piece = qn_declarations_at(p, p->pending);
    p->pending = piece->next;
    qn_declaration_words(p, piece, keep, p);
  }
}

/* A few empty lines are shorter than what names the line. */
static void add_pieces(const qn_declarations *p, qn_text *pruned)
{
  const char *file = NULL;
  size_t line = 0;
  for (int32_t k = 0; k < p->n_pieces; k++) {
    const qn_declaration *piece = qn_declarations_at(p, k);
    if (!piece->kept) continue;
    if (piece->file && (piece->file != file || piece->line < line || piece->line > line + sizeof blank - 1))
      qn_text_add(pruned, "#line %zu \"%.*s\"\n", piece->line, (int)strcspn(piece->file, "\"\n"), piece->file);
    else if (piece->file)
      qn_text_add_bytes(pruned, blank, piece->line - line);
    qn_text_add_bytes(pruned, piece->at, piece->length);
    file = piece->file;
    line = piece->line + qn_lines(piece->at, piece->at + piece->length);
  }
}

qn_status qn_text_prune(const char *whole, qn_text *pruned)
{
  qn_declarations pieces;
  qn_declarations_make(whole, &pieces);
  if (pieces.pasting)
    qn_text_add_bytes(pruned, whole, strlen(whole));
  else if (!pieces.failed) {
    look_through(&pieces);
    add_pieces(&pieces, pruned);
  }
  const bool failed = pieces.failed || pruned->failed;
  qn_declarations_free(&pieces);
  return failed ? qn_fail(QN_NO_MEMORY, "no memory for a kernel's text") : QN_OK;
}
