/* SPDX-License-Identifier: Apache-2.0 */
/* hopper.h - words for kernels that only a GPU of compute capability 9.0 runs: products of a warpgroup (wgmma), copies
 * of tiles by the tensor unit (TMA), barriers in shared memory that count bytes (mbarrier), clusters of blocks, and
 * registers that move from one warpgroup to another. None has a twin on the host: they take more than the 32 lanes of a
 * simdgroup at once, or no thread executes them. A kernel of these words is launched on sm_90a alone, and whatever it
 * computes another kernel computes too.
 *
 * A product: D (64, N) += A (64, k) B (N, k)^T for the 128 threads of a warpgroup, of which warp q holds rows 16 q to
 * 16 q + 15: element (row, column) is in lane 4 (row % 8) + column % 8 / 2, as d[4 (column / 8) + 2 (row / 8 % 2) +
 * column % 2]. k is 32 bytes. A is in registers, laid out as base/matrix.h says for 16 rows, or in shared memory like
 * B: rows of 128 bytes, whose 16-byte parts lie swizzled as the tensor unit writes them with QN_TENSOR_SWIZZLE_128. */
#ifndef QN_BASE_HOPPER_H
#define QN_BASE_HOPPER_H
#include "base/kernel.h"

/* The 128 bytes by which the tensor unit knows a matrix; the driver fills them (cuTensorMapEncodeTiled). */
typedef struct qn_tensor_map {
#ifdef __cplusplus
  alignas(64) qn_u64 word[16];
#else
  _Alignas(64) qn_u64 word[16];
#endif
} qn_tensor_map;

#ifdef QN_PTX
/* A kernel of whole clusters: one block a multiprocessor, so that registers can be handed over. */
#define QN_HOPPER_KERNEL(name, type, arg, cluster)                                                                     \
  extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(QN_THREADS, 1)                          \
      name(const QN_GRID_CONSTANT type arg)

QN_FN qn_u32 qn_shared_address(const void *p) { return static_cast<qn_u32>(__cvta_generic_to_shared(p)); }

/* ---- barriers in shared memory, by address ---- */
QN_FN void qn_mbarrier_init(qn_u32 barrier, qn_u32 arrivals)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* Makes initialised barriers visible to the cluster and to the tensor unit. */
QN_FN void qn_mbarrier_init_seen() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/* Arrives, and says how many bytes copies will bring before the phase is over. */
QN_FN void qn_mbarrier_expect(qn_u32 barrier, qn_u32 bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Arrives at the barrier of the same address in block `rank` of the cluster. */
QN_FN void qn_mbarrier_arrive_at(qn_u32 barrier, qn_u32 rank)
{
  asm volatile("{\n"
               ".reg .b32 there;\n"
               "mapa.shared::cluster.u32 there, %0, %1;\n"
               "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
               "}" ::"r"(barrier),
               "r"(rank)
               : "memory");
}

/* Waits for the end of the phase of this parity. */
QN_FN void qn_mbarrier_wait(qn_u32 barrier, qn_u32 parity)
{
  asm volatile("{\n"
               ".reg .pred done;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@done bra over;\n"
               "bra again;\n"
               "over:\n"
               "}" ::"r"(barrier),
               "r"(parity)
               : "memory");
}

/* ---- the cluster ---- */
QN_FN qn_u32 qn_cluster_rank()
{
  qn_u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/* All threads of all its blocks. */
QN_FN void qn_cluster_barrier()
{
  asm volatile("barrier.cluster.arrive.release.aligned;\n"
               "barrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

/* ---- a part of the block: `threads` of it meet at one of 16 barriers; 0 is the whole block's ---- */
QN_FN void qn_part_barrier(int which, int threads)
{
  asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(threads) : "memory");
}

template <int registers> QN_FN void qn_take_registers()
{
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers> QN_FN void qn_give_registers()
{
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

/* ---- tiles from memory: the map's box at (column, row) of its matrix, to shared memory; what lies beyond the matrix
 * is zero. Its bytes count at the barrier. `blocks`, a bit for each of the cluster: to the same address of each of
 * these, and at the same barrier of each. One thread calls it. ---- */
QN_FN void qn_tensor_copy(qn_u32 to, const qn_tensor_map *map, int column, int row, qn_u32 barrier)
{
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
               "[%4];" ::"r"(to),
               "l"(map), "r"(column), "r"(row), "r"(barrier)
               : "memory");
}

QN_FN void qn_tensor_copy_to(qn_u32 to, const qn_tensor_map *map, int column, int row, qn_u32 barrier, qn_u16 blocks)
{
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
               "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
               "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
               : "memory");
}

QN_FN void qn_tensor_map_fetch(const qn_tensor_map *map)
{
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* ---- products of a warpgroup ---- */
/* Rows of 128 bytes, swizzled, eight of them 1024 bytes after the eight before; the address, a multiple of 1024, plus
 * 32 bytes for each k. */
QN_FN qn_u64 qn_wgmma_matrix(qn_u32 address)
{
  return static_cast<qn_u64>((address & 0x3ffffu) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

/* Before the first product, and after registers that a product takes were written. */
QN_FN void qn_wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/* Closes the copies begun so far into one batch. */
QN_FN void qn_wgmma_close() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* All batches but the latest n are done. */
template <int n> QN_FN void qn_wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory"); }

#define QN_WGMMA_D32                                                                                                   \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,"             \
  "%28,%29,%30,%31"
#define QN_WGMMA_D64                                                                                                   \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,"             \
  "%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,"           \
  "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define QN_WGMMA_D128                                                                                                  \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,"             \
  "%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,"           \
  "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"           \
  "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,"               \
  "%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,"               \
  "%124,%125,%126,%127"
#define QN_WGMMA_8(i)                                                                                                  \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),          \
      "+f"(d[i + 7])
#define QN_WGMMA_32(i) QN_WGMMA_8(i), QN_WGMMA_8(i + 8), QN_WGMMA_8(i + 16), QN_WGMMA_8(i + 24)
#define QN_WGMMA_64(i) QN_WGMMA_32(i), QN_WGMMA_32(i + 32)
#define QN_WGMMA_128(i) QN_WGMMA_64(i), QN_WGMMA_64(i + 64)

/* The words for one N: `add` 0 forgets what was in d. Both operands in shared memory, or A in registers. */
template <int columns> struct qn_wgmma;
#define QN_WGMMA_SHARED(NAME, N, COUNT, SHAPE, LAST, A, B, ADD)                                                        \
  QN_FN void NAME(float(&d)[COUNT], qn_u64 a, qn_u64 b, int add)                                                       \
  {                                                                                                                    \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N SHAPE          \
                 " {" QN_WGMMA_D##COUNT "}, %" #A ", %" #B ", p, 1, 1" LAST ";\n}"                                     \
                 : QN_WGMMA_##COUNT(0)                                                                                 \
                 : "l"(a), "l"(b), "r"(add));                                                                          \
  }
#define QN_WGMMA_REGISTERS(NAME, N, COUNT, SHAPE, LAST, A0, A1, A2, A3, B, ADD)                                        \
  QN_FN void NAME(float(&d)[COUNT], const qn_u32(&a)[4], qn_u64 b, int add)                                            \
  {                                                                                                                    \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N SHAPE          \
                 " {" QN_WGMMA_D##COUNT "}, {%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "}, %" #B ", p, 1, 1" LAST ";\n}"       \
                 : QN_WGMMA_##COUNT(0)                                                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                      \
  }
#define QN_WGMMA_WORDS(N, COUNT, I0, I1, I2, I3, I4, I5)                                                               \
  template <> struct qn_wgmma<N> {                                                                                     \
    QN_WGMMA_SHARED(tf32, N, COUNT, "k8.f32.tf32.tf32", "", I0, I1, I2)                                                \
    QN_WGMMA_SHARED(bf16, N, COUNT, "k16.f32.bf16.bf16", ", 0, 0", I0, I1, I2)                                         \
    QN_WGMMA_REGISTERS(tf32, N, COUNT, "k8.f32.tf32.tf32", "", I0, I1, I2, I3, I4, I5)                                 \
    QN_WGMMA_REGISTERS(bf16, N, COUNT, "k16.f32.bf16.bf16", ", 0", I0, I1, I2, I3, I4, I5)                             \
    QN_WGMMA_REGISTERS(f16, N, COUNT, "k16.f32.f16.f16", ", 0", I0, I1, I2, I3, I4, I5)                                \
  };
QN_WGMMA_WORDS(64, 32, 32, 33, 34, 35, 36, 37)
QN_WGMMA_WORDS(128, 64, 64, 65, 66, 67, 68, 69)
QN_WGMMA_WORDS(256, 128, 128, 129, 130, 131, 132, 133)
#endif
#endif
