// A number in two words, high + low, |low| at most half a unit in the last place of high: about 48 bits of floats. The
// operations are exact but for their last rounding of low; they need safe mathematics (nothing reordered), and fma.
struct two {
  T high, low;
};

inline two two_of(T x) { return {x, T(0)}; }

// a + b for |a| >= |b| or a == 0
inline two two_join(T a, T b)
{
  const T sum = a + b;
  return {sum, b - (sum - a)};
}

inline two two_add(two a, two b)
{
  const T sum = a.high + b.high, back = sum - a.high;
  const T lost = (a.high - (sum - back)) + (b.high - back);
  return two_join(sum, lost + (a.low + b.low));
}

inline two two_negative(two a) { return {-a.high, -a.low}; }

inline two two_times(two a, two b)
{
  const T product = a.high * b.high;
  return two_join(product, metal::fma(a.high, b.high, -product) + (a.high * b.low + a.low * b.high));
}

inline two two_over(two a, two b)
{
  const T first = a.high / b.high;
  const two left = two_add(a, two_negative(two_times(two_of(first), b)));
  return two_join(first, left.high / b.high);
}

// of a above zero
inline two two_root(two a)
{
  const T first = metal::sqrt(a.high);
  const two left = two_add(a, two_negative(two_times(two_of(first), two_of(first))));
  return two_join(first, left.high / (first + first));
}

// One set of names for both: a kernel computes in `number`, which is T itself or two of it.
template <bool EXACT> struct arithmetic;
template <> struct arithmetic<false> {
  typedef T number;
  static inline T of(T high, T low) { return high; }
  static inline T high(T a) { return a; }
  static inline T low(T a) { return T(0); }
  static inline T minus_product(T a, T b, T c) { return metal::fma(-b, c, a); } // a - b c
  static inline T plus_product(T a, T b, T c) { return metal::fma(b, c, a); }
  static inline T times(T a, T b) { return a * b; }
  static inline T over(T a, T b) { return a / b; }
  static inline T plus(T a, T b) { return a + b; }
  static inline T minus(T a, T b) { return a - b; }
  static inline T root(T a) { return metal::sqrt(a); }
  static inline T shuffle(T a, uint lane) { return simd_shuffle(a, lane); }
  static inline T shuffle_xor(T a, uint mask) { return simd_shuffle_xor(a, mask); }
};
template <> struct arithmetic<true> {
  typedef two number;
  static inline two of(T high, T low) { return {high, low}; }
  static inline T high(two a) { return a.high; }
  static inline T low(two a) { return a.low; }
  static inline two minus_product(two a, two b, two c) { return two_add(a, two_negative(two_times(b, c))); }
  static inline two plus_product(two a, two b, two c) { return two_add(a, two_times(b, c)); }
  static inline two times(two a, two b) { return two_times(a, b); }
  static inline two over(two a, two b) { return two_over(a, b); }
  static inline two plus(two a, two b) { return two_add(a, b); }
  static inline two minus(two a, two b) { return two_add(a, two_negative(b)); }
  static inline two root(two a) { return two_root(a); }
  static inline two shuffle(two a, uint lane) { return {simd_shuffle(a.high, lane), simd_shuffle(a.low, lane)}; }
  static inline two shuffle_xor(two a, uint mask)
  {
    return {simd_shuffle_xor(a.high, mask), simd_shuffle_xor(a.low, mask)};
  }
};
typedef arithmetic<EXTENDED> as;
typedef as::number number;

// The exponent of a normal float, such that it and its negative are powers of two that floats have; and that power.
inline int exponent_of(float x)
{
  return metal::clamp(int(as_type<uint>(x) >> 23 & 255u) - 127, -126, 126);
}
inline float power_of_two(int exponent) { return as_type<float>(uint(exponent + 127) << 23); }

struct member {
  int index, count, lane, simd, simds;
};
struct places {
  threadgroup T *panel, *parts, *parts_low, *small, *scratch;
};

// A two-word sum over the lanes of a simdgroup, by halves; the same for all.
inline number simd_total(number x)
{
  for (uint step = 16; step > 0; step /= 2)
    x = as::plus(x, as::shuffle_xor(x, step));
  return x;
}

// Over the threadgroup; all threads come here, and all get it. `slot` tells apart calls with no barrier between.
inline number group_total(places at, member me, number x)
{
  x = simd_total(x);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (me.lane == 0) {
    at.scratch[2 * me.simd] = as::high(x);
    at.scratch[2 * me.simd + 1] = as::low(x);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  number sum = as::of(T(0), T(0));
  for (int s = 0; s < me.simds; s++) sum = as::plus(sum, as::of(at.scratch[2 * s], at.scratch[2 * s + 1]));
  return sum;
}

inline T group_largest(places at, member me, T x)
{
  x = simd_max(x);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (me.lane == 0) at.scratch[me.simd] = x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int s = 0; s < me.simds; s++) x = metal::max(x, at.scratch[s]);
  return x;
}

inline bool group_all(places at, member me, bool x) { return group_largest(at, me, x ? T(0) : T(1)) == T(0); }

// Rows top to m and `width` columns from `left` of a matrix whose rows have n.
inline void panel_load(places at, member me, const device T *work, int n, int left, int top, int m, int width)
{
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = me.index; i < (m - top) * width; i += me.count)
    at.panel[i] = work[long(top + i / width) * n + left + i % width];
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

inline void panel_store(places at, member me, device T *work, int n, int left, int m, int width)
{
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = me.index; i < (m - left) * width; i += me.count)
    work[long(left + i / width) * n + left + i % width] = at.panel[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = me.index; i < width * width; i += me.count) // what follows needs the reflectors alone
    if (i % width >= i / width) at.panel[i] = T(i % width == i / width);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

inline void panel_unit(places at, member me, int rows, int width)
{
  for (int i = me.index; i < width * width && i < rows * width; i += me.count)
    if (i % width >= i / width) at.panel[i] = T(i % width == i / width);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// The reflector that clears the panel's column c below its diagonal, and the panel's later columns behind it. 1 where
// the column was all zeros (or subnormal): then nothing is reflected, and the column becomes zeros.
inline int panel_column(places at, member me, device T *taus, int left, int m, int width, int c)
{
  const int rows = m - left;
  T largest = T(0);
  for (int i = c + me.index; i < rows; i += me.count)
    largest = metal::max(largest, metal::abs(at.panel[i * width + c]));
  largest = group_largest(at, me, largest);
  const bool tiny = !(largest >= T(1.17549435e-38f));
  const int exponent = tiny ? 0 : exponent_of(largest);
  const T scale = power_of_two(-exponent), back = power_of_two(exponent);
  number sum = as::of(T(0), T(0));
  for (int i = c + me.index; i < rows; i += me.count) {
    const number x = as::of(at.panel[i * width + c] * scale, T(0));
    sum = as::plus_product(sum, x, x);
  }
  sum = group_total(at, me, sum);
  const number top = as::of(at.panel[c * width + c] * scale, T(0));
  number norm = tiny ? as::of(T(0), T(0)) : as::root(sum);
  if (as::high(top) >= T(0)) norm = as::minus(as::of(T(0), T(0)), norm);
  const number gap = as::minus(top, norm);
  const number inverse = as::over(as::of(T(1), T(0)), gap);
  const T factor = tiny ? T(0) : as::high(as::over(as::minus(norm, top), norm));
  threadgroup_barrier(mem_flags::mem_threadgroup); // all have read the top
  for (int i = c + me.index; i < rows; i += me.count) {
    const number x = as::of(at.panel[i * width + c] * scale, T(0));
    T y = tiny ? T(0) : as::high(as::times(x, inverse));
    if (i == c && !tiny) y = as::high(norm) * back;
    if (i == c && tiny) y = at.panel[i * width + c];
    at.panel[i * width + c] = y;
  }
  if (me.index == 0) taus[left + c] = factor;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int j = c + 1 + me.simd; j < width; j += me.simds) { // a simdgroup a column
    number along = as::of(T(0), T(0));
    for (int i = c + me.lane; i < rows; i += 32)
      along = as::plus_product(along, as::of(i == c ? T(1) : at.panel[i * width + c], T(0)), as::of(at.panel[i * width + j], T(0)));
    along = as::times(simd_total(along), as::of(factor, T(0)));
    for (int i = c + me.lane; i < rows; i += 32)
      at.panel[i * width + j] = as::high(as::minus_product(as::of(at.panel[i * width + j], T(0)), along, as::of(i == c ? T(1) : at.panel[i * width + c], T(0))));
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return factor == T(0);
}

// S, upper triangular, with I - V S V^T the product of the panel's reflectors in order (LAPACK's larft). The products of
// the columns of V come first, a simdgroup a pair; then one thread makes the triangle of them.
inline void panel_triangle(places at, member me, const device T *taus, int left, int m, int width)
{
  const int rows = m - left;
  for (int pair = me.simd; pair < width * width; pair += me.simds) {
    const int i = pair / width, j = pair % width;
    if (i >= j) continue;
    number sum = as::of(T(0), T(0));
    for (int row = j + me.lane; row < rows; row += 32)
      sum = as::plus_product(sum, as::of(at.panel[row * width + i], T(0)), as::of(at.panel[row * width + j], T(0)));
    sum = simd_total(sum);
    if (me.lane == 0) at.small[pair] = as::high(sum);
  }
  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  if (me.index == 0)
    for (int j = 0; j < width; j++) {
      const T factor = taus[left + j];
      T products[PANEL];
      for (int i = 0; i < j; i++) products[i] = at.small[i * width + j];
      for (int i = 0; i < j; i++) {
        number sum = as::of(T(0), T(0));
        for (int p = i; p < j; p++) sum = as::plus_product(sum, as::of(at.small[i * width + p], T(0)), as::of(products[p], T(0)));
        at.small[i * width + j] = -factor * as::high(sum);
      }
      at.small[j * width + j] = factor;
    }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// 32 columns from `tile`, rows from `left`, of a matrix whose rows have n: x -= V S' V^T x, with S' = S^T where the
// reflectors are applied first to last, S where last to first.
inline void tile_apply(places at, member me, device T *x, int n, int tile, int left, int m, int width, bool forward)
{
  const int rows = m - left, column = tile + me.lane;
  number sum[PANEL];
  for (int p = 0; p < PANEL; p++) sum[p] = as::of(T(0), T(0));
  for (int i = me.simd; i < rows && column < n; i += me.simds) {
    const number y = as::of(x[long(left + i) * n + column], T(0));
    for (int p = 0; p < PANEL; p++)
      if (p < width) sum[p] = as::plus_product(sum[p], as::of(at.panel[i * width + p], T(0)), y);
  }
  for (int p = 0; p < PANEL; p++) {
    at.parts[(me.simd * PANEL + p) * 32 + me.lane] = as::high(sum[p]);
    if (EXTENDED) at.parts_low[(me.simd * PANEL + p) * 32 + me.lane] = as::low(sum[p]);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int p = 0; p < PANEL; p++) {
    sum[p] = as::of(T(0), T(0));
    for (int s = 0; s < me.simds; s++) {
      const int from = (s * PANEL + p) * 32 + me.lane;
      sum[p] = as::plus(sum[p], as::of(at.parts[from], EXTENDED ? at.parts_low[from] : T(0)));
    }
  }
  number by[PANEL];
  for (int p = 0; p < PANEL; p++) {
    by[p] = as::of(T(0), T(0));
    for (int o = 0; o < PANEL; o++)
      if (p < width && o < width && (forward ? o <= p : o >= p))
        by[p] = as::plus_product(by[p], as::of(forward ? at.small[o * width + p] : at.small[p * width + o], T(0)), sum[o]);
  }
  for (int i = me.simd; i < rows && column < n; i += me.simds) {
    number y = as::of(x[long(left + i) * n + column], T(0));
    for (int p = 0; p < PANEL; p++)
      if (p < width) y = as::minus_product(y, as::of(at.panel[i * width + p], T(0)), by[p]);
    x[long(left + i) * n + column] = as::high(y);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup); // before the sums are another tile's
}

// Column c of Q once more against those before it, then to length 1: Gram and Schmidt's step, in tiles of PANEL columns.
inline void again(places at, member me, device T *Q, int m, int k, int c)
{
  for (int left = 0; left < c; left += PANEL) {
    number sum[PANEL];
    for (int p = 0; p < PANEL; p++) sum[p] = as::of(T(0), T(0));
    for (int i = me.index; i < m; i += me.count)
      for (int p = 0; p < PANEL; p++)
        if (left + p < c) sum[p] = as::plus_product(sum[p], as::of(Q[long(i) * k + left + p], T(0)), as::of(Q[long(i) * k + c], T(0)));
    for (int p = 0; p < PANEL; p++) sum[p] = group_total(at, me, sum[p]);
    for (int i = me.index; i < m; i += me.count) {
      number y = as::of(Q[long(i) * k + c], T(0));
      for (int p = 0; p < PANEL; p++)
        if (left + p < c) y = as::minus_product(y, sum[p], as::of(Q[long(i) * k + left + p], T(0)));
      Q[long(i) * k + c] = as::high(y);
    }
  }
  number square = as::of(T(0), T(0));
  for (int i = me.index; i < m; i += me.count) {
    const number y = as::of(Q[long(i) * k + c], T(0));
    square = as::plus_product(square, y, y);
  }
  const number norm = as::root(group_total(at, me, square));
  for (int i = me.index; i < m; i += me.count) Q[long(i) * k + c] = as::high(as::over(as::of(Q[long(i) * k + c], T(0)), norm));
}
