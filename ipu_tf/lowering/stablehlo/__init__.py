"""Reads StableHLO: modules, ops, trip counts, and where programs are cut into parts. Computes nothing."""
