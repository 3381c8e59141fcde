/* SPDX-License-Identifier: Apache-2.0 */
/* convolution.cu - a convolution as a product of matrices that are never written: rows are places of the result,
 * columns its channels, and what is summed over are taps (elements of the filter) times channels of the input. A
 * transposed convolution is one for each phase: the results whose place has the same remainder by the stride, of which
 * only every so many taps reach the input. Operands are rounded to tf32, sums are of float, in one order.
 *
 * S, which the planner writes behind this text (graph/convolution.c), has the shapes as constants. A block has
 * S::positions places and S::columns channels of one group and phase; in each turn its threads bring 16 rows of both
 * operands to shared memory, while the turns before them are multiplied. */
template <bool transposed, int in, int out, int kernel, int stride, int pad, int apart, int step> struct q_axis {
  enum {
    phases = transposed ? stride : 1,
    places = (out + phases - 1) / phases, /* of a phase */
    strides = transposed ? 1 : stride,    /* of the input, from a place to the next */
    every = transposed ? step : 1,        /* this many taps from one that reaches the input to the next */
    moves = transposed ? -(apart * step / stride) : apart /* of the input, from such a tap to the next */
  };
  int phase, first, taps, from; /* from: where the first tap of place 0 reads */

  __device__ explicit q_axis(int of) : phase(of), first(0), taps(kernel), from(-pad)
  {
    if constexpr (transposed) {
      while (first < every && (phase + pad - first * apart) % stride != 0) first++;
      taps = first < every && first < kernel ? (kernel - first + every - 1) / every : 0;
      from = (phase + pad - first * apart) / stride;
    }
  }
  /* A bit for each tap that reads inside of the input. */
  __device__ unsigned reach(int place) const
  {
    unsigned bits = 0;
    for (int j = 0; j < taps; j++) {
      const int at = place * strides + from + j * moves;
      bits |= static_cast<unsigned>(at >= 0 && at < in) << j;
    }
    return bits;
  }
  __device__ int result(int place) const { return place * phases + phase; }
};

struct q_tap {
  int x, w;      /* elements from the first tap's */
  unsigned bits; /* its number along each axis, a byte each */
};

/* A place of the result, from its number within the phase. */
template <class S> struct q_place {
  int image, at0, at1, at2;
  __device__ explicit q_place(int number)
  {
    at2 = number % S::axis2::places, number /= S::axis2::places;
    at1 = number % S::axis1::places, number /= S::axis1::places;
    at0 = number % S::axis0::places, image = number / S::axis0::places;
  }
};

/* Where a thread's part of an operand is read from, in the turn at hand. */
struct q_reader {
  int tap, unit; /* `unit`: which eight channels of the tap */
  bool there;
  const float *from;
};

template <class S> struct q_tile {
  enum {
    threads = 256,
    deep = 16, /* rows of a turn: two units of 8 */
    padded = S::channels > 4   ? (S::channels + 7) / 8 * 8
             : S::channels > 2 ? 4
                               : S::channels,
    width = padded < 8 ? padded : 8, /* channels of a tap in a unit, which has 8 / width taps */
    units = padded / width,          /* of a tap */
    row_a = S::positions + 8,
    row_b = S::columns + 8,
    size_a = S::x_last ? deep * S::positions : deep * row_a,
    readers_a = S::positions < threads ? 1 : 2,
    piece = S::w_last ? 4 : 1, /* elements of the filter that are read at once */
    pieces = deep * S::columns / piece,
    readers_b = (pieces + threads - 1) / threads,
    rows = S::positions / S::warps_down, /* of a warp */
    across = S::columns / (threads / 32 / S::warps_down)
  };
  const float *x, *w;
  const q_tap *tap;
  unsigned thread; /* of the block */
  int taps, column;
  bool x_aligned, w_aligned; /* 16 bytes may be read at once */
  long mine;                 /* where the first tap of this thread's place reads */
  unsigned reach0, reach1, reach2;
  q_reader a_from[readers_a], b_from[readers_b];

  /* Rows of places where channels are neighbours in memory, without two of a warp's reads in one bank. */
  __device__ static unsigned place_a(unsigned row, unsigned k)
  {
    return S::x_last ? row * deep + (((k / 4u) ^ (row / 2u % 4u)) * 4u + k % 4u) : k * row_a + row;
  }

  __device__ bool reaches(unsigned bits) const
  {
    return S::inside ? reach0 != 0
                     : (reach0 >> (bits & 31u) & reach1 >> (bits >> 8 & 31u) & reach2 >> (bits >> 16 & 31u) & 1u) != 0;
  }

  __device__ void seek_a(q_reader &r, int t) const
  {
    const bool known = t < taps;
    const q_tap of = known ? tap[t] : q_tap();
    r.there = known && reaches(of.bits);
    r.from = x + (r.there ? mine + of.x + r.unit * 8 * static_cast<long>(S::x_channel) : 0);
  }

  __device__ void seek_b(q_reader &r, int q) const
  {
    const int k = q / (S::columns / piece), right = column + q % (S::columns / piece) * piece;
    const int t = r.tap * (8 / width) + k % 8 / width, c = r.unit * 8 + k % width;
    r.there = t < taps && right < S::out_channels && (S::channels % width == 0 || c < S::channels);
    r.from = w + (r.there ? tap[t].w + c * S::w_in + right * S::w_out : 0);
  }

  /* The unit two behind. True: of another tap. */
  __device__ static bool advance(q_reader &r)
  {
    r.unit += 2;
    if (units > 1 && r.unit < units) return false;
    r.tap += units > 1 ? 1 : 2;
    r.unit -= units > 1 ? units : 2;
    return true;
  }

  __device__ void begin()
  {
#pragma unroll
    for (int u = 0; u < readers_a; u++) {
      const int unit = S::positions < threads ? thread / S::positions : u;
      a_from[u].tap = unit / units, a_from[u].unit = unit % units;
      if (width == 8) seek_a(a_from[u], a_from[u].tap);
    }
#pragma unroll
    for (int u = 0; u < readers_b; u++) {
      const int unit = (thread + u * threads) / (S::columns / piece) / 8;
      b_from[u].tap = unit / units, b_from[u].unit = unit % units;
      seek_b(b_from[u], thread + u * threads);
    }
  }

  /* The turn's rows of both operands, and on to the next turn. */
  __device__ void load(float *a, float *b)
  {
    const int row = thread % S::positions;
#pragma unroll
    for (int u = 0; u < readers_a; u++) {
      const int k = 8 * (S::positions < threads ? thread / S::positions : u);
      q_reader &r = a_from[u];
#pragma unroll
      for (int j = 0; j < 8; j += width) {
        if (width < 8) seek_a(r, r.tap * (8 / width) + j / width);
        if (S::x_last && width == 8 && x_aligned) {
#pragma unroll
          for (int c = 0; c < width; c += 4)
            __pipeline_memcpy_async(a + place_a(row, k + c), r.from + c, 16,
                                    r.there && (S::channels % 8 == 0 || r.unit * 8 + c < S::channels) ? 0 : 16);
        } else {
#pragma unroll
          for (int c = 0; c < width; c++)
            __pipeline_memcpy_async(a + place_a(row, k + j + c), r.from + c * S::x_channel, 4,
                                    r.there && (S::channels % width == 0 || r.unit * 8 + c < S::channels) ? 0 : 4);
        }
      }
      if (advance(r)) {
        if (width == 8) seek_a(r, r.tap);
      } else
        r.from += 16 * static_cast<long>(S::x_channel);
    }
#pragma unroll
    for (int u = 0; u < readers_b; u++) {
      const int q = thread + u * threads, right = q % (S::columns / piece) * piece;
      q_reader &r = b_from[u];
      if (pieces % threads != 0 && q >= pieces) break;
      float *to = b + q / (S::columns / piece) * row_b + right;
      if (piece == 1 || w_aligned)
        __pipeline_memcpy_async(to, r.from, 4 * piece, r.there ? 0 : 4 * piece);
      else
        for (int e = 0; e < piece; e++) __pipeline_memcpy_async(to + e, r.from + (r.there ? e : 0), 4, r.there ? 0 : 4);
      if (advance(r) || S::channels % width != 0)
        seek_b(r, q);
      else
        r.from += 16 * S::w_in;
    }
  }

  /* What this thread brought of the filter. */
  __device__ void round_filter(float *b) const
  {
#pragma unroll
    for (int u = 0; u < readers_b; u++) {
      const int q = thread + u * threads;
      if (pieces % threads != 0 && q >= pieces) break;
      struct alignas(4 * piece) {
        float at[piece];
      } *to = reinterpret_cast<decltype(to)>(b + q / (S::columns / piece) * row_b + q % (S::columns / piece) * piece),
        v = *to;
#pragma unroll
      for (int e = 0; e < piece; e++) v.at[e] = __float_to_tf32(v.at[e]);
      *to = v;
    }
  }

  __device__ void multiply(float (&d)[rows / 16][across / 8][4], const float *a, const float *b) const
  {
    const unsigned lane = thread % 32, group = lane / 4, t = lane % 4, warp = thread / 32;
    const unsigned down = warp % S::warps_down * rows + group, right = warp / S::warps_down * across + group;
#pragma unroll
    for (int k = 0; k < deep; k += 8) {
      float left[rows / 16][4], above[across / 8][2];
#pragma unroll
      for (int i = 0; i < rows / 16; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          left[i][e] = __float_to_tf32(a[place_a(down + 16 * i + 8 * (e % 2), k + t + 4 * (e / 2))]);
#pragma unroll
      for (int j = 0; j < across / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) above[j][e] = b[(k + t + 4 * e) * row_b + right + 8 * j];
#pragma unroll
      for (int i = 0; i < rows / 16; i++)
#pragma unroll
        for (int j = 0; j < across / 8; j++) mma_m16n8k8_tf32(d[i][j], left[i], above[j]);
    }
  }
};

template <class S>
__device__ void q_convolution(unsigned thread, int block, int column, int group, const float *x, const float *w,
                              const float *bias, float *y)
{
  typedef q_tile<S> tile_of;
  __shared__ __align__(16) float a[S::stages][tile_of::size_a], b[S::stages][tile_of::deep * tile_of::row_b];
  __shared__ q_tap tap[S::most_taps];
  const int phases2 = S::axis2::phases, phases1 = S::axis1::phases, phases = S::axis0::phases * phases1 * phases2;
  const int phase = block % phases, first = block / phases * S::positions;
  const typename S::axis0 axis0(phase / (phases1 * phases2));
  const typename S::axis1 axis1(phase / phases2 % phases1);
  const typename S::axis2 axis2(phase % phases2);
  const int taps = axis0.taps * axis1.taps * axis2.taps;
  for (int t = thread; t < taps; t += tile_of::threads) {
    const int j2 = t % axis2.taps, j1 = t / axis2.taps % axis1.taps, j0 = t / axis2.taps / axis1.taps;
    tap[t].x = j0 * S::axis0::moves * S::x0 + j1 * S::axis1::moves * S::x1 + j2 * S::axis2::moves * S::x2;
    tap[t].w = (axis0.first + j0 * S::axis0::every) * S::w0 + (axis1.first + j1 * S::axis1::every) * S::w1 +
               (axis2.first + j2 * S::axis2::every) * S::w2;
    tap[t].bits = static_cast<unsigned>(j0 | j1 << 8 | j2 << 16);
  }
  tile_of tile;
  const q_place<S> mine(first + thread % S::positions);
  tile.x = x, tile.w = w + group * S::w_group, tile.tap = tap, tile.thread = thread, tile.taps = taps,
  tile.column = column;
  tile.x_aligned = reinterpret_cast<unsigned long>(x) % 16 == 0;
  tile.w_aligned = reinterpret_cast<unsigned long>(w) % 16 == 0;
  tile.mine = mine.image * S::x_image + group * S::x_group +
              static_cast<long>(mine.at0 * S::axis0::strides + axis0.from) * S::x0 +
              static_cast<long>(mine.at1 * S::axis1::strides + axis1.from) * S::x1 +
              static_cast<long>(mine.at2 * S::axis2::strides + axis2.from) * S::x2;
  tile.reach0 = mine.image < S::images ? axis0.reach(mine.at0) : 0u;
  tile.reach1 = axis1.reach(mine.at1), tile.reach2 = axis2.reach(mine.at2);
  __syncthreads();
  tile.begin();
  float d[tile_of::rows / 16][tile_of::across / 8][4] = {};
  const int turns = (taps * tile_of::padded + tile_of::deep - 1) / tile_of::deep;
#pragma unroll
  for (int turn = 0; turn < S::stages - 1; turn++) {
    if (turn < turns) tile.load(a[turn], b[turn]);
    __pipeline_commit();
  }
  for (int turn = 0; turn < turns; turn++) {
    __pipeline_wait_prior(S::stages - 2);
    tile.round_filter(b[turn % S::stages]);
    __syncthreads();
    const int next = turn + S::stages - 1, to = next % S::stages;
    if (next < turns) tile.load(a[to], b[to]);
    __pipeline_commit();
    tile.multiply(d, a[turn % S::stages], b[turn % S::stages]);
  }
  const int lane = thread % 32, warp = thread / 32;
#pragma unroll
  for (int i = 0; i < tile_of::rows / 8; i++) {
    const q_place<S> to(first + warp % S::warps_down * tile_of::rows + 8 * i + lane / 4);
    const int at0 = axis0.result(to.at0), at1 = axis1.result(to.at1), at2 = axis2.result(to.at2);
    if (to.image >= S::images || at0 >= S::out0 || at1 >= S::out1 || at2 >= S::out2) continue;
    float *line = y + (to.image * S::y_image + at0 * S::y0 + at1 * S::y1 + at2 * S::y2);
#pragma unroll
    for (int j = 0; j < tile_of::across / 4; j++) {
      const int c = column + warp / S::warps_down * tile_of::across + 8 * (j / 2) + 2 * (lane % 4) + j % 2;
      if (c >= S::out_channels) continue;
      const int channel = group * S::out_channels + c;
      const float sum = d[i / 2][j / 2][2 * (i % 2) + j % 2];
      line[channel * S::y_channel] = S::bias ? sum + bias[channel] : sum;
    }
  }
}
