"""The Graphcore IPU programming interface for stock TensorFlow and Keras, on an emulated IPU.

Three lines make a Keras script run its loops on the device:

    import ipu_tf as ipu
    cfg = ipu.config.IPUConfig(); cfg.auto_select_ipus = 1; cfg.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        ...

`python -m ipu_tf SCRIPT` runs a program written for Graphcore's TensorFlow as it is.

Modules are imported when they are first used, so that `import ipu_tf` alone costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ipu_tf._compat.aliases import install_aliases
from ipu_tf._patches.import_hooks import after_import
from ipu_tf.device.run import forks as _forks  # noqa: F401 - registers its handler of forks

if TYPE_CHECKING:  # the whole public surface, each name imported as itself: that makes it public to type checkers
    from ipu_tf import config as config
    from ipu_tf import data as data
    from ipu_tf import dataset_benchmark as dataset_benchmark
    from ipu_tf import dataset_extractor as dataset_extractor
    from ipu_tf import distributed as distributed
    from ipu_tf import eager as eager
    from ipu_tf import emulation as emulation
    from ipu_tf import gcipuinfo as gcipuinfo
    from ipu_tf import gradient_accumulation as gradient_accumulation
    from ipu_tf import horovod as horovod
    from ipu_tf import ipu_compiler as ipu_compiler
    from ipu_tf import ipu_estimator as ipu_estimator
    from ipu_tf import ipu_infeed_queue as ipu_infeed_queue
    from ipu_tf import ipu_multi_worker_strategy as ipu_multi_worker_strategy
    from ipu_tf import ipu_outfeed_queue as ipu_outfeed_queue
    from ipu_tf import ipu_pipeline_estimator as ipu_pipeline_estimator
    from ipu_tf import ipu_run_config as ipu_run_config
    from ipu_tf import ipu_session_run_hooks as ipu_session_run_hooks
    from ipu_tf import ipu_strategy as ipu_strategy
    from ipu_tf import keras_extensions as keras_extensions
    from ipu_tf import libpvti as libpvti
    from ipu_tf import loops as loops
    from ipu_tf import ops as ops
    from ipu_tf import optimizers as optimizers
    from ipu_tf import patches as patches
    from ipu_tf import pipeline as pipeline
    from ipu_tf import pva as pva
    from ipu_tf import reports as reports
    from ipu_tf import scopes as scopes
    from ipu_tf import serving as serving
    from ipu_tf import sharding as sharding
    from ipu_tf import test_utils as test_utils
    from ipu_tf import tf_estimator as tf_estimator
    from ipu_tf import utils as utils
    from ipu_tf import vertex_edsl as vertex_edsl
    from ipu_tf._ops.user_ops import register_user_op as register_user_op
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
    from ipu_tf.ops.functional_ops import outlined_function as outlined_function
    from ipu_tf.optimizers import cross_replica_optimizer as cross_replica_optimizer
    from ipu_tf.optimizers import gradient_accumulation_optimizer as gradient_accumulation_optimizer
    from ipu_tf.optimizers import ipu_optimizer as ipu_optimizer
    from ipu_tf.optimizers import map_gradient_optimizer as map_gradient_optimizer
    from ipu_tf.optimizers import sharded_optimizer as sharded_optimizer

__version__ = "0.1.0"

#: Modules of this package that are reached as its attributes.
_MODULES = (
    "config",
    "data",
    "dataset_benchmark",
    "dataset_extractor",
    "distributed",
    "eager",
    "emulation",
    "gcipuinfo",
    "gradient_accumulation",
    "horovod",
    "ipu_compiler",
    "ipu_estimator",
    "ipu_infeed_queue",
    "ipu_multi_worker_strategy",
    "ipu_outfeed_queue",
    "ipu_pipeline_estimator",
    "ipu_run_config",
    "ipu_session_run_hooks",
    "ipu_strategy",
    "keras_extensions",
    "libpvti",
    "loops",
    "ops",
    "optimizers",
    "patches",
    "pipeline",
    "pva",
    "reports",
    "scopes",
    "serving",
    "sharding",
    "test_utils",
    "tf_estimator",
    "utils",
    "vertex_edsl",
)

#: Modules of `ipu_tf.ops` that Graphcore's package also shows as its own attributes.
_OPS: tuple[str, ...] = (
    "all_to_all_op",
    "application_compile_op",
    "control_flow_ops",
    "cross_replica_ops",
    "custom_ops",
    "embedded_runtime",
    "embedding_ops",
    "f8_ops",
    "functional_ops",
    "grad_util_ops",
    "image_ops",
    "internal_ops",
    "math_ops",
    "nn_ops",
    "normalization_ops",
    "op_util",
    "pipelining_ops",
    "rand_ops",
    "reduce_scatter_op",
    "replication_ops",
    "rnn_ops",
    "slicing_ops",
    "statistics_ops",
    "within_replica_ops",
)

#: Modules of `ipu_tf.optimizers` that Graphcore's package also shows as its own attributes.
_OPTIMIZERS: tuple[str, ...] = (
    "cross_replica_optimizer",
    "gradient_accumulation_optimizer",
    "ipu_optimizer",
    "map_gradient_optimizer",
    "sharded_optimizer",
)

#: Functions that are attributes of this package, and the modules they are in.
_FUNCTIONS = {
    "outlined_function": "ipu_tf.ops.functional_ops",
    "register_user_op": "ipu_tf._ops.user_ops",
}

_HOMES = (
    dict.fromkeys(_MODULES, "ipu_tf")
    | dict.fromkeys(_OPS, "ipu_tf.ops")
    | dict.fromkeys(_OPTIMIZERS, "ipu_tf.optimizers")
)

__all__ = [
    "config",
    "emulation",
    "install_aliases",
    "ipu_compiler",
    "ipu_infeed_queue",
    "ipu_outfeed_queue",
    "ipu_strategy",
    "is_emulated",
    "loops",
    "scopes",
    "utils",
]


def is_emulated() -> bool:
    """Returns True: the IPUs of this package are always emulated. No figure is measured on an IPU's hardware."""
    return True


# Sessions and device scopes know the IPUs from the start: a session may be made before anything is configured.
after_import("tensorflow", lambda _: importlib.import_module("ipu_tf._sessions.session_devices").install())


if not TYPE_CHECKING:  # else every misspelt name would be of type Any

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return importlib.import_module(f"{_HOMES[name]}.{name}")
        if name in _FUNCTIONS:
            return getattr(importlib.import_module(_FUNCTIONS[name]), name)
        raise AttributeError(f"module 'ipu_tf' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists the public names, modules that are not imported yet included."""
    own = (name for name in globals() if name.startswith("__"))
    return sorted({*own, *__all__, *_HOMES, *_FUNCTIONS})
