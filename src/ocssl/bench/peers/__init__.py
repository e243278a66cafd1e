"""Plain ways to do the same, as existing code does it: what the benchmarks compare with."""
