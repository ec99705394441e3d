"""Task models on KerasHub's backbones, for tasks that KerasHub has no model of.

`task_models.py` has them; docs/garden.md says which families they are tested with.
"""
