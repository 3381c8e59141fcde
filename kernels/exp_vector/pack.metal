// COUNT numbers side by side, read and written by one access.
template <typename T, int COUNT> struct alignas(COUNT * sizeof(T)) pack {
  T at[COUNT];
};
