"""TensorFlow 1's names on today's `tensorflow` module, for programs that were written when they lay there."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from ipu_tf.import_hooks import add_fallback

#: Names that lead to the same modules again, or to none with a TensorFlow 1 side.
_SKIPPED = frozenset({"compat", "keras", "lite"})

_BRIDGED: set[str] = set()


def disable_v2_behavior(tensorflow: ModuleType) -> None:
    """Gives the program TensorFlow 1's behaviour: graphs and sessions, nothing eager.

    Args:
        tensorflow: the imported module `tensorflow`, which has run nothing yet.
    """
    tensorflow.compat.v1.disable_v2_behavior()


def bridge_tf1_names(tensorflow: ModuleType) -> None:
    """Lets `tensorflow` give the names that it lacks and `tensorflow.compat.v1` has; so for its submodules.

    A name that both have, `tf.metrics` for one, keeps today's meaning. Calling it again changes nothing.

    Args:
        tensorflow: the imported module `tensorflow`.
    """
    v1 = tensorflow.compat.v1
    _bridge(tensorflow, v1)
    for name in set(dir(v1)) - _SKIPPED:
        today = vars(tensorflow).get(name)
        if isinstance(today, ModuleType) and not name.startswith("_"):
            # `tf.losses` and its like are stand-ins for modules of Keras, under those modules' names.
            _bridge(importlib.import_module(today.__name__), getattr(v1, name))


#: Functions that `control_flow_ops` held before TensorFlow 2.12.
_CONTROL_FLOW = frozenset({"case", "cond", "switch_case", "while_loop"})


def bridge_control_flow(module: ModuleType) -> None:
    """Lets TensorFlow's inner module `control_flow_ops` give the functions that it held before TensorFlow 2.12."""
    add_fallback(module, _CONTROL_FLOW.__contains__, lambda name: getattr(_v1(), name))


def bridge_functional_ops(module: ModuleType) -> None:
    """Gives TensorFlow's inner module `functional_ops` the `partitioned_call` that it held formerly."""

    def partitioned_call(args: Sequence[Any], f: Any) -> Any:
        """Calls a function of TensorFlow 1, a `Defun`, with these tensors."""
        tensorflow = importlib.import_module("tensorflow")
        f.add_to_graph(tensorflow.compat.v1.get_default_graph())
        dtypes = [tensorflow.as_dtype(output.type) for output in f.definition.signature.output_arg]
        inputs = [tensorflow.convert_to_tensor(value) for value in args]
        results = tensorflow.raw_ops.StatefulPartitionedCall(args=inputs, Tout=dtypes, f=f)
        return results[0] if len(results) == 1 else results

    add_fallback(module, {"partitioned_call"}.__contains__, lambda name: partitioned_call)


def bridge_variables(module: ModuleType) -> None:
    """Gives resource variables `initialized_value`, which TensorFlow has kept for reference variables alone."""

    def initialized_value(self: Any) -> Any:
        """The variable's value, or what it starts with as long as it has none."""
        return _v1().cond(self.is_initialized(), self.read_value, lambda: self.initial_value)

    module.BaseResourceVariable.initialized_value = initialized_value


def _v1() -> Any:
    return importlib.import_module("tensorflow").compat.v1


def _bridge(today: ModuleType, v1: ModuleType) -> None:
    if today.__name__ in _BRIDGED:
        return
    _BRIDGED.add(today.__name__)
    names = frozenset(name for name in dir(v1) if not name.startswith("_"))
    add_fallback(today, names.__contains__, lambda name: getattr(v1, name))
