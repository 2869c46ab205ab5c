"""Events -> Timelines (intervals per thread, with wakers)."""
