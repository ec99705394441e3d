"""Saving, loading, cloning and exporting IPU models.

Enters: a model with options and pipeline stages. Leaves: the same in Keras's file or in a copy; SavedModels for
serving. Start with `saving`.
"""
