"""The answer as plain data, its shape, and both as JSON."""
