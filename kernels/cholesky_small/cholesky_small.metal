// LANES neighbours in a simdgroup share a matrix: a lane holds one row of it in registers, and columns go round by
// shuffles. N is at most LANES, LANES a power of two.
constexpr int WIDTH = N % 4 == 0 ? 4 : 1;
typedef pack<T, WIDTH> vec;
const uint row = thread_position_in_grid.x % LANES, first = thread_index_in_simdgroup & ~uint(LANES - 1); // row 0's lane
const ulong matrix = thread_position_in_grid.x / LANES;
const uint mine = metal::min(row, uint(N - 1)); // lanes without a row do as the last one does, and write nothing
if (N > 32) { // matrix too large
  if (row == 0)
    for (int k = 0; k < 16; k++) dbg[matrix * 16 + k] = k == 13 ? 1.0f : k == 14 ? float(N) : 0.0f;
  return;
}

number part[N];
const device vec *from = (const device vec *)(a + (matrix * N + mine) * N);
#pragma unroll
for (int j = 0; j < N / WIDTH; j++) {
  const vec v = from[j];
  for (int i = 0; i < WIDTH; i++) part[j * WIDTH + i] = as::of(v.at[i], T(0));
}

int failed = 0; // the first pivot that is not positive, counted from 1
T least = INFINITY;
#pragma unroll
for (int k = 0; k < N; k++) {
  const number pivot = as::shuffle(part[k], first + k);
  if (!(as::high(pivot) > T(0)) && failed == 0) failed = k + 1;
  least = metal::min(least, as::high(pivot));
  const number root = as::root(pivot), inverse = as::over(as::of(T(1), T(0)), root);
  part[k] = mine == uint(k) ? root : as::times(part[k], inverse);
#pragma unroll
  for (int j = k + 1; j < N; j++) {
    const number other = as::shuffle(part[k], first + j);
    part[j] = as::minus_product(part[j], part[k], other);
  }
}

if (row < N) {
  device vec *to = (device vec *)(l + (matrix * N + row) * N);
#pragma unroll
  for (int j = 0; j < N / WIDTH; j++) {
    vec v;
    for (int i = 0; i < WIDTH; i++) {
      const uint column = j * WIDTH + i;
      v.at[i] = column > row ? T(0) : failed ? T(NAN) : as::high(part[column]);
    }
    to[j] = v;
  }
}
if (row == 0) {
  const float health[16] = {1.0f, N, N, N, 0.0f, float(threads_per_threadgroup.x), float(threads_per_grid.x), N,
                            float(least), 0.0f, 0.0f, 0.0f, N, failed ? 4.0f : 0.0f, float(failed), failed ? 0.0f : 1.0f};
  for (int k = 0; k < 16; k++) dbg[matrix * 16 + k] = health[k];
}
