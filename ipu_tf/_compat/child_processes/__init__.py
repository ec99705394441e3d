"""Folder that the launcher puts on `PYTHONPATH`, for the Python processes that its program starts."""
