"""Statistics, each once: permutation tests, effects, tails, evidence; they know no paths."""
