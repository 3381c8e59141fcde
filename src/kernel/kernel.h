/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h - the inside of a kernel from its body: its text as tokens, what a launch makes special, and what is
 * generated from both. No file here knows how a device works: that is device/'s. */
#ifndef QN_KERNEL_KERNEL_H
#define QN_KERNEL_KERNEL_H
#include "core/core.h"
#include "device/backend.h"
#include "kernel/dialect/grid.h"
#include "quern/kernel.h"

/* ---- token.c: C++ text as whole tokens, with nothing understood ---- */
typedef enum qn_token_kind {
  QN_TOKEN_SPACE, /* blanks, newlines, comments */
  QN_TOKEN_WORD,
  QN_TOKEN_NUMBER,
  QN_TOKEN_TEXT,      /* string and character literals, raw strings */
  QN_TOKEN_DIRECTIVE, /* a preprocessor line, with its continuations, without the newline that ends it */
  QN_TOKEN_MARK       /* one character of punctuation, or :: */
} qn_token_kind;
typedef struct qn_token {
  qn_token_kind kind;
  uint32_t at, length; /* in the text */
} qn_token;
typedef struct qn_tokens {
  const char *text;
  qn_token *token;
  size_t n;
} qn_tokens;
qn_status qn_tokens_make(const char *text, qn_tokens *tokens); /* QN_BAD_ARGUMENT: a literal or comment without end */
void qn_tokens_free(qn_tokens *tokens);
bool qn_token_is(const qn_tokens *tokens, size_t k, const char *text);
bool qn_tokens_have(const qn_tokens *tokens, const char *word);  /* directives' words count too */
bool qn_tokens_index(const qn_tokens *tokens, const char *word); /* `word[` or `*word` is there, macros' too */
bool qn_is_identifier(const char *text);
/* Adds "\n    3 | the line" to a sentence; nothing where there is no such line. */
enum { QN_SHOWN_BYTES = 512 };
/* The failure in qn_last_error(), of a body or header, which begins "line 3: ", as the kernel's, with that line. */
qn_status qn_fail_in_text(const struct qn_kernel *kernel, int which, qn_status status);
void qn_show_line(const char *text, int line, char shown[QN_SHOWN_BYTES]);

/* ---- includes.c: QN_BAD_ARGUMENT, with the line, where the text may reach into another file by the preprocessor.
 * Plain includes are judged by qn_rewrite, which calls this. ---- */
qn_status qn_text_is_closed(const char *text);

/* ---- balance.c ---- */
/* No directive of body and header opens or closes brackets for other lines. */
bool qn_brackets_are_plain(const struct qn_kernel *kernel);
/* QN_COMPILE_ERROR: "FILE:3:7: error: this { is never closed". */
qn_status qn_brackets_check(const struct qn_kernel *kernel);

/* ---- rewrite.c: what macros cannot carry. The number of lines and each token's line stay. `beside`: text whose
 * structs' members are no swizzles either, NULL: none. QN_BAD_ARGUMENT: an include of something else than the dialect's
 * own headers. ---- */
typedef struct qn_rewriting {
  qn_dialect dialect;
  bool header;    /* the text begins outside of functions */
  bool has_short; /* Metal: there may be numbers of 16 bits */
} qn_rewriting;
qn_status qn_rewrite(const qn_rewriting *how, const qn_tokens *tokens, const qn_tokens *beside, qn_text *text);

/* ---- calls.c, for the processor: the text with its calls of functions in which threads meet marked, so that the words
 * in them are told apart by where they were called from ---- */
struct qn_kernel;
qn_status qn_calls_mark(const struct qn_kernel *kernel, int which, qn_text *text);

/* ---- the kernel ---- */
enum { QN_KERNEL_BODY, QN_KERNEL_HEADER, QN_KERNEL_TEXTS };
enum { QN_ATTRIBUTE_COUNT = 20, QN_CUDA_PLACES = 4 };

struct qn_kernel {
  qn_kernel_source source;                                  /* its texts lie behind the struct */
  uint64_t id;                                              /* of this kernel in this process */
  qn_tokens tokens[QN_KERNEL_TEXTS];                        /* of the source's texts, or of those in `renamed` */
  qn_text renamed[QN_KERNEL_TEXTS];                         /* qn_spaces_rename's; empty: nothing had to be renamed */
  uint32_t named_shape[2], named_strides[2], named_ndim[2]; /* bit k: of input (0) or output (1) k */
  uint32_t attributes;                                      /* bit k: the k-th attribute is named (Metal) */
  uint32_t named_places[QN_KERNEL_TEXTS];                   /* bit k: the k-th of CUDA's places is named in that text */
  uint32_t indexed; /* bit k: input k is used as a pointer, whatever its dimensions (CUDA) */
  bool needs_group; /* barriers, simd words, threadgroup memory: fibers on the processor */
  bool straight;    /* no loop, and nothing asks for the group: on a GPU a thread may take several positions */
  struct qn_special_entry *_Atomic entries; /* earlier launches, newest first */
};

/* The k-th tensor, inputs before outputs. */
static inline bool qn_is_input(const qn_kernel *kernel, size_t k) { return k < kernel->source.n_inputs; }
static inline const char *qn_source_tensor_name(const qn_kernel_source *s, size_t k)
{
  return k < s->n_inputs ? s->inputs[k] : s->outputs[k - s->n_inputs];
}

/* places.c: the words by which a body asks where it is. Metal's, with Metal's types; CUDA's: threadIdx ... */
typedef struct qn_place_word {
  const char *name, *type, *value;
  bool of_grid; /* the same whatever the groups are */
} qn_place_word;
extern const qn_place_word qn_attributes[QN_ATTRIBUTE_COUNT], qn_cuda_places[QN_CUDA_PLACES];

/* How a tensor reaches the body. */
typedef enum qn_form {
  QN_FORM_POINTER,   /* const device T *x */
  QN_FORM_REFERENCE, /* 0 dimensions, on the device: const constant T &x */
  QN_FORM_VALUE      /* 0 dimensions, in host memory: const constant T &x, of a member of the argument */
} qn_form;

/* The values compiled into a launch's code. Launches with equal values run the same code. */
typedef struct qn_special {
  qn_device_kind target; /* QN_CUDA or QN_EMULATOR */
  struct {
    uint8_t dtype, form, ndim;     /* ndim counts only where shape or strides are named */
  } tensor[QN_KERNEL_MAX_TENSORS]; /* inputs, then outputs */
  size_t n_templates;
  const qn_template *templates;
  uint8_t dims;       /* 1: grid and group are flat; 3 */
  uint8_t check;      /* memory accesses and branches are reported */
  uint8_t limit;      /* branches are */
  uint8_t in_place;   /* some output shares an input's memory: no restrict */
  uint8_t items;      /* CUDA: positions of the grid that a thread takes, one after the other; 1, 2, 4 or 8 */
  uint16_t bound;     /* CUDA: no group has more threads; 256, 512 or 1024, so that a large group finds registers, or
                       * the threads of a cluster's blocks */
  uint64_t folded[3]; /* CUDA dialect on CUDA with blocks over 65,535 along y or z: blocks, compiled in; else 0 */
} qn_special;

/* The argument: a qn_launch_grid, then members in the order of the signature, each aligned to 8. */
typedef enum qn_member_kind {
  QN_MEMBER_POINTER,
  QN_MEMBER_VALUE,
  QN_MEMBER_SHAPE,
  QN_MEMBER_STRIDES,
  QN_MEMBER_NDIM
} qn_member_kind;
typedef struct qn_argument_member {
  uint8_t kind, tensor; /* inputs, then outputs */
  uint16_t offset;
} qn_argument_member;
enum { QN_KERNEL_MAX_MEMBERS = 4 * QN_KERNEL_MAX_TENSORS };
typedef struct qn_argument_layout {
  size_t n, bytes;
  qn_argument_member member[QN_KERNEL_MAX_MEMBERS];
} qn_argument_layout;

/* ---- generate.c: the unit's text (includes of embedded words, templates, header, body, entry) and its argument's
 * layout. `entry` is the name of the function to load: "quern_" and the kernel's. ---- */
void qn_kernel_layout(const qn_kernel *kernel, const qn_special *special, qn_argument_layout *layout);
qn_status qn_kernel_generate(const qn_kernel *kernel, const qn_special *special, const qn_argument_layout *layout,
                             qn_text *text);
/* dialect.c: `#include`s of those words of the dialect that body and header need; all of them stand in namespace
 * quern_metal or quern_cuda (QN_WORDS), as do the kernel's argument and, in QN_WORDS::quern_body, header and body. */
void qn_words_include(const qn_kernel *kernel, const qn_special *special, qn_text *text);
bool qn_words_have_short(const qn_kernel *kernel, const qn_special *special); /* half or bfloat (Metal) */
bool qn_words_whole_positions(const qn_kernel *kernel); /* one is asked for more than its x, y or z: it is a vector */
bool qn_words_need_group(const qn_kernel *kernel);      /* barriers, simd words, threadgroup memory */
bool qn_words_meet(const char *word, size_t n, bool member); /* threads meet at such a call: a barrier, a simd word */
bool qn_words_loop(const qn_kernel *kernel);                 /* for, while, do, goto */
bool qn_words_straight(const qn_kernel *kernel);             /* short, and no loop */
bool qn_attributes_of_grid(const qn_kernel *kernel);         /* all that are named: the same whatever the groups are */

/* names.c: counts, names, contracts. Template values have names that nothing else has. Looked at where a text is made,
 * not in each launch. */
qn_status qn_source_check(const qn_kernel_source *source);
qn_status qn_templates_check(const qn_kernel *kernel, const qn_special *special);

/* ---- launch.c ---- */
void qn_launches_forget(qn_kernel *kernel);

/* ---- contract.c: "f32|f16 [n, h, w, 2]" ---- */
qn_status qn_contracts_check(const qn_kernel *kernel, const qn_kernel_call *call);
#endif
