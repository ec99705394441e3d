"""Parses and analyses StableHLO modules: ops, trip counts, partition into parts, hidden state."""
