// The input comes as it is, whatever its strides; the output is row-major.
const uint elem = thread_position_in_grid.x;
const auto loc = elem_to_loc(elem, inp_shape, inp_strides, inp_ndim);
out[elem] = metal::exp(inp[loc]);
