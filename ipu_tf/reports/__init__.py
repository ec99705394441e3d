"""Reports on programs of the device: what they run, which values are alive at each operation, and the peak of memory.

    program ──► JAX's operations of each part ──► liveness of values ──► Report ──► text

Everything in a report is modelled: it follows from the program, and no figure is one of an IPU. Start with `last`.
"""

from ipu_tf.reports.build import last, report_of
from ipu_tf.reports.part import Category, Operation, Part, Value
from ipu_tf.reports.report import Report

__all__ = ["Category", "Operation", "Part", "Report", "Value", "last", "report_of"]
