"""Task models on KerasHub's backbones, for tasks that KerasHub has no model of, and a family that it does not have.

`task_models.py` has the tasks, `convnext.py` the family; docs/garden.md says which families they are tested with.
"""
