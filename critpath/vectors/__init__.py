"""Critical paths -> VectorTable (counts, durations)."""
