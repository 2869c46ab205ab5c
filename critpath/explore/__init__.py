"""Tables of executions -> what those of a selection have in common."""
