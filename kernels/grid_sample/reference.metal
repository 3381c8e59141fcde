// One thread an output, straight from the definition.
const int height = x_shape[1], width = x_shape[2], channels = x_shape[3];
const long i = thread_position_in_grid.x, which = i / channels, channel = i % channels;
const long image = which / (grid_shape[1] * grid_shape[2]);
const auto px = (grid[2 * which] + 1) * width / 2 - 0.5;
const auto py = (grid[2 * which + 1] + 1) * height / 2 - 0.5;
auto sum = px;
sum = 0;
if (px > -1 && px < width && py > -1 && py < height)
  for (int v = int(metal::floor(py)); v <= int(metal::floor(py)) + 1; v++)
    for (int u = int(metal::floor(px)); u <= int(metal::floor(px)) + 1; u++)
      if (u >= 0 && u < width && v >= 0 && v < height)
        sum += (1 - metal::abs(px - u)) * (1 - metal::abs(py - v)) * x[((image * height + v) * width + u) * channels + channel];
out[i] = sum;
