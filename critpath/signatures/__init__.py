"""Signatures: counts of what the kernel did, as weighted vectors."""
