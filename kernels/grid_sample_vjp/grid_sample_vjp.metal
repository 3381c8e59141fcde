// The 32 lanes of a simdgroup share a sample, its channels padded to 32: a lane takes every 32nd. What flows to the
// image is added atomically, as samples overlap; what flows to the sample's place is summed over the lanes, in one order.
const int height = x_shape[1], width = x_shape[2];
const uint which = thread_position_in_grid.x / 32, lane = thread_index_in_simdgroup;
const uint image = which / uint(grid_shape[1] * grid_shape[2]);
const square s = square_of(float(grid[2 * ulong(which)]), float(grid[2 * ulong(which) + 1]), width, height);

float product[4] = {0.0f, 0.0f, 0.0f, 0.0f}; // of cotangent and corner, over this lane's channels
for (int channel = lane; channel < C; channel += 32) {
  const float flow = float(cotangent[ulong(which) * C + channel]);
  for (int k = 0; k < 4; k++) {
    if (!s.inside[k]) continue;
    const long at = ((long(image) * height + s.y + (k >> 1)) * width + s.x + (k & 1)) * C + channel;
    product[k] = metal::fma(float(x[at]), flow, product[k]);
    atomic_fetch_add_explicit(&x_grad[at], T(weight_of(s, k) * flow), memory_order_relaxed);
  }
}
const float along_x = (1.0f - s.down) * (product[1] - product[0]) + s.down * (product[3] - product[2]);
const float along_y = (1.0f - s.right) * (product[2] - product[0]) + s.right * (product[3] - product[1]);
const float sum_x = simd_sum(along_x), sum_y = simd_sum(along_y);
if (lane == 0) {
  grid_grad[2 * ulong(which)] = sum_x * (0.5f * float(width));
  grid_grad[2 * ulong(which) + 1] = sum_y * (0.5f * float(height));
}
