enum { BATCH = 64 };

// Where a sample lies: the square of four pixels about it, and how far it is to the right and down in it. Corner 0 is
// left and up, 1 right and up, 2 left and down, 3 right and down.
struct square {
  int x, y;
  float right, down;
};

// Coordinates from -1 to 1 span the image, whose pixels are areas (align_corners false): 0.5 * extent is a half for odd
// extents, too.
inline float place_of(float coordinate, int extent)
{
  return (coordinate + 1.0f) * (0.5f * float(extent)) - 0.5f;
}

// The pixel before a place, which may be -1; -2 where no pixel is near. Comparing as floats keeps NaN and what no int
// holds outside before anything is made an int.
inline int pixel_before(float place, int extent)
{
  const float before = metal::floor(place);
  const bool near = int(before >= -1.0f) & int(before < float(extent)); // no branches: vectors do this
  return int(near ? before : -2.0f);
}

// Have of COUNT samples some their upper row from `least` to before `end`? Every second number of the grid is a place
// along y; taking all of them keeps the loop one that compilers make vectors of.
template <int COUNT> inline bool any_between(const device float *grid, int height, int least, int end)
{
  int any = 0;
  for (int j = 0; j < 2 * COUNT; j++) {
    const int row = pixel_before(place_of(grid[j], height), height);
    any |= int(row >= least) & int(row < end) & j;
  }
  return any & 1;
}

inline square square_of(float gx, float gy, int width, int height)
{
  const float px = place_of(gx, width), py = place_of(gy, height);
  square s;
  s.x = pixel_before(px, width);
  s.y = pixel_before(py, height);
  s.right = px - float(s.x);
  s.down = py - float(s.y);
  return s;
}

inline bool is_inside(square s, int k, int width, int height)
{
  const int x = s.x + (k & 1), y = s.y + (k >> 1);
  return x >= 0 && x < width && y >= 0 && y < height;
}

inline float weight_of(square s, int k)
{
  return (k & 1 ? s.right : 1.0f - s.right) * (k >> 1 ? s.down : 1.0f - s.down);
}

// The sum of C numbers: 16 sums side by side, then halves of these, so that it is the same on every machine and takes
// few steps where there are vectors.
inline float sum_of(const thread float *part)
{
  float sum[16] = {};
  for (int at = 0; at + 16 <= C; at += 16)
    for (int j = 0; j < 16; j++) sum[j] += part[at + j];
  for (int at = C / 16 * 16; at < C; at++) sum[at % 16] += part[at];
  for (int j = 0; j < 8; j++) sum[j] += sum[j + 8];
  for (int j = 0; j < 4; j++) sum[j] += sum[j + 4];
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}
