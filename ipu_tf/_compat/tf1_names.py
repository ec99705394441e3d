"""Adds TensorFlow 1's names to the `tensorflow` module, and switches TensorFlow 2 behaviour off."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from ipu_tf._patches.import_hooks import add_fallback, after_import
from ipu_tf._patches.installation import replace_in
from ipu_tf._state.registry import register_state

#: Names that lead to the same modules again, or to none with a TensorFlow 1 side.
_SKIPPED = frozenset({"compat", "keras", "lite"})
#: Modules of Keras that TensorFlow shows under its own name; to touch one imports Keras.
_FROM_KERAS = frozenset({"initializers", "losses", "metrics"})

_COPIED: set[str] = register_state("modules with names of TensorFlow 1", set(), kept="patches stay")


def disable_v2_behavior(tensorflow: ModuleType) -> None:
    """Switches TensorFlow 1's behaviour on: graphs and sessions, no eager execution.

    Args:
        tensorflow: the imported module `tensorflow`, which has run nothing yet.
    """
    tensorflow.compat.v1.disable_v2_behavior()


def add_tf1_names(tensorflow: ModuleType) -> None:
    """Adds names of `tensorflow.compat.v1` that `tensorflow` lacks, in its submodules as well.

    A name that both have, `tf.metrics` for one, keeps today's meaning. Calling it again changes nothing.

    Args:
        tensorflow: the imported module `tensorflow`.
    """
    v1 = tensorflow.compat.v1
    _copy_names(tensorflow, v1)
    for name in set(dir(v1)) - _SKIPPED - _FROM_KERAS:
        today = vars(tensorflow).get(name)
        if isinstance(today, ModuleType) and not name.startswith("_"):
            _copy_names(importlib.import_module(today.__name__), getattr(v1, name))
    after_import("keras", add_tf1_names_to_keras)


def add_tf1_names_to_keras(keras: ModuleType) -> None:
    """Adds TensorFlow 1's names to the modules of Keras that stand in for TensorFlow's, such as `tf.losses`.

    Nothing is done before both are imported: where Keras imports TensorFlow, Keras is not complete until later.

    Args:
        keras: the module `keras`.
    """
    tensorflow = sys.modules.get("tensorflow")
    if hasattr(keras, "__version__") and tensorflow is not None and hasattr(tensorflow, "__version__"):
        for name in _FROM_KERAS:
            # The stand-ins have the names of Keras's modules.
            stand_in, v1 = getattr(tensorflow, name), getattr(tensorflow.compat.v1, name)
            _copy_names(importlib.import_module(stand_in.__name__), v1)


def add_layers_modules(v1: ModuleType) -> None:
    """Adds `layers` and `nn.rnn_cell`, which TensorFlow removed with Keras 3, to `tf.compat.v1`.

    Args:
        v1: the imported module `tensorflow.compat.v1`.
    """
    layers, cells = (
        importlib.import_module("ipu_tf._compat.tf1_layers"),
        importlib.import_module("ipu_tf._compat.tf1_rnn_cells"),
    )
    # TensorFlow's own attributes raise for every name, so they are replaced rather than supplemented: in the module and
    # in the wrapper, with a dictionary of its own, that TensorFlow has put in its place.
    # Both are written, also where their parts are one object: a wrapper remembers what it read before.
    for module in (v1, sys.modules[v1.__name__]):
        replace_in(module, "layers", lambda stock: layers, key=id(module), missing=None)
        replace_in(module.nn, "rnn_cell", lambda stock: cells, key=id(module), missing=None)


def patch_functional_ops(module: ModuleType) -> None:
    """Adds `partitioned_call` to TensorFlow's inner module `functional_ops`, which no longer has it."""

    def partitioned_call(args: Sequence[Any], f: Any) -> Any:
        """Calls a TensorFlow 1 function (`Defun`) with the tensors."""
        tensorflow = importlib.import_module("tensorflow")
        f.add_to_graph(tensorflow.compat.v1.get_default_graph())
        dtypes = [tensorflow.as_dtype(output.type) for output in f.definition.signature.output_arg]
        inputs = [tensorflow.convert_to_tensor(value) for value in args]
        results = tensorflow.raw_ops.StatefulPartitionedCall(args=inputs, Tout=dtypes, f=f)
        return results[0] if len(results) == 1 else results

    add_fallback(module, {"partitioned_call"}.__contains__, lambda name: partitioned_call)


def patch_variables(module: ModuleType) -> None:
    """Adds `initialized_value`, which TensorFlow has kept for reference variables alone, to resource variables."""

    def initialized_value(self: Any) -> Any:
        """Returns the variable's value, or its initial value until it is initialised."""
        return _v1().cond(self.is_initialized(), self.read_value, lambda: self.initial_value)

    replace_in(module.BaseResourceVariable, "initialized_value", lambda absent: initialized_value, missing=None)


def patch_dimensions(module: ModuleType) -> None:
    """Patches `Dimension` to accept whole numbers of type float, as TensorFlow 1 did.

    Args:
        module: TensorFlow's inner module `tensor_shape`.
    """

    def from_whole_floats(stock: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(stock)
        def init(self: Any, value: Any) -> None:
            stock(self, int(value) if isinstance(value, float) and value.is_integer() else value)

        return init

    replace_in(module.Dimension, "__init__", from_whole_floats)


def _v1() -> Any:
    return importlib.import_module("tensorflow").compat.v1


def _copy_names(today: ModuleType, v1: ModuleType) -> None:
    if today.__name__ in _COPIED:
        return
    _COPIED.add(today.__name__)
    names = frozenset(name for name in dir(v1) if not name.startswith("_"))
    add_fallback(today, names.__contains__, lambda name: getattr(v1, name))
