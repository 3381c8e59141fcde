// A thread takes WIDTH neighbours: 16 bytes of floats in one access. The last one may have fewer, and arrays that do
// not begin at a whole vector are taken one by one.
typedef pack<T, WIDTH> vec;
const uint n = inp_shape[0], i = thread_position_in_grid.x * WIDTH;
const bool aligned = ((uintptr_t)inp | (uintptr_t)out) % sizeof(vec) == 0;
if (aligned && n - i >= WIDTH) {
  vec v = *(const device vec *)(inp + i);
  for (uint k = 0; k < WIDTH; k++) v.at[k] = metal::exp(v.at[k]);
  *(device vec *)(out + i) = v;
} else {
  for (uint k = i; k < n && k - i < WIDTH; k++) out[k] = metal::exp(inp[k]);
}
