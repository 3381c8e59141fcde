// A simdgroup a matrix of at most 32 x 32, a column a lane, in registers. A step's reflector is made by the lane whose
// column it clears and goes round through threadgroup memory; then Q is made by applying them to the identity, the last
// one first. Every loop over rows has all M of them, so that registers keep fixed numbers.
constexpr int K = M < N ? M : N;
const int lane = thread_index_in_simdgroup, simd = simdgroup_index_in_threadgroup;
const ulong matrix = thread_position_in_grid.x / 32;
device float *health = dbg + matrix * 16;
threadgroup T high[SIMDS * K * M], low[EXTENDED ? SIMDS * K * M : 1], taus[SIMDS * K * 2];
threadgroup T *v = high + simd * K * M, *v_low = low + (EXTENDED ? simd * K * M : 0), *tau_of = taus + simd * K * 2;

number column[M];
#pragma unroll
for (int i = 0; i < M; i++) column[i] = as::of(lane < N ? a[(matrix * M + i) * N + lane] : T(0), T(0));

int dependent = 0; // columns whose remainder is all zeros
for (int k = 0; k < K; k++) {
  T largest = T(0);
  number top = as::of(T(0), T(0));
#pragma unroll
  for (int i = 0; i < M; i++) {
    largest = i >= k ? metal::max(largest, metal::abs(as::high(column[i]))) : largest;
    if (i == k) top = column[i];
  }
  if (lane == k) {
    // Scaled by a power of two near the largest, so that squares neither overflow nor vanish; a remainder of zeros, or
    // of subnormals, is left as it is.
    const bool tiny = !(largest >= T(1.17549435e-38f));
    const int exponent = tiny ? 0 : exponent_of(largest);
    const T scale = power_of_two(-exponent), back = power_of_two(exponent);
    number sum = as::of(T(0), T(0));
#pragma unroll
    for (int i = 0; i < M; i++) {
      const number x = as::of(as::high(column[i]) * scale, as::low(column[i]) * scale);
      if (i >= k) sum = as::plus_product(sum, x, x);
      if (i == k) top = x;
    }
    number norm = tiny ? as::of(T(0), T(0)) : as::root(sum);
    if (as::high(top) >= T(0)) norm = as::minus(as::of(T(0), T(0)), norm); // away from the top, so that nothing cancels
    const number gap = as::minus(top, norm);
    const number inverse = as::over(as::of(T(1), T(0)), gap);
    const number tau = tiny ? as::of(T(0), T(0)) : as::over(as::minus(norm, top), norm);
#pragma unroll
    for (int i = 0; i < M; i++) {
      number x = as::of(as::high(column[i]) * scale, as::low(column[i]) * scale);
      x = tiny || i < k ? as::of(T(0), T(0)) : as::times(x, inverse);
      v[k * M + i] = i == k ? T(1) : as::high(x);
      if (EXTENDED) v_low[k * M + i] = i == k ? T(0) : as::low(x);
      if (i >= k && !tiny)
        column[i] = i == k ? as::of(as::high(norm) * back, as::low(norm) * back) : as::of(T(0), T(0));
      if (i > k && tiny) column[i] = as::of(T(0), T(0));
    }
    tau_of[2 * k] = as::high(tau);
    tau_of[2 * k + 1] = as::low(tau);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  const number tau = as::of(tau_of[2 * k], tau_of[2 * k + 1]);
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
if (lane < N)
  for (int i = 0; i < K; i++) r[(matrix * K + i) * N + lane] = i > lane ? T(0) : as::high(column[i]);

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
bool finite = true;
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
