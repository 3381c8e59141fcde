/* SPDX-License-Identifier: Apache-2.0 */
/* places.c - the words by which a body asks where it is. */
#include "kernel/kernel.h"

/* As Metal has them; `value` in the words of dialect/thread_position.h. */
const qn_place_word qn_attributes[QN_ATTRIBUTE_COUNT] = {
    {"dispatch_quadgroups_per_threadgroup", "uint", "(g.group[0] * g.group[1] * g.group[2] + 3) / 4", false},
    {"dispatch_simdgroups_per_threadgroup", "uint", "(g.group[0] * g.group[1] * g.group[2] + 31) / 32", false},
    {"dispatch_threads_per_threadgroup", "uint3", "{g.group[0], g.group[1], g.group[2]}", true},
    {"grid_origin", "uint3", "{0, 0, 0}", true},
    {"grid_size", "uint3", "{g.grid[0], g.grid[1], g.grid[2]}", true},
    {"quadgroup_index_in_threadgroup", "uint", "p.index / 4", false},
    {"quadgroups_per_threadgroup", "uint", "(p.size.x * p.size.y * p.size.z + 3) / 4", false},
    {"simdgroup_index_in_threadgroup", "uint", "p.index / 32", false},
    {"simdgroups_per_threadgroup", "uint", "(p.size.x * p.size.y * p.size.z + 31) / 32", false},
    {"thread_execution_width", "uint", "32", true},
    {"thread_index_in_quadgroup", "uint", "p.index % 4", false},
    {"thread_index_in_simdgroup", "uint", "p.index % 32", false},
    {"thread_index_in_threadgroup", "uint", "p.index", false},
    {"thread_position_in_grid", "uint3", "{p.position.x, p.position.y, p.position.z}", true},
    {"thread_position_in_threadgroup", "uint3", "{p.thread.x, p.thread.y, p.thread.z}", false},
    {"threadgroup_position_in_grid", "uint3", "{p.block.x, p.block.y, p.block.z}", false},
    {"threadgroups_per_grid", "uint3", "{g.blocks[0], g.blocks[1], g.blocks[2]}", true},
    {"threads_per_grid", "uint3", "{g.grid[0], g.grid[1], g.grid[2]}", true},
    {"threads_per_simdgroup", "uint", "32", true},
    {"threads_per_threadgroup", "uint3", "{p.size.x, p.size.y, p.size.z}", false},
};

/* CUDA's, which are builtins there and parameters on the processor. A function of the header has no parameters of ours:
 * it finds them in its thread's slot. */
const qn_place_word qn_cuda_places[QN_CUDA_PLACES] = {
    {"threadIdx", "uint3", "{p.thread.x, p.thread.y, p.thread.z}", false},
    {"blockIdx", "uint3", "{p.block.x, p.block.y, p.block.z}", false},
    {"blockDim", "dim3", "{g.group[0], g.group[1], g.group[2]}", false},
    {"gridDim", "dim3", "{g.blocks[0], g.blocks[1], g.blocks[2]}", false},
};
