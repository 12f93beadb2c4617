"""Benchmarks that compare Loom with similar programs in one interleaved run, as ratios. `make bench` runs them all."""
