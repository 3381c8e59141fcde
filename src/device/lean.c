/* SPDX-License-Identifier: Apache-2.0 */
/* lean.c - leaves out of a unit's text the declarations of embedded sources that nothing names, so that a compiler does
 * not read two thousand lines of words for a body of one. There is no table of what needs what: a declaration is kept
 * if a word of what is kept is its name, whatever the word means there. All declarations of one name stay or go
 * together, so overloads and specialisations are chosen from as before, and what is missing can only be an error of the
 * compiler's, never another result. What a declaration is and what its names are is pieces.c's. */
#include "device/lean.h"
#include "device/lexer.h"
#include "device/pieces.h"
#include <string.h>

static const char blank[] = "\n\n\n\n";

/* Everything of that name is kept from now on, and looked through later. */
static void keep(void *user, uint64_t hash)
{
  qn_pieces *p = user;
  for (int32_t n = qn_pieces_head(p, hash); n >= 0; n = qn_pieces_name(p, n)->next) {
    const qn_piece_name *name = qn_pieces_name(p, n);
    qn_source_piece *piece = qn_pieces_at(p, name->piece);
    if (name->hash != hash || piece->kept) continue;
    piece->kept = true;
    piece->next = p->pending;
    p->pending = name->piece;
  }
}

static void look_through(qn_pieces *p)
{
  while (p->pending >= 0) {
    const qn_source_piece *piece = qn_pieces_at(p, p->pending);
    p->pending = piece->next;
    qn_piece_words(p, piece, keep, p);
  }
}

/* A few empty lines are shorter than what names the line. */
static void add_pieces(const qn_pieces *p, qn_text *lean)
{
  const char *file = NULL;
  size_t line = 0;
  for (int32_t k = 0; k < p->n_pieces; k++) {
    const qn_source_piece *piece = qn_pieces_at(p, k);
    if (!piece->kept) continue;
    if (piece->file && (piece->file != file || piece->line < line || piece->line > line + sizeof blank - 1))
      qn_text_add(lean, "#line %zu \"%.*s\"\n", piece->line, (int)strcspn(piece->file, "\"\n"), piece->file);
    else if (piece->file)
      qn_text_add_bytes(lean, blank, piece->line - line);
    qn_text_add_bytes(lean, piece->at, piece->length);
    file = piece->file;
    line = piece->line + qn_lines(piece->at, piece->at + piece->length);
  }
}

qn_status qn_text_lean(const char *whole, qn_text *lean)
{
  qn_pieces pieces;
  qn_pieces_make(whole, &pieces);
  if (pieces.pasting)
    qn_text_add_bytes(lean, whole, strlen(whole));
  else if (!pieces.failed) {
    look_through(&pieces);
    add_pieces(&pieces, lean);
  }
  const bool failed = pieces.failed || lean->failed;
  qn_pieces_free(&pieces);
  return failed ? qn_fail(QN_NO_MEMORY, "no memory for a kernel's text") : QN_OK;
}
