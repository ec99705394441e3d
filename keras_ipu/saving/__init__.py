"""Saving, loading, cloning and exporting IPU models."""
