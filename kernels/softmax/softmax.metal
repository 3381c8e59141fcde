// One threadgroup a row. Of a row, what ITEMS vectors a thread can hold is read once; the rest of a longer row is read
// again in each of the three passes.
typedef pack<T, WIDTH> vec;
constexpr int ITEMS = 16 / WIDTH;
const int n = inp_shape[1] / WIDTH; // vectors in a row
const int t = thread_index_in_threadgroup, threads = threads_per_threadgroup.x;
const member me = {thread_index_in_simdgroup, simdgroup_index_in_threadgroup, simdgroups_per_threadgroup};
const ulong row = threadgroup_position_in_grid.x;
const device vec *from = (const device vec *)(inp + row * inp_shape[1]);
device vec *to = (device vec *)(out + row * inp_shape[1]);
threadgroup float parts[64]; // 32 for each reduction, so that none waits for the other's readers

float held[ITEMS][WIDTH], top = -INFINITY;
for (int k = 0; k < ITEMS; k++) {
  if (t + k * threads >= n) continue;
  const vec v = from[t + k * threads];
  for (int j = 0; j < WIDTH; j++) {
    held[k][j] = float(v.at[j]);
    top = metal::max(top, held[k][j]);
  }
}
for (int i = t + ITEMS * threads; i < n; i += threads) {
  const vec v = from[i];
  for (int j = 0; j < WIDTH; j++) top = metal::max(top, float(v.at[j]));
}
top = group_max(top, parts, me);

float sum = 0.0f;
for (int k = 0; k < ITEMS; k++) {
  if (t + k * threads >= n) continue;
  for (int j = 0; j < WIDTH; j++) {
    held[k][j] = metal::exp(held[k][j] - top);
    sum += held[k][j];
  }
}
for (int i = t + ITEMS * threads; i < n; i += threads) {
  const vec v = from[i];
  for (int j = 0; j < WIDTH; j++) sum += metal::exp(float(v.at[j]) - top);
}
const float share = 1.0f / group_sum(sum, parts + 32, me);

for (int k = 0; k < ITEMS; k++) {
  if (t + k * threads >= n) continue;
  vec v;
  for (int j = 0; j < WIDTH; j++) v.at[j] = T(held[k][j] * share);
  to[t + k * threads] = v;
}
for (int i = t + ITEMS * threads; i < n; i += threads) {
  vec v = from[i];
  for (int j = 0; j < WIDTH; j++) v.at[j] = T(metal::exp(float(v.at[j]) - top) * share);
  to[i] = v;
}
