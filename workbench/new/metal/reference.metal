// The same, plain and slow. It runs on the processor, and T is double.
uint i = thread_position_in_grid.x;
T v = x[i];
y[i] = v / (T(1) + metal::exp(-v));
