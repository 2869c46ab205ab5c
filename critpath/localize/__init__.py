"""Alignment -> Findings (what differs, where, worth how many ms)."""
