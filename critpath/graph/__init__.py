"""Timelines -> ExecutionGraph -> CriticalPath."""
