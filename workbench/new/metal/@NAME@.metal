// One thread's work. The signature is generated: x, y, T and thread_position_in_grid are there because the
// contract or this text names them.
uint i = thread_position_in_grid.x;
float v = float(x[i]);
y[i] = T(v / (1.0f + metal::exp(-v)));
