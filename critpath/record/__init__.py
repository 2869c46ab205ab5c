"""a workload -> a recording (CTF trace + manifest)."""
