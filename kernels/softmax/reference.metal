// One thread a row, one element after the other.
const int n = inp_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
auto top = inp[first];
for (int k = 1; k < n; k++)
  if (!(inp[first + k] <= top)) top = inp[first + k];
auto sum = top - top;
for (int k = 0; k < n; k++) sum += metal::exp(inp[first + k] - top);
for (int k = 0; k < n; k++) out[first + k] = metal::exp(inp[first + k] - top) / sum;
