// Where a sample lies: the square of four pixels about it, and how far it is to the right and down in it. `inside` of
// corner 0 is left and up, of 1 right and up, of 2 left and down, of 3 right and down.
struct square {
  int x, y;
  float right, down;
  bool inside[4];
};

// Coordinates from -1 to 1 span the image, whose pixels are areas (align_corners false): 0.5 * width is a half for odd
// widths, too. Comparing as floats keeps NaN and what no int holds outside before anything is made an int.
inline square square_of(float gx, float gy, int width, int height)
{
  square s;
  const float px = (gx + 1.0f) * (0.5f * float(width)) - 0.5f, py = (gy + 1.0f) * (0.5f * float(height)) - 0.5f;
  const float left = metal::floor(px), up = metal::floor(py);
  const bool near = left >= -1.0f && left < float(width) && up >= -1.0f && up < float(height);
  s.x = near ? int(left) : -2;
  s.y = near ? int(up) : -2;
  s.right = near ? px - left : 0.0f;
  s.down = near ? py - up : 0.0f;
  for (int k = 0; k < 4; k++) {
    const int x = s.x + (k & 1), y = s.y + (k >> 1);
    s.inside[k] = near && x >= 0 && x < width && y >= 0 && y < height;
  }
  return s;
}

inline float weight_of(square s, int k)
{
  return (k & 1 ? s.right : 1.0f - s.right) * (k >> 1 ? s.down : 1.0f - s.down);
}
