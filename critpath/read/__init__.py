"""A recording -> Events (columns)."""
