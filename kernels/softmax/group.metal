// COUNT numbers side by side, read and written by one access.
template <typename T, int COUNT> struct alignas(COUNT * sizeof(T)) pack {
  T at[COUNT];
};

// A thread's place among those that reduce together.
struct member {
  uint lane, simd, simds;
};

// Over a whole threadgroup, for all of its threads alike: first within each simdgroup, then across the simdgroups' parts
// (at most 32). Every thread must come here. The order of additions is fixed, so the bits are, too.
inline float group_max(float x, threadgroup float *parts, member me)
{
  x = simd_max(x);
  if (me.lane == 0) parts[me.simd] = x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return simd_max(me.lane < me.simds ? parts[me.lane] : -INFINITY);
}

inline float group_sum(float x, threadgroup float *parts, member me)
{
  x = simd_sum(x);
  if (me.lane == 0) parts[me.simd] = x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return simd_sum(me.lane < me.simds ? parts[me.lane] : 0.0f);
}
