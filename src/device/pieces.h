/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.h - a unit's text as declarations with names, for lean.c. */
#ifndef QN_DEVICE_PIECES_H
#define QN_DEVICE_PIECES_H
#include "core/core.h"

/* Whole lines. */
typedef struct qn_source_piece {
  const char *at;
  size_t length, line;
  const char *file;       /* as #line has it, up to the quote; NULL: the unit's own text, with its own #line */
  int32_t next;           /* in the list of those to be looked through */
  int32_t forms, n_forms; /* of a macro: what it makes of its first argument, once it was read */
  bool kept;
  bool macro; /* a #define */
  bool call;  /* an invocation QN_SOMETHING(...) */
  bool read, sure;
} qn_source_piece;

/* A name that a macro makes: something before the argument, known by its hash alone, and something behind it. */
typedef struct qn_piece_form {
  uint64_t before;
  const char *behind;
  size_t length;
} qn_piece_form;

/* Known by the hash alone: two names of one hash keep too much and do no other harm. */
typedef struct qn_piece_name {
  uint64_t hash;
  int32_t piece, next; /* next of the same slot; -1: none */
} qn_piece_name;

enum { QN_PIECE_SLOTS = 1024 };
typedef struct qn_pieces {
  qn_text pieces, names, forms; /* arrays */
  int32_t n_pieces, n_names, n_forms;
  int32_t pending; /* kept and to be looked through; -1: none */
  int32_t slots[QN_PIECE_SLOTS];
  bool pasting; /* the unit's own text makes names by ## */
  bool failed;  /* no memory */
} qn_pieces;

static inline qn_source_piece *qn_pieces_at(const qn_pieces *p, int32_t k)
{
  return (qn_source_piece *)(void *)p->pieces.at + k;
}
static inline qn_piece_name *qn_pieces_name(const qn_pieces *p, int32_t k)
{
  return (qn_piece_name *)(void *)p->names.at + k;
}
static inline int32_t qn_pieces_head(const qn_pieces *p, uint64_t hash) { return p->slots[hash % QN_PIECE_SLOTS]; }

/* Pieces that must stay are kept and in the list `pending`. */
void qn_pieces_make(const char *whole, qn_pieces *pieces);
void qn_pieces_free(qn_pieces *pieces);

/* Calls found(user, hash) for every word of the piece, and for every name that an invocation in it makes. */
void qn_piece_words(qn_pieces *pieces, const qn_source_piece *piece, void (*found)(void *user, uint64_t hash),
                    void *user);
#endif
