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
