"""Counts what the kernel does, without recording it: how often each event happens."""
