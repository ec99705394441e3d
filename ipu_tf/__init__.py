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
from ipu_tf.device.run import forks as _forks  # noqa: F401 - it hears of forks from now on

if TYPE_CHECKING:
    from ipu_tf import (
        config,
        emulation,
        ipu_compiler,
        ipu_infeed_queue,
        ipu_outfeed_queue,
        ipu_strategy,
        loops,
        scopes,
        utils,
    )

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
    "loops",
    "ops",
    "optimizers",
    "patches",
    "scopes",
    "serving",
    "sharding",
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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return importlib.import_module(f"{_HOMES[name]}.{name}")
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(_FUNCTIONS[name]), name)
    raise AttributeError(f"module 'ipu_tf' has no attribute {name!r}")
