"""Reports on programs of the device: what they run, which values are alive at each operation, and the peak of memory.

    program ──► JAX's operations of each part ──► liveness of values ──► Report ──► text, HTML page, file

Everything in a report is modelled: it follows from the program, and no figure is one of an IPU. Start with `last`.
"""

from ipu_tf.reports.build import last, report_of
from ipu_tf.reports.capacity import CapacityWarning
from ipu_tf.reports.comparison import Change, compared
from ipu_tf.reports.files import load, save
from ipu_tf.reports.flops import flops_of
from ipu_tf.reports.layers import LayerCost, layer_costs
from ipu_tf.reports.measured import Measured
from ipu_tf.reports.page import write_page
from ipu_tf.reports.part import Category, Operation, Part, StageMemory, Value
from ipu_tf.reports.report import PlannedConvolution, Report

__all__ = [
    "CapacityWarning",
    "Category",
    "Change",
    "LayerCost",
    "Measured",
    "Operation",
    "Part",
    "PlannedConvolution",
    "Report",
    "StageMemory",
    "Value",
    "compared",
    "flops_of",
    "last",
    "layer_costs",
    "load",
    "report_of",
    "save",
    "write_page",
]
