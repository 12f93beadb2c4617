"""Measured side by side with peers, in one interleaved run, as ratios. `make bench` runs them all."""
