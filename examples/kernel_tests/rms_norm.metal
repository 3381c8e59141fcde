// A row per group: y = x / sqrt(mean(x^2) + 1e-6).
uint row = threadgroup_position_in_grid.x, lane = thread_position_in_threadgroup.x;
uint n = x_shape[1], groups = (threads_per_threadgroup.x + 31) / 32;
threadgroup float part[32];
float sum = 0;
for (uint k = lane; k < n; k += threads_per_threadgroup.x) sum += float(x[row * n + k]) * float(x[row * n + k]);
sum = simd_sum(sum);
if (thread_index_in_simdgroup == 0) part[lane / 32] = sum;
threadgroup_barrier(mem_flags::mem_threadgroup);
float total = 0;
for (uint k = 0; k < groups; k++) total += part[k];
float scale = metal::rsqrt(total / n + 1e-6f);
for (uint k = lane; k < n; k += threads_per_threadgroup.x) y[row * n + k] = T(float(x[row * n + k]) * scale);
