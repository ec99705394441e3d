"""Graphcore's `pva` on reports of an emulated IPU: the parts that can be answered, and refusals of the others.

    profile.pop ──► ipu_tf.reports.load ──► Report ──► openReport(...).compilation, .execution

One tile an IPU: so programs that add up tiles get the bytes of the IPU. Start with `report`.
Enters: the path of a report's file. Leaves: objects with the attributes of Graphcore's `pva`.
"""
