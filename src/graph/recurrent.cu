/* SPDX-License-Identifier: Apache-2.0 */
/* recurrent.cu - a recurrent net (RNN, LSTM or GRU; layers, both directions) as one launch. A cluster of blocks has one
 * layer, direction and block of up to 16 sequences, and goes along time; each of its blocks has 16 hidden units, whose
 * weights stay in registers. Layers work at different times of the same sequences: one waits, step by step, until the
 * layers below have written theirs. Clusters take numbers as they start, lower layers first, so that none waits for one
 * that has not started.
 *
 * A step of a block: the product of its weights and the input, while the hidden state of the step before is on its way
 * from the other blocks; that of the hidden state; the sums of its warps meet in shared memory; the gates; and the new
 * 16 hidden units go to the shared memory of all blocks of the cluster, and to memory for the layer above.
 *
 * Products are of bf16: an operand is the sum of two (its rounding, and what that left), of which the three larger
 * products are summed in float. Operands lie in tiles of 16 along what is summed over: for each sequence four parts of
 * 16 bytes, of which part c has elements 2 c, 2 c + 1, 2 c + 8 and 2 c + 9, first rounded, then what is left. This is
 * what a lane of mma.m16n8k16 takes.
 *
 * S, which the planner writes behind this text (graph/recurrent.c), has the shapes as constants. */
struct q_halves {
  unsigned high, low; /* of two numbers, each rounded to bf16, and what is left of them */
};

__device__ inline q_halves q_split(float a, float b)
{
  q_halves made;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(made.high) : "f"(b), "f"(a));
  const float left_a = a - __uint_as_float(made.high << 16), left_b = b - __uint_as_float(made.high & 0xffff0000u);
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(made.low) : "f"(left_b), "f"(left_a));
  return made;
}

__device__ inline void q_multiply(float (&d)[4], const unsigned *a, unsigned b0, unsigned b1)
{
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Both by the fast exponential: off by some units in the last place of 1. */
__device__ inline float q_sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ inline float q_tanh(float x) { return 1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * x)); }

/* ---- shared memory of the cluster ---- */
__device__ inline unsigned q_address(const void *p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

__device__ inline unsigned q_in_block(unsigned address, unsigned rank)
{
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

__device__ inline void q_cluster_barrier()
{
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ inline void q_barrier_init(unsigned barrier, unsigned arrivals)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ inline void q_arrive(unsigned barrier)
{
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ inline void q_expect(unsigned barrier, unsigned bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ inline void q_wait(unsigned barrier, unsigned parity)
{
  asm volatile("{\n.reg .pred done;\nagain:\n"
               "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
               "@done bra over;\nbra again;\nover:\n}" ::"r"(barrier),
               "r"(parity)
               : "memory");
}

template <int n> __device__ inline void q_give_registers()
{
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}

template <int n> __device__ inline void q_take_registers()
{
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

/* 16 bytes to another block's shared memory, counted at its barrier. */
__device__ inline void q_send(unsigned to, unsigned barrier, uint4 v)
{
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier)
               : "memory");
}

__device__ inline void q_fetch(unsigned to, const void *from, unsigned bytes, unsigned barrier)
{
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

__device__ inline void q_part_barrier(int threads) { asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory"); }

/* What threads have stored comes before copies that begin now. */
__device__ inline void q_order_copies() { asm volatile("fence.proxy.async;" ::: "memory"); }

/* The part of a tile whose first element is row[from * stride], of n. */
__device__ inline uint4 q_part(const float *row, long stride, int from, int n)
{
  float v[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const int at = from + j % 2 + j / 2 * 8;
    v[j] = at < n ? __ldg(row + at * stride) : 0.0f;
  }
  const q_halves a = q_split(v[0], v[1]), b = q_split(v[2], v[3]);
  return make_uint4(a.high, b.high, a.low, b.low);
}

template <class S> struct q_recurrent {
  enum {
    tall = S::tall,               /* hidden units of a block, rows of a gate, and what a tile sums over */
    slices = S::warps / S::gates, /* warps of a gate: each has some of the tiles */
    workers = S::warps * 32,      /* threads that multiply; the others bring inputs and publish results */
    columns = 8 * S::eights,      /* sequences of a cluster */
    parts = columns * 4,          /* of a tile */
    tiles_h = (S::hidden + tall - 1) / tall,
    tiles_0 = (S::inputs + tall - 1) / tall,
    tiles_up = S::layers > 1 ? S::directions *tiles_h : 0,
    most_tiles = tiles_0 > tiles_up ? tiles_0 : tiles_up,
    kept_h = (tiles_h + slices - 1) / slices,
    kept_x = (most_tiles + slices - 1) / slices,
    sums = S::kind == S::gru ? 4 : S::gates, /* of a GRU's new gate the input's and the hidden state's stay apart */
    row = S::row                             /* of sums */
  };
  struct memory { /* shared */
    uint4 h[2][tiles_h][parts], x[2][most_tiles][parts];
    float sum[slices][sums][tall][row];
    unsigned long long h_full[2], x_full[2], x_empty[2];
    int ticket;
  };
  static_assert(sizeof(memory) <= S::shared_bytes, "the planner knows what a block needs");
  const float *x, *h0, *c0, *weights;
  float *out, *h_n, *c_n;
  uint4 *between; /* [direction][block of sequences][time][tile][part] of the input, then the same of each layer's
                   * results but the last one's, from the lowest on */
  int *counters;  /* [0]: clusters that have started; [1 + unit]: steps that blocks of a unit have written */
  memory *m;
  int rank, layer, direction, sequences, live, first; /* live: sequences of the cluster, from `first` on */

  __device__ static long weights_of(int layer, int direction)
  {
    const long rows = S::gates * static_cast<long>(S::hidden), more = S::hidden + (S::biased ? 2 : 0);
    const long lowest = rows * (S::inputs + more), upper = rows * (S::directions * S::hidden + more);
    return layer ? S::directions * lowest + ((layer - 1) * S::directions + direction) * upper : direction * lowest;
  }
  __device__ int width() const { return layer ? S::directions * S::hidden : S::inputs; }
  __device__ int unit(int at, int way) const { return (at * S::directions + way) * S::blocks + sequences; }
  __device__ int time(int step) const { return direction ? S::steps - 1 - step : step; }
  /* What a layer reads at a time: of the input, or of one direction of the layer below. */
  __device__ uint4 *given(int when) const
  {
    const long own = direction * S::blocks + sequences;
    return between + (own * S::steps + when) * (tiles_0 * parts);
  }
  __device__ uint4 *written(int at, int way, int when) const
  {
    const long before = static_cast<long>(S::directions * S::blocks) * S::steps * (tiles_0 * parts);
    return between + before + (static_cast<long>(unit(at, way)) * S::steps + when) * (tiles_h * parts);
  }

  /* A cluster's own part of the input, by all its blocks. */
  __device__ void convert() const
  {
    const int threads = S::threads, n = S::steps * live * tiles_0 * 4;
#pragma unroll 4
    for (int k = rank * threads + threadIdx.x; k < n; k += S::cluster * threads) {
      const int c = k % 4, tile = k / 4 % tiles_0, sequence = k / (4 * tiles_0) % live, when = k / (4 * tiles_0 * live);
      const float *row = x + (first + sequence) * static_cast<long>(S::x_batch) + when * static_cast<long>(S::x_time);
      given(when)[tile * parts + sequence * 4 + c] =
          q_part(row, static_cast<long>(S::x_element), tile * tall + 2 * c, S::inputs);
    }
  }

  /* ---- who brings inputs ---- */
  /* Waits until a layer below has written the results of a time. */
  __device__ void await(int way, int when, int &seen) const
  {
    const int *counter = counters + 1 + unit(layer - 1, way), needed = tiles_h * (way ? S::steps - when : when + 1);
    while (seen < needed) asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  }

  __device__ void load()
  {
    int seen[2] = {0, 0};
    q_order_copies();
    for (int step = 0; step < S::steps; step++) {
      const int slot = step & 1, when = time(step);
      const unsigned full = q_address(&m->x_full[slot]);
      if (step >= 2) q_wait(q_address(&m->x_empty[slot]), (step / 2 - 1) & 1);
      if (!layer) {
        q_expect(full, tiles_0 * parts * 16);
        q_fetch(q_address(m->x[slot]), given(when), tiles_0 * parts * 16, full);
        continue;
      }
      for (int way = 0; way < S::directions; way++) await(way, when, seen[way]);
      q_order_copies();
      q_expect(full, tiles_up * parts * 16);
      for (int way = 0; way < S::directions; way++)
        q_fetch(q_address(m->x[slot][way * tiles_h]), written(layer - 1, way, when), tiles_h * parts * 16, full);
    }
  }

  /* ---- who says what is written: at each step's barrier what was written the step before ---- */
  __device__ void publish(int lane)
  {
    int *counter = counters + 1 + unit(layer, direction);
    for (int step = 0; step <= S::steps; step++) {
      q_part_barrier(workers + 32);
      if (!step || layer == S::layers - 1 || lane) continue;
      __threadfence();
      atomicAdd(counter, 1);
    }
  }

  /* ---- who computes ---- */
  __device__ void keep(unsigned (&to)[8], const float *matrix, int gate, int lane, int from, int columns_of, int reach)
  {
    /* from: the first of the tile's columns; reach: how many of the tile's are there */
#pragma unroll
    for (int part = 0; part < 4; part++) {
      const int below = lane / 4 + part % 2 * 8, unit_of = rank * tall + below, k = lane % 4 * 2 + part / 2 * 8;
      const float *at = matrix + (static_cast<long>(gate) * S::hidden + unit_of) * columns_of + from + k;
      const bool there = unit_of < S::hidden;
      const q_halves v = q_split(there && k < reach ? at[0] : 0.0f, there && k + 1 < reach ? at[1] : 0.0f);
      to[part] = v.high, to[4 + part] = v.low;
    }
  }

  __device__ static void multiply(float (&large)[S::eights][4], float (&small)[S::eights][4], const unsigned (&w)[8],
                                  const uint4 *tile, int lane)
  {
#pragma unroll
    for (int n = 0; n < S::eights; n++) {
      const uint4 b = tile[n * 32 + lane];
      q_multiply(large[n], w, b.x, b.y);
      q_multiply(small[n], w + 4, b.x, b.y);
      q_multiply(small[n], w, b.z, b.w);
    }
  }

  __device__ void put(float (&sum)[tall][row], const float (&large)[S::eights][4], const float (&small)[S::eights][4],
                      int lane) const
  {
#pragma unroll
    for (int n = 0; n < S::eights; n++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int k = 2 * half;
        *reinterpret_cast<float2 *>(&sum[lane / 4 + 8 * half][8 * n + lane % 4 * 2]) =
            make_float2(large[n][k] + small[n][k], large[n][k + 1] + small[n][k + 1]);
      }
  }

  /* The new hidden unit, from the sums of its gates; cell: of an LSTM, old: the hidden unit before. */
  __device__ static float activate(const float (&v)[4], float &cell, float old)
  {
    if constexpr (S::kind == S::lstm) {
      cell = q_sigmoid(v[1]) * cell + q_sigmoid(v[0]) * q_tanh(v[2]);
      return q_sigmoid(v[3]) * q_tanh(cell);
    } else if constexpr (S::kind == S::gru) {
      const float fresh = q_tanh(v[3] + q_sigmoid(v[0]) * v[2]), stay = q_sigmoid(v[1]);
      return fresh + stay * (old - fresh);
    } else if constexpr (S::kind == S::relu) {
      return v[0] < 0.0f ? 0.0f : v[0];
    } else {
      return q_tanh(v[0]);
    }
  }

  __device__ void work(int thread)
  {
    const int lane = thread % 32, warp = thread / 32, gate = warp % S::gates, slice = warp / S::gates;
    const int tiles_x = layer ? int(tiles_up) : int(tiles_0);
    const float *input = weights + weights_of(layer, direction),
                *hidden = input + static_cast<long>(S::gates) * S::hidden * width(),
                *bias = hidden + static_cast<long>(S::gates) * S::hidden * S::hidden;
    unsigned of_h[kept_h][8], of_x[kept_x][8];
#pragma unroll
    for (int k = 0; k < kept_h; k++) {
      const int tile = slice + k * slices;
      keep(of_h[k], hidden, gate, lane, tile * tall, S::hidden, S::hidden - tile * tall);
    }
#pragma unroll
    for (int k = 0; k < kept_x; k++) {
      const int tile = slice + k * slices, way = layer ? tile / tiles_h : 0, within = tile - way * tiles_h;
      keep(of_x[k], input, gate, lane, way * S::hidden + within * tall, width(),
           tile < tiles_x ? (layer ? int(S::hidden) : int(S::inputs)) - within * tall : 0);
    }
    /* A thread's own hidden unit: neighbouring lanes have the four of a part, a warp has 128 bytes of a tile. */
    const int c = lane / 4 % 4, quarter = lane % 4, sequence = warp * 2 + lane / 16,
              mine = rank * tall + 2 * c + quarter % 2 + quarter / 2 * 8;
    const bool has_unit = thread < tall * columns, is_live = has_unit && sequence < live,
               is_there = is_live && mine < S::hidden;
    const long state =
        ((layer * S::directions + direction) * static_cast<long>(S::batch) + first + sequence) * S::hidden + mine;
    float add[4] = {0.0f, 0.0f, 0.0f, 0.0f}, old = is_there ? h0[state] : 0.0f, cell = 0.0f;
    if (S::kind == S::lstm && is_there) cell = c0[state];
    if (S::biased && is_there)
#pragma unroll
      for (int g = 0; g < S::gates; g++) {
        const float of_input = bias[g * S::hidden + mine], of_hidden = bias[(S::gates + g) * S::hidden + mine];
        const bool apart = S::kind == S::gru && g == 2;
        add[g] = apart ? of_hidden : of_input + of_hidden;
        if (apart) add[3] = of_input;
      }
    for (int step = 0; step < S::steps; step++) {
      const int slot = step & 1;
      float large[S::eights][4] = {}, small[S::eights][4] = {};
      q_wait(q_address(&m->x_full[slot]), step / 2 & 1);
#pragma unroll
      for (int k = 0; k < kept_x; k++)
        if (slice + k * slices < tiles_x) multiply(large, small, of_x[k], m->x[slot][slice + k * slices], lane);
      __syncwarp();
      if (!lane) q_arrive(q_address(&m->x_empty[slot]));
      if (S::kind == S::gru && gate == 2) {
        put(m->sum[slice][3], large, small, lane);
#pragma unroll
        for (int n = 0; n < S::eights; n++)
#pragma unroll
          for (int k = 0; k < 4; k++) large[n][k] = small[n][k] = 0.0f;
      }
      if (step) {
        q_wait(q_address(&m->h_full[slot]), (step - 1) / 2 & 1);
        if (!thread && step + 2 < S::steps) q_expect(q_address(&m->h_full[slot]), tiles_h * live * 64);
      }
#pragma unroll
      for (int k = 0; k < kept_h; k++)
        if (slice + k * slices < tiles_h) multiply(large, small, of_h[k], m->h[slot][slice + k * slices], lane);
      put(m->sum[slice][gate], large, small, lane);
      q_part_barrier(workers + 32);
      if (has_unit) {
        float v[4];
#pragma unroll
        for (int g = 0; g < sums; g++) {
          v[g] = add[g];
#pragma unroll
          for (int k = 0; k < slices; k++) v[g] += m->sum[k][g][mine % tall][sequence];
        }
        const float h = activate(v, cell, old);
        old = h;
        const q_halves own = q_split(h, 0.0f);
        const unsigned both = own.high << 16 | own.low; /* the rounding above what is left */
        unsigned of[4];
#pragma unroll
        for (int j = 0; j < 4; j++) of[j] = __shfl_sync(0xffffffffu, both, j, 4);
        const uint4 part = make_uint4(__byte_perm(of[0], of[1], 0x7632), __byte_perm(of[2], of[3], 0x7632),
                                      __byte_perm(of[0], of[1], 0x5410), __byte_perm(of[2], of[3], 0x5410));
        const int at = sequence * 4 + c, when = time(step);
        if (is_live && step + 1 < S::steps) {
          const unsigned to = q_address(&m->h[slot ^ 1][rank][at]), full = q_address(&m->h_full[slot ^ 1]);
#pragma unroll
          for (int k = 0; k < (tiles_h + 3) / 4; k++) {
            const int block = quarter + 4 * k;
            if (block < tiles_h) q_send(q_in_block(to, block), q_in_block(full, block), part);
          }
        }
        if (layer < S::layers - 1) {
          if (is_live && !quarter) written(layer, direction, when)[rank * parts + at] = part;
        } else if (is_there) {
          out[(first + sequence) * static_cast<long>(S::out_batch) + when * static_cast<long>(S::out_time) +
              (direction * S::hidden + mine) * static_cast<long>(S::out_element)] = h;
        }
      }
    }
    q_part_barrier(workers + 32);
    if (is_there) {
      h_n[state] = old;
      if (S::kind == S::lstm) c_n[state] = cell;
    }
  }

  __device__ void run()
  {
    const int thread = threadIdx.x;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    q_cluster_barrier(); /* all have started */
    if (!rank && !thread) {
      const int ticket = atomicAdd(counters, 1);
      for (int k = 0; k < S::cluster; k++)
        asm volatile("st.shared::cluster.s32 [%0], %1;" ::"r"(q_in_block(q_address(&m->ticket), k)), "r"(ticket)
                     : "memory");
    }
    q_cluster_barrier();
    const int ticket = m->ticket;
    sequences = ticket % S::blocks, direction = ticket / S::blocks % S::directions,
    layer = ticket / (S::blocks * S::directions), first = sequences * columns;
    live = S::batch - first < columns ? S::batch - first : int(columns);
    if (!thread) {
      for (int k = 0; k < 2; k++) {
        q_barrier_init(q_address(&m->h_full[k]), 1);
        q_barrier_init(q_address(&m->x_full[k]), 1);
        q_barrier_init(q_address(&m->x_empty[k]), S::warps);
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      for (int k = 1; k <= 2 && k < S::steps; k++) q_expect(q_address(&m->h_full[k & 1]), tiles_h * live * 64);
    }
    /* The state that the first step reads, which each block has for itself. */
    const float *state = h0 + ((layer * S::directions + direction) * static_cast<long>(S::batch) + first) * S::hidden;
    for (int k = thread; k < live * tiles_h * 4; k += S::threads) {
      const int c = k % 4, tile = k / 4 % tiles_h, sequence = k / (4 * tiles_h);
      m->h[0][tile][sequence * 4 + c] =
          q_part(state + static_cast<long>(sequence) * S::hidden, 1, tile * tall + 2 * c, S::hidden);
    }
    if (!layer) convert();
    __syncthreads();
    q_cluster_barrier();
    const int warp = thread / 32;
    if (warp >= S::warps) {
      q_give_registers<S::few_registers>();
      if (rank < tiles_h && thread == workers) load();
      if (rank < tiles_h && warp == S::warps + 1) publish(thread % 32);
    } else {
      q_take_registers<S::registers>();
      if (rank < tiles_h) work(thread);
    }
    __syncwarp();
    q_cluster_barrier();
  }
};
