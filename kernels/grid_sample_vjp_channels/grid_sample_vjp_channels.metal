// A thread owns WIDTH channels of one image and goes through all of its samples: nobody else adds to these pixels, so
// plain additions do. A sample's place gets a part from each such thread, atomically. For processors, whose few threads
// each do much; a GPU wants grid_sample_vjp's many.
const int height = x_shape[1], width = x_shape[2];
const uint per_image = grid_shape[1] * grid_shape[2], owners = C / WIDTH;
const uint image = thread_position_in_grid.x / owners, channel = thread_position_in_grid.x % owners * WIDTH;
for (uint which = image * per_image; which < (image + 1) * per_image; which++) {
  const square s = square_of(float(grid[2 * ulong(which)]), float(grid[2 * ulong(which) + 1]), width, height);
  const device T *flow = cotangent + ulong(which) * C + channel;
  float across[WIDTH], along[WIDTH]; // how each channel's sample changes to the right and down
  for (int j = 0; j < WIDTH; j++) across[j] = along[j] = 0.0f;
  for (int k = 0; k < 4; k++) {
    if (!s.inside[k]) continue;
    const long at = ((long(image) * height + s.y + (k >> 1)) * width + s.x + (k & 1)) * C + channel;
    const float weight = weight_of(s, k);
    const float right = (k & 1 ? 1.0f : -1.0f) * (k >> 1 ? s.down : 1.0f - s.down);
    const float down = (k >> 1 ? 1.0f : -1.0f) * (k & 1 ? s.right : 1.0f - s.right);
    for (int j = 0; j < WIDTH; j++) {
      x_grad[at + j] += T(weight * float(flow[j]));
      across[j] += right * float(x[at + j]);
      along[j] += down * float(x[at + j]);
    }
  }
  float sum_x[4] = {0.0f, 0.0f, 0.0f, 0.0f}, sum_y[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int j = 0; j < WIDTH; j++) {
    sum_x[j % 4] += across[j] * float(flow[j]);
    sum_y[j % 4] += along[j] * float(flow[j]);
  }
  const float along_x = (sum_x[0] + sum_x[1]) + (sum_x[2] + sum_x[3]);
  const float along_y = (sum_y[0] + sum_y[1]) + (sum_y[2] + sum_y[3]);
  atomic_fetch_add_explicit(&grid_grad[2 * ulong(which)], along_x * (0.5f * float(width)), memory_order_relaxed);
  atomic_fetch_add_explicit(&grid_grad[2 * ulong(which) + 1], along_y * (0.5f * float(height)), memory_order_relaxed);
}
