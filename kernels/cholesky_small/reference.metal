// One thread a matrix, element after element. A matrix with a pivot that is not positive is NaN, as the kernel says it.
const long n = a_shape[1], first = long(thread_position_in_grid.x) * n * n;
bool failed = false;
for (long i = 0; i < n; i++)
  for (long j = 0; j < n; j++) {
    l[first + i * n + j] = 0;
    if (j > i) continue;
    auto sum = a[first + i * n + j];
    for (long k = 0; k < j; k++) sum -= l[first + i * n + k] * l[first + j * n + k];
    failed |= i == j && !(sum > 0);
    l[first + i * n + j] = i == j ? metal::sqrt(sum) : sum / l[first + j * n + j];
  }
for (long i = 0; i < n; i++)
  for (long j = 0; j <= i; j++)
    if (failed) l[first + i * n + j] = NAN;
for (int k = 0; k < 16; k++) dbg[long(thread_position_in_grid.x) * 16 + k] = 0;
