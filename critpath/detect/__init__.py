"""VectorTables -> Detection (Algorithm 1; the permutation gate)."""
