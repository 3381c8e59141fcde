// One thread does everything, sample after sample, straight from the definition.
const int height = x_shape[1], width = x_shape[2], channels = x_shape[3];
const long per_image = long(grid_shape[1]) * grid_shape[2], samples = per_image * grid_shape[0];
for (long at = 0; at < long(x_shape[0]) * height * width * channels; at++) x_grad[at] = 0;
for (long which = 0; which < samples; which++) {
  const auto px = (grid[2 * which] + 1) * width / 2 - 0.5, py = (grid[2 * which + 1] + 1) * height / 2 - 0.5;
  auto sum_x = px, sum_y = py;
  sum_x = sum_y = 0;
  if (px >= -1 && px < width && py >= -1 && py < height)
    for (int v = int(metal::floor(py)); v <= int(metal::floor(py)) + 1; v++)
      for (int u = int(metal::floor(px)); u <= int(metal::floor(px)) + 1; u++)
        if (u >= 0 && u < width && v >= 0 && v < height)
          for (int c = 0; c < channels; c++) {
            const long at = (((which / per_image) * height + v) * width + u) * channels + c;
            const auto flow = cotangent[which * channels + c], wx = 1 - metal::abs(px - u), wy = 1 - metal::abs(py - v);
            x_grad[at] += wx * wy * flow;
            sum_x += (u > px ? 1 : -1) * wy * x[at] * flow;
            sum_y += (v > py ? 1 : -1) * wx * x[at] * flow;
          }
  grid_grad[2 * which] = sum_x * width / 2;
  grid_grad[2 * which + 1] = sum_y * height / 2;
}
