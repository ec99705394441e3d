"""Compatibility module for `keras.testing_utils`: the helpers that Graphcore's Keras tests use."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from ipu_tf._state.context import context_value

_model_type = contextvars.ContextVar("model_type", default="functional")
_run_eagerly = contextvars.ContextVar("run_eagerly", default=False)


def run_v2_only(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of tests that need TensorFlow 2: always run."""
    return function


def enable_v2_dtype_behavior(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of tests for layers that cast their inputs, which Keras 3's do."""
    return function


def should_run_eagerly() -> bool:
    """Returns the `run_eagerly` that the current test passes to `compile`."""
    return _run_eagerly.get()


def run_eagerly_scope(value: bool) -> contextlib.AbstractContextManager[None]:
    """Context that sets the value of `should_run_eagerly`."""
    return context_value(_run_eagerly, value)


def get_model_type() -> str:
    """Returns the kind of model of the current test: "functional", "sequential" or "subclass"."""
    return _model_type.get()


def model_type_scope(value: str) -> contextlib.AbstractContextManager[None]:
    """Context that sets the value of `get_model_type`."""
    return context_value(_model_type, value)


def get_test_data(
    train_samples: int, test_samples: int, input_shape: Sequence[int], num_classes: int, random_seed: int | None = None
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Samples around one random centre for each class.

    Returns:
        `(x, y)` for training and for testing: float32 `[samples, *input_shape]` and int64 classes `[samples]`.
    """
    random = np.random.RandomState(random_seed)
    centres = 2 * num_classes * random.random((num_classes, *input_shape))
    classes = random.randint(0, num_classes, size=(train_samples + test_samples,))
    samples = (centres[classes] + random.normal(scale=0.1, size=(len(classes), *input_shape))).astype(np.float32)
    return (samples[:train_samples], classes[:train_samples]), (samples[train_samples:], classes[train_samples:])


class Bias(keras.layers.Layer):
    """Adds a trainable bias of the shape of a sample's features, zero at first."""

    def build(self, input_shape: Any) -> None:
        """Creates the bias weight."""
        self.bias = self.add_weight(shape=(input_shape[1],), initializer="zeros", name="bias")

    def call(self, inputs: Any) -> Any:
        """The inputs with the bias added."""
        return inputs + self.bias


def get_small_sequential_mlp(num_hidden: int, num_classes: int, input_dim: int | None = None) -> keras.Sequential:
    """A `Sequential` of two dense layers; not built unless `input_dim` is given."""
    first = [] if input_dim is None else [keras.Input((input_dim,))]
    return keras.Sequential([*first, *_mlp(num_hidden, num_classes)])


def get_small_functional_mlp(num_hidden: int, num_classes: int, input_dim: int) -> keras.Model:
    """A functional model of two dense layers."""
    inputs = keras.Input((input_dim,))
    return keras.Model(inputs, functools.reduce(lambda x, layer: layer(x), _mlp(num_hidden, num_classes), inputs))


class SmallSubclassMLP(keras.Model):
    """A subclassed model of two dense layers.

    Args:
        num_hidden: units of the first.
        num_classes: units of the second.
        use_bn: whether batch normalisation comes last.
        use_dp: whether dropout comes after it.
    """

    def __init__(
        self, num_hidden: int, num_classes: int, use_bn: bool = False, use_dp: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(name="test_model", **kwargs)
        self.parts = _mlp(num_hidden, num_classes)
        self.parts += [keras.layers.Dropout(0.5)] if use_dp else []
        self.parts += [keras.layers.BatchNormalization(axis=-1)] if use_bn else []

    def call(self, inputs: Any, **kwargs: Any) -> Any:
        """The model's outputs."""
        return functools.reduce(lambda x, layer: layer(x), self.parts, inputs)


def get_small_subclass_mlp(num_hidden: int, num_classes: int) -> keras.Model:
    """A subclassed model of two dense layers."""
    return SmallSubclassMLP(num_hidden, num_classes)


def get_small_mlp(num_hidden: int, num_classes: int, input_dim: int) -> keras.Model:
    """A model of two dense layers of the kind of `get_model_type`."""
    if get_model_type() == "subclass":
        return get_small_subclass_mlp(num_hidden, num_classes)
    if get_model_type() == "sequential":
        return get_small_sequential_mlp(num_hidden, num_classes, input_dim)
    return get_small_functional_mlp(num_hidden, num_classes, input_dim)


class _Chain(keras.Model):
    """Layers one after another."""

    def __init__(self, layers: Sequence[Any]) -> None:
        super().__init__()
        self.all_layers = list(layers)

    def call(self, inputs: Any) -> Any:
        return functools.reduce(lambda x, layer: layer(x), self.all_layers, inputs)


class _Branches(keras.Model):
    """Two inputs, a chain of layers for each, two outputs."""

    def __init__(self, branch_a: Sequence[Any], branch_b: Sequence[Any]) -> None:
        super().__init__()
        self.branches = [_Chain(branch_a), _Chain(branch_b)]

    def call(self, inputs: Any) -> list[Any]:
        return [branch(x) for branch, x in zip(self.branches, inputs, strict=True)]


def get_model_from_layers(
    model_layers: Sequence[Any], input_shape: Sequence[int] | None = None, input_dtype: Any = None, name: Any = None
) -> keras.Model:
    """A model that runs layers one after another, of the kind of `get_model_type`."""
    if get_model_type() == "subclass":
        return _Chain(model_layers)
    if get_model_type() == "sequential" and input_shape is None:
        return keras.Sequential(list(model_layers), name=name)
    inputs = keras.Input(input_shape, dtype=input_dtype)
    if get_model_type() == "sequential":
        return keras.Sequential([inputs, *model_layers], name=name)
    return keras.Model(inputs, functools.reduce(lambda x, layer: layer(x), model_layers, inputs), name=name)


def get_multi_io_model(branch_a: Sequence[Any], branch_b: Sequence[Any]) -> keras.Model:
    """A model with two branches, functional or subclassed; the first of a branch may be its `Input`."""
    if get_model_type() == "subclass":
        return _Branches(branch_a, branch_b)
    starts = [branch[0] for branch in (branch_a, branch_b)]
    inputs = [start if keras.backend.is_keras_tensor(start) else start.output for start in starts]
    outputs = [
        functools.reduce(lambda x, layer: layer(x), branch[1:], start)
        for branch, start in zip((branch_a, branch_b), inputs, strict=True)
    ]
    return keras.Model(inputs, outputs)


def generate_combinations_with_testcase_name(**kwargs: Sequence[Any]) -> list[dict[str, Any]]:
    """Every combination of values for some arguments, with a name for each, for `parameterized.named_parameters`.

    Example:
        >>> generate_combinations_with_testcase_name(a=[1, 2], b=[3])
        [{'a': 1, 'b': 3, 'testcase_name': '_0_a_1_b_3'}, {'a': 2, 'b': 3, 'testcase_name': '_1_a_2_b_3'}]
    """
    rows = [dict(zip(kwargs, values, strict=True)) for values in itertools.product(*kwargs.values())]
    return [{**row, "testcase_name": _name(number, row)} for number, row in enumerate(rows)]


def _name(number: int, row: dict[str, Any]) -> str:
    words = "_".join(f"{name}_{getattr(value, '__name__', value)}" for name, value in row.items())
    return f"_{number}_" + re.sub(r"\W", "", words)


def _mlp(num_hidden: int, num_classes: int) -> list[keras.layers.Layer]:
    last = "sigmoid" if num_classes == 1 else "softmax"
    return [keras.layers.Dense(num_hidden, "relu"), keras.layers.Dense(num_classes, last)]
