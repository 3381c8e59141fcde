/* SPDX-License-Identifier: Apache-2.0 */
/* declarations.h - a unit's text as declarations with names, for prune.c. */
#ifndef QN_DEVICE_DECLARATIONS_H
#define QN_DEVICE_DECLARATIONS_H
#include "core/core.h"

/* Whole lines. */
typedef struct qn_declaration {
  const char *at;
  size_t length, line;
  const char *file;       /* as #line has it, up to the quote; NULL: the unit's own text, with its own #line */
  int32_t next;           /* in the list of those to be looked through */
  int32_t forms, n_forms; /* of a macro: what it makes of its first argument, once it was read */
  bool kept;
  bool macro; /* a #define */
  bool call;  /* an invocation QN_SOMETHING(...) */
  bool read, sure;
} qn_declaration;

/* A name that a macro makes: something before the argument, known by its hash alone, and something behind it. */
typedef struct qn_declaration_form {
  uint64_t before;
  const char *behind;
  size_t length;
} qn_declaration_form;

/* Known by the hash alone: two names of one hash keep too much and do no other harm. */
typedef struct qn_declaration_name {
  uint64_t hash;
  int32_t piece, next; /* next of the same slot; -1: none */
} qn_declaration_name;

enum { QN_DECLARATION_SLOTS = 1024 };
typedef struct qn_declarations {
  qn_text pieces, names, forms; /* arrays */
  int32_t n_pieces, n_names, n_forms;
  int32_t pending; /* kept and to be looked through; -1: none */
  int32_t slots[QN_DECLARATION_SLOTS];
  bool pasting; /* the unit's own text makes names by ## */
  bool failed;  /* no memory */
} qn_declarations;

static inline qn_declaration *qn_declarations_at(const qn_declarations *p, int32_t k)
{
  return (qn_declaration *)(void *)p->pieces.at + k;
}
static inline qn_declaration_name *qn_declarations_name(const qn_declarations *p, int32_t k)
{
  return (qn_declaration_name *)(void *)p->names.at + k;
}
static inline int32_t qn_declarations_head(const qn_declarations *p, uint64_t hash)
{
  return p->slots[hash % QN_DECLARATION_SLOTS];
}

/* Pieces that must stay are kept and in the list `pending`. */
void qn_declarations_make(const char *whole, qn_declarations *pieces);
void qn_declarations_free(qn_declarations *pieces);

/* Calls found(user, hash) for every word of the piece, and for every name that an invocation in it makes. */
void qn_declaration_words(qn_declarations *pieces, const qn_declaration *piece,
                          void (*found)(void *user, uint64_t hash), void *user);
#endif
