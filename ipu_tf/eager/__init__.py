"""Gradient capture on the tape."""
