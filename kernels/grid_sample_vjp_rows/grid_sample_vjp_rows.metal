// A thread owns ROWS rows of one image, goes through all of its samples and takes those whose squares touch its rows:
// nobody else adds to these pixels, so plain additions do, in the samples' order. What flows to a sample's place is
// written once, by the owner of its upper row. For processors, whose few threads each do much and keep their rows in
// cache; a GPU wants grid_sample_vjp's many.
const int height = x_shape[1], width = x_shape[2], owners = (height + ROWS - 1) / ROWS;
const long per_image = long(grid_shape[1]) * grid_shape[2];
const long image = thread_position_in_grid.x / uint(owners), end = (image + 1) * per_image;
const int first = int(thread_position_in_grid.x % uint(owners)) * ROWS, last = metal::min(first + ROWS, height);
const int above = first == 0 ? -2 : first; // the first owner writes what flows to samples above and outside, too
const int least = first == 0 ? -2 : first - 1;
const device T *pixels = x + image * height * width * C;
device T *grad = x_grad + image * height * width * C;
for (long at = long(first) * width * C; at < long(last) * width * C; at++) grad[at] = T(0.0f);

for (long begin = image * per_image; begin < end; begin += BATCH) {
  const long stop = metal::min(begin + BATCH, end);
  if (stop == begin + BATCH && !any_between<BATCH>(grid + 2 * begin, height, least, last)) continue;
  for (long which = begin; which < stop; which++) {
    const square s = square_of(grid[2 * which], grid[2 * which + 1], width, height);
    if (s.y < least || s.y >= last) continue;
    const device T *flow = cotangent + which * C;
    const long up = (long(s.y) * width + s.x) * C, down = up + long(width) * C; // the left pixels
    const bool whole = is_inside(s, 0, width, height) && is_inside(s, 3, width, height);
    if (whole && s.y >= first && s.y + 1 < last) {
      const float a = weight_of(s, 0), b = weight_of(s, 1), d = weight_of(s, 2), e = weight_of(s, 3);
      for (int c = 0; c < C; c++) {
        grad[up + c] += T(a * float(flow[c]));
        grad[up + C + c] += T(b * float(flow[c]));
      }
      for (int c = 0; c < C; c++) {
        grad[down + c] += T(d * float(flow[c]));
        grad[down + C + c] += T(e * float(flow[c]));
      }
    } else {
      for (int k = 0; k < 4; k++) {
        const int row = s.y + (k >> 1);
        if (!is_inside(s, k, width, height) || row < first || row >= last) continue;
        const long at = (k >> 1 ? down : up) + (k & 1) * C;
        const float weight = weight_of(s, k);
        for (int c = 0; c < C; c++) grad[at + c] += T(weight * float(flow[c]));
      }
    }
    if (s.y < above) continue;
    float along_x[C], along_y[C];
    if (whole) {
      for (int c = 0; c < C; c++) {
        const float a = float(pixels[up + c]), b = float(pixels[up + C + c]);
        const float d = float(pixels[down + c]), e = float(pixels[down + C + c]);
        along_x[c] = ((1.0f - s.down) * (b - a) + s.down * (e - d)) * float(flow[c]);
        along_y[c] = ((1.0f - s.right) * (d - a) + s.right * (e - b)) * float(flow[c]);
      }
    } else {
      for (int c = 0; c < C; c++) along_x[c] = along_y[c] = 0.0f;
      for (int k = 0; k < 4; k++) {
        if (!is_inside(s, k, width, height)) continue;
        const long at = (k >> 1 ? down : up) + (k & 1) * C;
        const float across = (k & 1 ? 1.0f : -1.0f) * (k >> 1 ? s.down : 1.0f - s.down);
        const float along = (k >> 1 ? 1.0f : -1.0f) * (k & 1 ? s.right : 1.0f - s.right);
        for (int c = 0; c < C; c++) {
          along_x[c] += across * float(pixels[at + c]) * float(flow[c]);
          along_y[c] += along * float(pixels[at + c]) * float(flow[c]);
        }
      }
    }
    grid_grad[2 * which] = sum_of(along_x) * (0.5f * float(width));
    grid_grad[2 * which + 1] = sum_of(along_y) * (0.5f * float(height));
  }
}
