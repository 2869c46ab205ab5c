"""EventChunks -> few Events -> Executions (windows: who, from when to when)."""
