out[thread_position_in_grid.x] = metal::exp(inp[thread_position_in_grid.x]);
