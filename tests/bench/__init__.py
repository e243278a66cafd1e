"""Tests of the benchmarks: a package, as files of other folders have the same names."""
