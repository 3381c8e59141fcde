/* SPDX-License-Identifier: Apache-2.0 */
/* body.h - a kernel of the plan, and the body that is generated for it. */
#ifndef QN_GRAPH_BODY_H
#define QN_GRAPH_BODY_H
#include "graph/graph.h"
#include "graph/index.h"

enum { QN_FUSED_ROOTS = 24, QN_FUSED_INPUTS = 28, QN_FUSED_REGISTERS = 400 };

/* Values that one kernel computes; all else that they are made of is computed where it is needed, or memory. */
typedef struct qn_fused {
  int n, root[QN_FUSED_ROOTS]; /* each behind those that it reads */
  bool stored[QN_FUSED_ROOTS];
  int rows; /* a reduction or scan of them, whose argument's kept and reduced places are the domain; -1: none */
  int era;
} qn_fused;

typedef enum qn_schedule {
  QN_SCHEDULE_FLAT,    /* elements in a row; a thread has one access, on a processor a piece of a row along x */
  QN_SCHEDULE_THREAD,  /* a thread a row */
  QN_SCHEDULE_SIMD,    /* a simdgroup a row, or some of its lanes */
  QN_SCHEDULE_GROUP,   /* a threadgroup a row */
  QN_SCHEDULE_COLUMNS, /* 32 rows side by side a threadgroup, its simdgroups along them; on a processor `width` rows a
                        * thread, its lanes across them */
  QN_SCHEDULE_COUNT
} qn_schedule;

typedef struct qn_body {
  qn_text source, header;
  int n_inputs, input[QN_FUSED_INPUTS]; /* values; the body names them i0, i1 ..., and what is stored o0, o1 ... */
  uint64_t strided;                     /* inputs whose strides are compiled in */
  uint64_t grid[3];
  uint32_t group[3];
  int64_t bytes, operations;
  const char *what, *why; /* of a node's own kernel: for its name, and for a reader of the plan */
  uint32_t cluster;       /* blocks; 0: none */
  uint32_t shared_bytes;  /* beside its own */
  int n_scratch;          /* behind the node's results, as outputs that nobody reads */
  struct {
    qn_dtype dtype;
    int64_t n;
    bool zeroed;
  } scratch[2];
  qn_schedule schedule;
  int width;         /* elements that a thread reads and writes by one access */
  bool by_lines;     /* neighbouring threads have pieces of lines that lie otherwise in what is read */
  const char *unfit; /* NULL; else why there is no such kernel, and nothing else counts */
} qn_body;

/* The value that memory holds, or that another kernel computes: root[v] says which values are some kernel's. */
qn_status qn_body_write(const qn_graph *graph, const bool *is_root, const qn_fused *fused, qn_body *body);
void qn_body_free(qn_body *body);
const char *qn_schedule_name(qn_schedule schedule);
/* Elements of the domain: rows and their length; of a kernel without reductions 1 row. */
void qn_fused_domain(const qn_graph *graph, const qn_fused *fused, int64_t *rows, int64_t *length);

/* ---- inside: values as statements (statements.c) ---- */
typedef struct qn_memo {
  int value, n, level, name; /* of the register; ~value: of its pack */
  qn_index at[QN_GRAPH_DIMS];
} qn_memo;

/* A value of a row that several loops need: kept in an array from the loop that computed it on. */
typedef struct qn_held {
  int value, n, first, last; /* loops */
  qn_index at[QN_GRAPH_DIMS];
} qn_held;

enum { QN_COLUMNS_APART = 33 }; /* parts of 32 columns in shared memory, so that lanes read other banks */
enum { QN_WHOLE = 128 };        /* elements of a row that a processor's thread computes in no loop */
enum { QN_LEVEL_ROW, QN_LEVEL_STEP, QN_LEVEL_LANE };

typedef struct qn_writer {
  const qn_graph *graph;
  const bool *is_root;
  const qn_fused *fused;
  qn_body *body;
  qn_indices set;
  qn_text row, step, lane; /* statements before the loop, of a step of it, of a lane of a step */
  qn_text *inner;          /* in a branch: its statements */
  int width, registers;
  qn_index lane_variable, step_variable, row_variable;
  int64_t unit_row, unit_length;       /* bytes read whose neighbours are of the next row, and of the next element */
  int64_t far_apart, far_n, far_bytes; /* of the largest tensor of which neighbours are of elements far apart */
  bool wide;                           /* places need 64 bits */
  qn_memo *memo;
  int n_memos, memos;
  qn_held held[16];
  int n_held, loop;
  int neighbours;       /* the kept dimension along which rows are counted first; 0: the last */
  bool counting, holds; /* the first run finds what several loops need */
  bool once;            /* lanes that are being written run once, not in a loop along rows */
  int64_t cost_row, cost_lane;
  bool misaligned;
  bool vectors;
  bool shared; /* lanes of this loop share quotients of a step */
  bool adds;   /* all scans are sums and products, of which the element before is a while away */
  const qn_index *own[QN_FUSED_ROOTS]; /* each root's places in the domain */
  qn_index places[QN_FUSED_ROOTS][QN_GRAPH_DIMS];
  uint32_t mirror[QN_FUSED_ROOTS]; /* dimensions along which these run backwards */
  const struct qn_cut *cut;
  bool early[QN_FUSED_ROOTS];                        /* stored in a reduction's loop */
  bool reduced[QN_FUSED_ROOTS];                      /* a reduction of lanes across rows whose loop is written */
  int scanned[QN_FUSED_ROOTS], scan[QN_FUSED_ROOTS]; /* of a scan: the last loop that has it, its register there */
} qn_writer;

/* A register with the value at these places, in its compute type. */
int qn_write_value(qn_writer *w, int value, const qn_index *at);
int qn_new_register(qn_writer *w);
void qn_write_type(qn_text *text, qn_dtype dtype);
typedef struct qn_constant {
  const char *name;
  int64_t value;
} qn_constant;
/* "enum : int { ... };" of a struct that a kernel takes its shapes from. */
void qn_write_constants(qn_text *text, const char *type, const qn_constant *constant, size_t n);
void qn_write_number(qn_text *text, qn_dtype type, double real, int64_t whole);
void qn_write_converted(qn_text *text, const char *from, qn_dtype type, qn_dtype to);
/* The formula with a, b, c replaced. */
void qn_write_formula(qn_text *text, const char *formula, const qn_text *operand);
int qn_root_of(const qn_writer *w, int value);                                       /* of the kernel's; -1: none */
qn_index qn_stored_place(qn_writer *w, const qn_graph_value *v, const qn_index *at); /* of a value that is stored */
bool qn_same_places(const qn_index *a, const qn_index *b, int n);
void qn_write_place(qn_writer *w, qn_index place, qn_text *to); /* of an element of a lane */
void qn_memo_add(qn_writer *w, int value, const qn_index *at, int n, int level, int name);
void qn_memo_forget(qn_writer *w, int from_level);

/* ---- inside: values that loops hold (held.c) ---- */
bool qn_is_heldable(const qn_writer *w, int value);
/* The register of a value that an earlier loop held, or -1; the first run only counts who needs what. */
int qn_recall_held(qn_writer *w, int value, const qn_index *at, int level);
void qn_hold(qn_writer *w, int value, const qn_index *at, int level, int name);

/* Lanes that are written apart from those that are being written: the text of these, and what is known in them. */
typedef struct qn_lanes {
  qn_text lane;
  qn_memo *memo;
  int n;
} qn_lanes;

bool qn_begin_lanes(qn_writer *w, qn_lanes *outer); /* false: no memory, and nothing is to be ended */
void qn_end_lanes(qn_writer *w, qn_lanes *outer);
/* Of rows side by side: whether what varies so is computed before the loop along them, once a row, and its register. */
bool qn_is_same_along(const qn_writer *w, int value, uint64_t varies);
int qn_write_same_along(qn_writer *w, int value, const qn_index *at);

/* ---- inside: cuts, places, loops, reductions and scans (cut.c, places.c, loops.c, body.c, rows.c, scan.c) ---- */
/* How the work of a kernel is cut. */
typedef struct qn_cut {
  qn_schedule schedule;
  int width;
  int64_t rows, length, threads; /* threads along a row */
  int64_t side, piece;           /* of a flat domain on the processor: extent along x, and elements of a thread */
  int64_t near_n, near_apart;    /* threads in a row that have pieces so many apart; 0: each has the next piece */
  int64_t run;                   /* on a GPU: neighbours of a line among them */
  bool gathers;                  /* what is read off the line that a thread writes is read before it computes */
  bool on_cpu, scans;
  bool across;   /* the lanes of a step are of `width` rows, not of one, of the `side` rows of which a thread's are */
  int64_t apart; /* (across) rows from a lane to the next */
  bool tail;     /* the last lanes are not there: of a row, or (across) of a side's last rows */
  bool window;   /* rows are windows: places in them are quotients of a step */
} qn_cut;

/* How rows are cut, and the pieces of a flat domain. */
void qn_cut_choose(const qn_writer *w, qn_cut *p);
void qn_cut_launch(const qn_cut *p, qn_body *body);
/* On a processor the last step of a row begin earlier, where its lanes would not be there: they are all there, and some
 * of an element that the step before had. A scan has each once. */
bool qn_cut_laps(const qn_cut *p);

/* Places in a reduction's argument, of row `o` and element `r`; r < 0: in its result. */
void qn_spread_reduced(qn_writer *w, int value, qn_index o, qn_index r, qn_index *at);
int qn_neighbours_of(const qn_graph *graph, const qn_fused *fused); /* qn_writer.neighbours */
/* Each root's own places, of row `o` and element `r`. */
void qn_place_roots(qn_writer *w, const qn_cut *p, qn_index o, qn_index r);
int64_t qn_steps_of(const qn_cut *p);  /* of a row */
int64_t qn_pieces_of(const qn_cut *p); /* threads that share a side, of rows side by side or of a flat domain */
/* block: 0, or how many turns an outer loop has a time, which the caller closes. */
void qn_open_loop(qn_text *text, const qn_cut *p, bool unrolled, int block);
/* On a processor, in front of a loop over n lanes: compilers that unroll one whole make no vectors of it. */
void qn_keep_loop(qn_text *text, const qn_cut *p, int n);
void qn_open_piece(qn_text *text, const qn_cut *p, bool wide); /* of a flat domain on a processor */
void qn_close_loop(qn_text *text, const qn_cut *p);
void qn_close_lanes(qn_writer *w, const qn_cut *p, qn_text *to); /* the statements of a step, and of its lanes */
void qn_wrap_lanes(qn_writer *w, const qn_cut *p, qn_text *to);  /* of the lanes alone */
void qn_move_text(qn_text *to, qn_text *from);
/* q_NAME(a, b), and the value that changes nothing. */
void qn_write_function(qn_text *header, const qn_graph_value *v);
void qn_write_first(qn_text *text, const qn_graph_value *v);
/* The register of root k, a reduction whose loop is written. */
int qn_write_reduced(qn_writer *w, int k);
/* The register of root k, a scan, at its own place in this loop. */
int qn_write_scan(qn_writer *w, int k);
void qn_store_early(qn_writer *w, const qn_cut *p, int loop, const int *known);
/* The reductions of one loop; known: the loop of each value that is one. */
void qn_write_reductions(qn_writer *w, const qn_cut *p, int loop, const int *known, qn_index o, qn_index r);
#endif
