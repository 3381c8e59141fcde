// One threadgroup a matrix, one block of columns after the other. Of a block: every row's sums over the columns left of
// it, a thread a row; the diagonal block by one thread; then the rows below it are solved against it. In EXTENDED the
// low words of l lie in its upper triangle, mirrored, until the end.
constexpr int CHUNK = 32;
const int n = a_shape[1], t = thread_index_in_threadgroup, threads = threads_per_threadgroup.x;
const ulong matrix = threadgroup_position_in_grid.x;
const device T *from = a + matrix * n * n;
device T *to = l + matrix * n * n;
device float *health = dbg + matrix * 16;
threadgroup T tile[CHUNK * BLOCK], tile_low[EXTENDED ? CHUNK * BLOCK : 1]; // [column left][row of the block]
threadgroup T corner[BLOCK * BLOCK], corner_low[BLOCK * BLOCK];          // the diagonal block
threadgroup int failed[1];
threadgroup float least[1];

if (t == 0) {
  const float start[16] = {n <= LARGEST ? 1.0f : 0.0f, float(n), float(n), float(n), 0.0f, float(threads),
                           float(threads_per_grid.x), metal::ceil(float(n) / float(threads))};
  for (int k = 0; k < 16; k++) health[k] = start[k];
  failed[0] = 0;
  least[0] = INFINITY;
  if (n > LARGEST) {
    health[13] = 1.0f;
    health[14] = float(n);
  }
}
if (n > LARGEST) return;

for (int left = 0; left < n; left += BLOCK) {
  const int width = metal::min(BLOCK, n - left);
  for (int base = left; base < n; base += threads) {
    const int row = base + t;
    number sum[BLOCK];
    for (int j = 0; j < BLOCK; j++)
      sum[j] = as::of(row < n && j < width && left + j <= row ? from[long(row) * n + left + j] : T(0), T(0));

    for (int from_column = 0; from_column < left; from_column += CHUNK) {
      const int columns = metal::min(CHUNK, left - from_column);
      for (int k = t; k < CHUNK * BLOCK; k += threads) {
        const int p = from_column + k % CHUNK, r = left + k / CHUNK, at = k % CHUNK * BLOCK + k / CHUNK;
        const bool there = k % CHUNK < columns && r < n;
        tile[at] = there ? to[long(r) * n + p] : T(0);
        if (EXTENDED) tile_low[at] = there ? to[long(p) * n + r] : T(0);
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int p = 0; p < columns && row < n; p++) {
        const long at = from_column + p;
        const number mine = as::of(to[row * long(n) + at], EXTENDED ? to[at * n + row] : T(0));
        for (int j = 0; j < BLOCK; j++)
          sum[j] = as::minus_product(sum[j], mine, as::of(tile[p * BLOCK + j], EXTENDED ? tile_low[p * BLOCK + j] : T(0)));
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }

    if (base == left) {
      if (t < width)
        for (int j = 0; j < BLOCK; j++) {
          corner[t * BLOCK + j] = as::high(sum[j]);
          corner_low[t * BLOCK + j] = as::low(sum[j]);
        }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (t == 0)
        for (int j = 0; j < width; j++)
          for (int i = j; i < width; i++) {
            number s = as::of(corner[i * BLOCK + j], corner_low[i * BLOCK + j]);
            for (int k = 0; k < j; k++)
              s = as::minus_product(s, as::of(corner[i * BLOCK + k], corner_low[i * BLOCK + k]),
                                    as::of(corner[j * BLOCK + k], corner_low[j * BLOCK + k]));
            if (i == j) {
              if (!(as::high(s) > T(0)) && failed[0] == 0) failed[0] = left + j + 1;
              least[0] = metal::min(least[0], float(as::high(s)));
              s = as::root(s);
            } else
              s = as::over(s, as::of(corner[j * BLOCK + j], corner_low[j * BLOCK + j]));
            corner[i * BLOCK + j] = as::high(s);
            corner_low[i * BLOCK + j] = as::low(s);
          }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }

    if (row < left + width) { // of the diagonal block
      for (int j = 0; j <= row - left && row < n; j++) {
        to[long(row) * n + left + j] = corner[(row - left) * BLOCK + j];
        if (EXTENDED && left + j < row) to[long(left + j) * n + row] = corner_low[(row - left) * BLOCK + j];
      }
    } else if (row < n)
      for (int j = 0; j < BLOCK; j++) {
        if (j >= width) continue;
        for (int k = 0; k < j; k++)
          sum[j] = as::minus_product(sum[j], sum[k], as::of(corner[j * BLOCK + k], corner_low[j * BLOCK + k]));
        sum[j] = as::over(sum[j], as::of(corner[j * BLOCK + j], corner_low[j * BLOCK + j]));
        to[long(row) * n + left + j] = as::high(sum[j]);
        if (EXTENDED) to[long(left + j) * n + row] = as::low(sum[j]);
      }
    threadgroup_barrier(mem_flags::mem_device); // the next block reads what other threads wrote
  }
}

for (long k = t; k < long(n) * n; k += threads) {
  if (k % n > k / n) to[k] = T(0);
  else if (failed[0]) to[k] = T(NAN);
}
if (t == 0) {
  health[8] = least[0];
  health[12] = float(n);
  health[13] = failed[0] ? 4.0f : 0.0f;
  health[14] = float(failed[0]);
  health[15] = failed[0] ? 0.0f : 1.0f;
}
