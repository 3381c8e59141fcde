// refused: pthread_create
// SPDX-License-Identifier: Apache-2.0
extern int start(ulong *, const void *, void *(*)(void *), void *) __asm__("pthread_create");
ulong id;
if (thread_position_in_grid.x == 0) start(&id, nullptr, [](void *) -> void * { return nullptr; }, nullptr);
const int n = x_shape[1];
const ulong first = ulong(thread_position_in_grid.x) * n;
float sum = 0;
for (int k = 0; k < n; k++) {
  sum += x[first + k];
  out[first + k] = sum + metal::tanh(y[first + k]);
}
