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
from types import ModuleType
from typing import TYPE_CHECKING

from ipu_tf.aliases import install_aliases

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
    "emulation",
    "ipu_compiler",
    "ipu_infeed_queue",
    "ipu_outfeed_queue",
    "ipu_strategy",
    "loops",
    "ops",
    "optimizers",
    "scopes",
    "utils",
)

#: Modules of `ipu_tf.ops` that Graphcore's package also shows as its own attributes.
_OPS: tuple[str, ...] = ()

#: Modules of `ipu_tf.optimizers` that Graphcore's package also shows as its own attributes.
_OPTIMIZERS: tuple[str, ...] = ()

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
    """Whether the IPUs of this package are emulated: always. No hardware figure it gives is measured on an IPU."""
    return True


def __getattr__(name: str) -> ModuleType:
    if name in _HOMES:
        return importlib.import_module(f"{_HOMES[name]}.{name}")
    raise AttributeError(f"module 'ipu_tf' has no attribute {name!r}")
