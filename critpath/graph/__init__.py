"""Blocks of timelines -> CriticalPaths; Timelines -> ExecutionGraph, for exports."""
