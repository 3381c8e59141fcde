// The same, plain and slow. It runs on the processor, and T is double.
unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
T v = x[i];
y[i] = v / (T(1) + exp(-v));
