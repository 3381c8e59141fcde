// One threadgroup a matrix, one panel of columns after the other. A panel lies in threadgroup memory, where its
// reflectors are made column by column; the columns right of it are then updated in tiles of 32, a lane a column and
// the rows shared out over the simdgroups, by I - V S V^T with the panel's small triangle S. Q is made the same way from
// the identity, the last panel first. Reflectors and their factors stay in `reflectors` and `tau`, as LAPACK keeps them.
const int m = a_shape[1], n = a_shape[2], k = metal::min(m, n);
const ulong matrix = threadgroup_position_in_grid.x;
device T *work = reflectors + matrix * m * n, *Q = q + matrix * m * k, *taus = tau + matrix * k;
device float *health = dbg + matrix * 16;
const member me = {int(thread_index_in_threadgroup), int(threads_per_threadgroup.x), int(thread_index_in_simdgroup),
                   int(simdgroup_index_in_threadgroup), int(simdgroups_per_threadgroup)};
threadgroup T panel[PANEL_FLOATS];             // [row][column], `width` columns
threadgroup T parts[SIMDS * PANEL * 32];       // sums of a tile: [simdgroup][reflector][lane]
threadgroup T parts_low[EXTENDED ? SIMDS * PANEL * 32 : 1];
threadgroup T small[PANEL * PANEL];            // S
threadgroup T scratch[2 * SIMDS * PANEL + 2];  // sums of a column
const places at = {panel, parts, parts_low, small, scratch};

const int rows_most = PANEL_FLOATS;
const bool fits = m <= rows_most && me.simds <= SIMDS;
if (me.index == 0) {
  const float start[16] = {fits ? 1.0f : 0.0f, float(m), float(n), float(k), 0.0f, float(me.count),
                           float(threads_per_grid.x), metal::ceil(float(m) / float(me.simds))};
  for (int i = 0; i < 16; i++) health[i] = start[i];
  if (!fits) {
    health[13] = 1.0f;
    health[14] = float(m);
  }
}
if (!fits) return;

for (long i = me.index; i < long(m) * n; i += me.count) work[i] = a[matrix * m * n + i];
const int most = metal::min(PANEL, PANEL_FLOATS / m);
threadgroup_barrier(mem_flags::mem_device);

int dependent = 0;
for (int left = 0; left < k; left += most) {
  const int width = metal::min(most, k - left);
  panel_load(at, me, work, n, left, left, m, width);
  for (int c = 0; c < width; c++) dependent += panel_column(at, me, taus, left, m, width, c);
  panel_store(at, me, work, n, left, m, width);
  panel_triangle(at, me, taus, left, m, width);
  for (int tile = left + width; tile < n; tile += 32) tile_apply(at, me, work, n, tile, left, m, width, true);
  threadgroup_barrier(mem_flags::mem_device);
}
bool finite = true;
for (long i = me.index; i < long(k) * n; i += me.count) {
  const T x = i % n < i / n ? T(0) : work[i];
  finite &= metal::isfinite(x);
  r[matrix * k * n + i] = x;
}

for (long i = me.index; i < long(m) * k; i += me.count) Q[i] = T(i / k == i % k);
threadgroup_barrier(mem_flags::mem_device);
for (int left = (k - 1) / most * most; left >= 0; left -= most) {
  const int width = metal::min(most, k - left);
  panel_load(at, me, work, n, left, left, m, width);
  panel_unit(at, me, m - left, width);
  panel_triangle(at, me, taus, left, m, width);
  for (int tile = left; tile < k; tile += 32) tile_apply(at, me, Q, k, tile, left, m, width, false);
  threadgroup_barrier(mem_flags::mem_device);
}
if (REORTHOGONALISE) {
  for (int c = 0; c < k; c++) again(at, me, Q, m, k, c);
  threadgroup_barrier(mem_flags::mem_device);
}

for (long i = me.index; i < long(m) * k; i += me.count) finite &= metal::isfinite(Q[i]);
finite = group_all(at, me, finite);
if (me.index == 0) {
  health[8] = float(dependent);
  health[9] = float(most);
  health[12] = float(k);
  health[13] = finite ? 0.0f : 5.0f;
  health[15] = finite ? 1.0f : 0.0f;
}
