"""EventChunks -> Blocks of timelines (intervals per thread, with wakers)."""
