"""Shared by both back ends: trainer, step function, epoch iterator, step split, callbacks, checks before a run."""
