// One thread's work. The signature is generated: x, y and T are there because the contract or this text names them.
// Exactly `grid` threads run, so that no bound has to be tested.
unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
float v = float(x[i]);
y[i] = T(v / (1.0f + expf(-v)));
