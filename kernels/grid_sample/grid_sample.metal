// A thread computes WIDTH channels of one sample. Each corner is tested before it is read.
typedef pack<T, WIDTH> vec;
const int height = x_shape[1], width = x_shape[2];
const uint vectors = C / WIDTH; // of a pixel
const uint which = thread_position_in_grid.x / vectors, channel = thread_position_in_grid.x % vectors;
const uint image = which / uint(grid_shape[1] * grid_shape[2]);
const square s = square_of(float(grid[2 * ulong(which)]), float(grid[2 * ulong(which) + 1]), width, height);
const device vec *pixels = (const device vec *)x + channel;

vec corner[4];
for (int k = 0; k < 4; k++) {
  const long at = (long(image) * height + s.y + (k >> 1)) * width + s.x + (k & 1);
  for (int j = 0; j < WIDTH; j++) corner[k].at[j] = T(0.0f);
  if (s.inside[k]) corner[k] = pixels[at * vectors];
}
vec result;
for (int j = 0; j < WIDTH; j++) {
  float sum = 0.0f;
  for (int k = 0; k < 4; k++) sum = metal::fma(weight_of(s, k), float(corner[k].at[j]), sum);
  result.at[j] = T(sum);
}
((device vec *)out)[ulong(which) * vectors + channel] = result;
