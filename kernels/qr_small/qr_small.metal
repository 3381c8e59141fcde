// A simdgroup a matrix of at most 32 x 32, a column a lane, in registers. In a step, the column that is cleared goes to
// threadgroup memory, where all lanes make its reflector, a row each, and then apply it, a column each. Q is made by
// applying the reflectors to the identity, the last one first. Every loop over rows has all M of them, so that registers
// keep fixed numbers.
constexpr int K = M < N ? M : N;
const int lane = thread_index_in_simdgroup, simd = simdgroup_index_in_threadgroup;
const ulong matrix = thread_position_in_grid.x / 32;
device float *health = dbg + matrix * 16;
if (M > 32 || N > 32) {
  if (lane == 0)
    for (int k = 0; k < 16; k++) health[k] = k == 13 ? 1.0f : k == 14 ? float(metal::max(M, N)) : 0.0f;
  return;
}
threadgroup T high[SIMDS * K * M], low[EXTENDED ? SIMDS * K * M : 1], taus[SIMDS * K * 2];
threadgroup T *v = high + simd * K * M, *v_low = low + (EXTENDED ? simd * K * M : 0), *tau_of = taus + simd * K * 2;

number column[M];
#pragma unroll
for (int i = 0; i < M; i++) column[i] = as::of(lane < N ? a[(matrix * M + i) * N + lane] : T(0), T(0));

int dependent = 0; // columns whose remainder is all zeros
for (int k = 0; k < K; k++) {
  if (lane == k) {
#pragma unroll
    for (int i = 0; i < M; i++) {
      v[k * M + i] = as::high(column[i]);
      if (EXTENDED) v_low[k * M + i] = as::low(column[i]);
    }
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  // Here a lane is a row. All is scaled by a power of two near the largest, so that squares neither overflow nor vanish;
  // a remainder of zeros, or of subnormals, is left as it is.
  const bool mine = lane >= k && lane < M;
  number x = as::of(mine ? v[k * M + lane] : T(0), EXTENDED && mine ? v_low[k * M + lane] : T(0));
  const T largest = simd_max(metal::abs(as::high(x)));
  const bool tiny = !(largest >= T(1.17549435e-38f));
  const int exponent = tiny ? 0 : exponent_of(largest);
  x = as::of(as::high(x) * power_of_two(-exponent), as::low(x) * power_of_two(-exponent));
  number sum = as::times(x, x);
  for (uint step = 16; step > 0; step /= 2) sum = as::plus(sum, as::shuffle_xor(sum, step));
  const number top = as::shuffle(x, k), zero = as::of(T(0), T(0));
  number norm = tiny ? zero : as::root(sum);
  if (as::high(top) >= T(0)) norm = as::minus(zero, norm); // away from the top, so that nothing cancels
  const number inverse = as::over(as::of(T(1), T(0)), as::minus(top, norm));
  const number tau = tiny ? zero : as::over(as::minus(norm, top), norm);
  x = tiny ? zero : as::times(x, inverse);
  if (lane < M) {
    v[k * M + lane] = lane == k ? T(1) : lane > k ? as::high(x) : T(0);
    if (EXTENDED) v_low[k * M + lane] = lane > k ? as::low(x) : T(0);
  }
  if (lane == 0) {
    tau_of[2 * k] = as::high(tau);
    tau_of[2 * k + 1] = as::low(tau);
  }
  if (lane == k) {
    norm = as::of(as::high(norm) * power_of_two(exponent), as::low(norm) * power_of_two(exponent));
#pragma unroll
    for (int i = 0; i < M; i++) column[i] = i < k ? column[i] : i > k ? zero : tiny ? column[i] : norm;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  dependent += as::high(tau) == T(0);
  if (lane > k) {
    number along = as::of(T(0), T(0)), other = along; // two chains, so that one's additions hide behind the other's
#pragma unroll
    for (int i = 0; i < M; i += 2) {
      along = as::plus_product(along, as::of(v[k * M + i], EXTENDED ? v_low[k * M + i] : T(0)), column[i]);
      if (i + 1 < M)
        other = as::plus_product(other, as::of(v[k * M + i + 1], EXTENDED ? v_low[k * M + i + 1] : T(0)), column[i + 1]);
    }
    along = as::times(as::plus(along, other), tau);
#pragma unroll
    for (int i = 0; i < M; i++)
      column[i] = as::minus_product(column[i], along, as::of(v[k * M + i], EXTENDED ? v_low[k * M + i] : T(0)));
  }
}
bool finite = true;
if (lane < N)
  for (int i = 0; i < K; i++) {
    r[(matrix * K + i) * N + lane] = i > lane ? T(0) : as::high(column[i]);
    finite &= metal::isfinite(as::high(column[i]));
  }

#pragma unroll
for (int i = 0; i < M; i++) column[i] = as::of(i == lane ? T(1) : T(0), T(0));
for (int k = K - 1; k >= 0; k--) {
  const number tau = as::of(tau_of[2 * k], tau_of[2 * k + 1]);
  number along = as::of(T(0), T(0)), other = along;
#pragma unroll
  for (int i = 0; i < M; i += 2) {
    along = as::plus_product(along, as::of(v[k * M + i], EXTENDED ? v_low[k * M + i] : T(0)), column[i]);
    if (i + 1 < M)
      other = as::plus_product(other, as::of(v[k * M + i + 1], EXTENDED ? v_low[k * M + i + 1] : T(0)), column[i + 1]);
  }
  along = as::times(as::plus(along, other), tau);
#pragma unroll
  for (int i = 0; i < M; i++)
    column[i] = as::minus_product(column[i], along, as::of(v[k * M + i], EXTENDED ? v_low[k * M + i] : T(0)));
}
if (lane < K)
#pragma unroll
  for (int i = 0; i < M; i++) {
    q[(matrix * M + i) * K + lane] = as::high(column[i]);
    finite &= metal::isfinite(as::high(column[i]));
  }
finite = simd_all(finite);
if (lane == 0) {
  const float report[16] = {1.0f, M, N, K, 0.0f, float(threads_per_threadgroup.x), float(threads_per_grid.x), M,
                            float(dependent), 0.0f, 0.0f, 0.0f, K, finite ? 0.0f : 5.0f, 0.0f, finite ? 1.0f : 0.0f};
  for (int k = 0; k < 16; k++) health[k] = report[k];
}
