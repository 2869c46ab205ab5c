"""Comparison -> HTML, text, JSON."""
