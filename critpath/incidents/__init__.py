"""Dumps of a flight recorder -> incidents: one after the other, held against what is usual."""
