/* SPDX-License-Identifier: Apache-2.0 */
/* tune.h - tables of what was the fastest where: a text file an op, shipped (embedded) and of the user's own. An entry
 * says under which architecture, types and shapes a choice was measured, or published, and against what. What a choice
 * means is the op's business: a launch shape's name (launch_shape.h), a GEMM variant's. Text to entries and back is
 * tune_text.c, files and the search are tune.c. */
#ifndef QN_OP_TUNE_H
#define QN_OP_TUNE_H
#include "core/core.h"
#include "op/op.h"
#include "quern/arch.h"

enum {
  QN_TUNE_NAME = 96,         /* of a choice, with its NUL */
  QN_TUNE_TYPES = 96,        /* of the types */
  QN_TUNE_LINE = 640,        /* bytes of a line; longer ones are ignored */
  QN_TUNE_BYTES = 256 << 10, /* of a file; longer ones are ignored */
  QN_TUNE_ENTRIES = 4096,    /* of a file; so are those behind */
  QN_TUNE_PATH = 4096 + 256
};

typedef enum qn_tune_layout { QN_TUNE_DENSE, QN_TUNE_PITCHED, QN_TUNE_ANY_LAYOUT } qn_tune_layout;
typedef enum qn_tune_state { QN_TUNE_MEASURED, QN_TUNE_PUBLISHED } qn_tune_state;

typedef struct qn_tune_entry {
  char arch[16];                  /* "sm_90" */
  char types[QN_TUNE_TYPES];      /* "bf16/bf16/bf16" by role, "-" for one not given; "*": any */
  uint64_t rows_least, rows_most; /* UINT64_MAX: no end */
  uint64_t cols_least, cols_most;
  qn_tune_layout layout;
  /* Of products alone: the class of precision ("": any), k, and the columns of a norm's group; least 0: any. */
  char precision[12];
  uint64_t depth_least, depth_most, width_least, width_most;
  char choice[QN_TUNE_NAME]; /* "tiles-128x8x1" */
  char over[QN_TUNE_NAME];   /* what it was measured against; "": nothing */
  double ratio, low, high;   /* time of `over` over time of the choice, and its interval; 0: not known */
  int registers, shared;     /* of a thread; bytes of a block; -1: not known */
  int blocks;                /* at once on a multiprocessor; -1: not known */
  double copy;               /* rate over that of a copy of as many bytes in the same run; 0: not known */
  qn_tune_state state;
  char date[12], commit[48]; /* "2026-11-22"; "1a2b3c4d5e6f", "" unknown */
} qn_tune_entry;

typedef struct qn_tune_table {
  size_t n;
  qn_tune_entry *entry;
} qn_tune_table;

/* ---- tune_text.c ---- */
/* The table in a text of `bytes` bytes. A text that is none of ours, of another op or version, too long or with bytes
 * that are no text: QN_BAD_FILE. A line that is wrong is left out, with a warning in the log that has `where`, its
 * number and why; *dropped counts them. Release with qn_tune_free. */
qn_status qn_tune_parse(const char *op, const char *where, const char *text, size_t bytes, qn_tune_table *table,
                        size_t *dropped);
void qn_tune_free(qn_tune_table *table);
/* One line, without its end, into line; *why: a sentence where it is wrong. */
bool qn_tune_parse_line(const char *line, qn_tune_entry *entry, const char **why);
void qn_tune_write_head(qn_text *text, const char *op);
void qn_tune_write_line(qn_text *text, const qn_tune_entry *entry);

/* ---- tune.c ---- */
/* The types of a row as entries have them; false where they do not fit. */
void qn_tune_types(const qn_op *op, size_t row, char types[QN_TUNE_TYPES]);

typedef enum qn_tune_source { QN_TUNE_NONE, QN_TUNE_SHIPPED, QN_TUNE_USER } qn_tune_source;
/* What an entry is looked for by. */
typedef struct qn_tune_key {
  const char *types; /* as by qn_tune_types */
  uint64_t rows, cols;
  qn_tune_layout layout;
  const char *precision; /* NULL, and 0 below: it is no product */
  uint64_t depth, width;
} qn_tune_key;

/* The entry that counts for an op (by name) on an architecture. Of the types only the sizes must agree (f16 takes what
 * was measured with bf16). The user's go before shipped ones, in a file the first that fits.
 *
 * Which architecture's entries: its own, where any table has one of it; else those of the newest that the tables know
 * that is older and of the same family; else of the newest older one of all, measured entries only; else none, and the
 * op's rule holds. An entry that says that its choice was slower than what it was measured against is never given.
 * Takes a lock, and at the first call for an op reads its tables. */
qn_tune_source qn_tune_find(const char *op, const qn_arch *arch, const qn_tune_key *key, qn_tune_entry *entry);
/* From here on nothing is found, as where no table knows the architecture: for the tuner, while it looks for what rules
 * would take. Of the whole process. */
void qn_tune_ignore(bool all);
/* In words for qn_op_last_variant: "your tune table", "the shipped table, measured on an older architecture". */
const char *qn_tune_reason(qn_tune_source source, const qn_tune_entry *entry, const qn_arch *arch);
/* The k-th entry for these architectures' tables, the user's first; QN_TUNE_NONE past the end. */
qn_tune_source qn_tune_at(const char *op, size_t k, qn_tune_entry *entry);
/* Read the tables again at the next use: a file was written. */
void qn_tune_forget(void);
unsigned qn_tune_generation(void); /* grows with every qn_tune_forget */

/* Where the user's tables are. QN_UNSUPPORTED with a sentence where there is no such place. The folder is opened and
 * found to be ours alone, as the cache of kernels is (jit/directory.h): *directory -1 where it
 * does not exist and `make` is false. */
qn_status qn_tune_open(bool make, char path[QN_TUNE_PATH], int *directory);
/* Puts entries into the user's table of the op, in place of those with the same key; others stay. A table there that
 * could not be read is kept beside as OP.tune.old. */
qn_status qn_tune_keep(const char *op, const qn_tune_entry *entries, size_t n, char path[QN_TUNE_PATH]);

/* The table beside a kernel, <name>.tune in its folder, which is read anew each time and trusted as the kernel is.
 * *found: false where it has no entry that counts, or there is none. A file that is no table is QN_BAD_FILE. */
qn_status qn_tune_find_beside(const char *folder, const char *name, const qn_arch *arch, const qn_tune_key *key,
                              qn_tune_entry *entry, bool *found);
qn_status qn_tune_keep_beside(const char *folder, const char *name, const qn_tune_entry *entry);
#endif
