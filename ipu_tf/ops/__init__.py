"""Graphcore's ops: modules of this package, imported when they are first used."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from types import ModuleType
from typing import TYPE_CHECKING

from ipu_tf._compat.alias_names import GRADIENT_MODULES

if TYPE_CHECKING:
    from ipu_tf.ops import all_to_all_op as all_to_all_op
    from ipu_tf.ops import application_compile_op as application_compile_op
    from ipu_tf.ops import control_flow_ops as control_flow_ops
    from ipu_tf.ops import cross_replica_ops as cross_replica_ops
    from ipu_tf.ops import custom_ops as custom_ops
    from ipu_tf.ops import embedded_runtime as embedded_runtime
    from ipu_tf.ops import embedding_ops as embedding_ops
    from ipu_tf.ops import f8_ops as f8_ops
    from ipu_tf.ops import functional_ops as functional_ops
    from ipu_tf.ops import grad_util_ops as grad_util_ops
    from ipu_tf.ops import image_ops as image_ops
    from ipu_tf.ops import internal_ops as internal_ops
    from ipu_tf.ops import math_ops as math_ops
    from ipu_tf.ops import nn_ops as nn_ops
    from ipu_tf.ops import normalization_ops as normalization_ops
    from ipu_tf.ops import op_util as op_util
    from ipu_tf.ops import pipelining_ops as pipelining_ops
    from ipu_tf.ops import rand_ops as rand_ops
    from ipu_tf.ops import reduce_scatter_op as reduce_scatter_op
    from ipu_tf.ops import replication_ops as replication_ops
    from ipu_tf.ops import rnn_ops as rnn_ops
    from ipu_tf.ops import slicing_ops as slicing_ops
    from ipu_tf.ops import statistics_ops as statistics_ops
    from ipu_tf.ops import within_replica_ops as within_replica_ops
else:

    def __getattr__(name: str) -> ModuleType:
        home = GRADIENT_MODULES.get(f"tensorflow.python.ipu.ops.{name}", f"{__name__}.{name}")
        if not name.startswith("_") and importlib.util.find_spec(home) is not None:
            return importlib.import_module(home)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists the modules of this package, those that are not imported yet included."""
    own = (name for name in globals() if name.startswith("__"))
    return sorted({*own, *(module.name for module in pkgutil.iter_modules(__path__))})
