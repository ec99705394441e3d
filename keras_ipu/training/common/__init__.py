"""Shared by both back ends: epoch iterator, callbacks, checks before a run."""
