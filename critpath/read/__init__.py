"""A recording -> EventChunks (a stream), or Events (all of it)."""
