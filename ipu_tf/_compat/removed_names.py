"""Restores names that inner modules of TensorFlow and Keras no longer have."""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable
from types import ModuleType

from ipu_tf._patches.import_hooks import add_fallback, after_import
from ipu_tf._patches.installation import replace_in
from ipu_tf.device import environment

#: Module -> former name -> where it is today, from the package `tensorflow` or `keras` on.
FORMER: dict[str, dict[str, str]] = {
    "tensorflow": {"pywrap_tensorflow": "tensorflow.python.pywrap_tensorflow"},
    "tensorflow.python.eager.tape": {"stop_recording": "tensorflow.python.eager.record.stop_recording"},
    "tensorflow.python.framework.graph_util": {
        "convert_variables_to_constants": "tensorflow.compat.v1.graph_util.convert_variables_to_constants",
    },
    "tensorflow.python.keras.optimizers": {
        name: f"tensorflow.keras.optimizers.{name}"
        for name in ("SGD", "Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop")
    },
    "tensorflow.python.keras.utils": {"get_file": "keras.utils.get_file"},
    "tensorflow.python.ops.array_ops": {
        "stack": "tensorflow.stack",
        "unstack": "tensorflow.unstack",
    },
    "tensorflow.python.ops.control_flow_ops": {
        "Assert": "tensorflow.debugging.Assert",
        **{name: f"tensorflow.compat.v1.{name}" for name in ("case", "cond", "switch_case", "while_loop")},
    },
    "tensorflow.python.pywrap_tensorflow": {"NewCheckpointReader": "tensorflow.compat.v1.train.NewCheckpointReader"},
    "tensorflow.python.util.nest": {"is_sequence": "tensorflow.python.util.nest.is_nested"},
}

#: Names that NumPy 1 had -> where they are in NumPy 2, or in Python.
NUMPY: dict[str, str] = {
    **{name: f"builtins.{name}" for name in ("int", "float", "complex", "object", "str")},
    **{old: f"numpy.{new}" for old, new in (("float_", "float64"), ("complex_", "complex128"), ("unicode_", "str_"))},
    **{old: f"numpy.{new}" for old, new in (("string_", "bytes_"), ("product", "prod"), ("cumproduct", "cumprod"))},
    **{old: f"numpy.{new}" for old, new in (("alltrue", "all"), ("sometrue", "any"), ("round_", "round"))},
    **{old: f"numpy.{new}" for old, new in (("Inf", "inf"), ("Infinity", "inf"), ("infty", "inf"), ("NaN", "nan"))},
}


#: Optimizers of TensorFlow 2.6 that Keras 2 has in a folder of their own today.
OLDER_OPTIMIZERS = ("SGD", "Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "Optimizer", "RMSprop")


def add_numpy_names(numpy: ModuleType) -> None:
    """Adds the names of `NUMPY` that a NumPy no longer has; its own `__getattr__` would refuse them, or warn."""

    def patched(own: Callable[[str], object]) -> Callable[[str], object]:
        return lambda name: _found(NUMPY[name]) if name in NUMPY else own(name)

    replace_in(numpy, "__getattr__", patched)


def add_older_optimizers() -> None:
    """Gives programs for Keras 2 TensorFlow 2.6's optimizers under their names. Imports nothing.

    From TensorFlow 2.11 on these are in `tf.keras.optimizers.legacy`, and others have their names. Programs subclass
    them (`_resource_apply_dense`, `_create_slots`), and pass `lr=`, `decay=`, `gradient_transformers=`.
    """
    for package in ("tf_keras", "tf_keras.api._v2.keras", "tensorflow.keras"):
        after_import(f"{package}.optimizers", _rename_older_optimizers)


def _rename_older_optimizers(optimizers: ModuleType) -> None:
    if environment.legacy_keras():  # else `tensorflow.keras` is Keras 3
        for name in OLDER_OPTIMIZERS:
            replace_in(optimizers, name, functools.partial(_older, optimizers, name), by=__name__)


def add_older_loss_scaling() -> None:
    """Lets programs for Keras 2 subclass its `LossScaleOptimizer`, a class without methods since TensorFlow 2.9.

    Imports nothing.
    """
    after_import("tf_keras.src.mixed_precision.loss_scale_optimizer", _subclass_older_loss_scaling)


def _subclass_older_loss_scaling(scaling: ModuleType) -> None:
    def patched(own: Callable[..., type]) -> Callable[..., type]:
        def new(meta: type, name: str, bases: tuple[type, ...], body: dict[str, object], **options: object) -> type:
            former = {scaling.BaseLossScaleOptimizer: scaling.LossScaleOptimizer}
            bases = tuple(former.get(base, base) for base in bases)  # that of the optimizers with slots
            return own(meta, name, bases, body, **options)

        return new

    if environment.legacy_keras():
        replace_in(scaling.LossScaleOptimizerMetaclass, "__new__", patched, by=__name__)


def _older(optimizers: ModuleType, name: str, newer: object) -> object:
    return getattr(optimizers.legacy, name)


def add_removed_names() -> None:
    """Adds the names of `FORMER` to their modules, once they are imported. Imports nothing."""
    for module, names in FORMER.items():
        after_import(module, _adder(names))
    after_import("keras.backend", _add_keras_2_backend)


def _adder(names: dict[str, str]) -> Callable[[ModuleType], None]:
    return lambda module: add_fallback(module, names.__contains__, lambda name: _found(names[name]))


def _add_keras_2_backend(backend: ModuleType) -> None:
    """Adds the functions of Keras 2's backend, which Keras 3 keeps for `tf.keras.backend`, to `keras.backend`."""

    def load(name: str) -> object:
        former = importlib.import_module("tensorflow").keras.backend
        try:
            return getattr(former, name)
        except AttributeError:
            raise AttributeError(f"module {backend.__name__!r} has no attribute {name!r}") from None

    add_fallback(backend, lambda name: not name.startswith("_"), load)


def _found(path: str) -> object:
    """The object at a dotted path; its modules are imported as far as they are no attributes yet."""
    package, _, names = path.partition(".")
    found: object = importlib.import_module(package)
    try:
        return operator.attrgetter(names)(found)
    except AttributeError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)
