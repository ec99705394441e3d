"""Compatibility module for `keras.layers.core`: Keras's layers, `TFOpLambda` and `SlicingOpLambda`."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ipu_tf._patches.installation import change
from keras_ipu.stock import graphs as keras_graphs

_TENSOR = "__keras_tensor__"
#: Where the public name of an op is looked for, in this order: Keras 2 had "tf.math.sigmoid" for `tf.sigmoid`.
_FOLDERS = ("math", "linalg", "nn", "image", "random", "signal", "strings", "sparse", "ragged", "")


@dataclasses.dataclass(frozen=True)
class _Arguments:
    """An op's arguments, which Keras is not to track."""

    value: Any


@keras.saving.register_keras_serializable("keras_ipu")
class TFOpLambda(keras.layers.Layer):
    """Layer of a TensorFlow op, as Keras 2 made one where an op was called with KerasTensors.

    Its input is the tensor, or the list of tensors, among the op's arguments; other arguments are part of the layer.

    Args:
        function: the op, such as `tf.concat`, or its public name, "concat".
        arguments: the op's positional arguments and its keyword arguments, with a KerasTensor, or `op_tensor(number)`,
            where the layer's inputs go. Default: the op takes the inputs alone.
        name: default: "tf." and the op's public name, with a number from the second layer on.

    Raises:
        ValueError: if `function` is a name that TensorFlow does not have.

    Example:
        >>> layer = TFOpLambda(tf.nn.relu)
        >>> layer.name.startswith("tf.nn.relu"), layer(tf.constant([-1.0, 2.0])).numpy().tolist()
        (True, [0.0, 2.0])
    """

    def __init__(self, function: Any, arguments: Any = None, name: str | None = None, **kwargs: Any) -> None:
        self.symbol = function if isinstance(function, str) else _symbol_of(function)
        super().__init__(name=name or _unique("tf." + self.symbol), **{"autocast": False, **kwargs})
        self.function = _op_of(function) if isinstance(function, str) else function
        given = ([op_tensor(0)], {}) if arguments is None else arguments
        self.arguments = _Arguments(_numbered(given))
        keras_graphs.keep_inputs_as_they_are(self)
        self.built = True

    def call(self, inputs: Any) -> Any:
        """What the op gives for the layer's inputs."""
        tensors = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        args, kwargs = _replaced(self.arguments.value, lambda place: tensors[place])
        return self.function(*args, **kwargs)

    def compute_output_spec(self, inputs: Any) -> Any:
        """The symbolic tensors that the op gives; Keras calls a product with a number sparse, which it is not."""
        dense = keras.tree.map_structure(lambda tensor: keras.KerasTensor(tensor.shape, tensor.dtype), inputs)
        return super().compute_output_spec(dense)

    def get_config(self) -> dict[str, Any]:
        """The op's public name and the other arguments."""
        config: dict[str, Any] = super().get_config()
        config.update(function=self.symbol, arguments=keras.saving.serialize_keras_object(self.arguments.value))
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> TFOpLambda:
        """The layer of `get_config`."""
        arguments = keras.saving.deserialize_keras_object(config["arguments"], custom_objects=custom_objects)
        return cls(**{**config, "arguments": arguments})


@keras.saving.register_keras_serializable("keras_ipu")
class SlicingOpLambda(TFOpLambda):
    """Keras 2's layer of a slice, for `isinstance` checks: slices of KerasTensors are operations of Keras 3."""


class _Dispatcher(tf.__internal__.dispatch.GlobalOpDispatcher):
    """TensorFlow asks it where an op does not take its arguments.

    TensorFlow has no function that takes a dispatcher off.
    """

    active = False

    def start(self) -> None:
        """Registers it."""
        self.active = True
        self.register()

    def stop(self) -> None:
        """Makes it do nothing."""
        self.active = False

    def handle(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Makes a layer of an op that was called with KerasTensors."""
        if not self.active:
            return self.NOT_SUPPORTED
        seen: list[Any] = []
        _replaced((list(args), dict(kwargs)), op_tensor, seen)
        return layer_of_op(op, args, kwargs, seen) if seen else self.NOT_SUPPORTED


def install_layers_of_ops() -> None:
    """Makes a layer of each TensorFlow op that is called with KerasTensors. Calling it again changes nothing."""
    dispatcher = _Dispatcher()
    change("tensorflow.python.util.dispatch:_GLOBAL_DISPATCHERS", dispatcher.start, dispatcher.stop)


def op_tensor(number: int) -> dict[str, int]:
    """Stands for a layer's input among the arguments of its op."""
    return {_TENSOR: number}


def layer_of_op(function: Callable[..., Any], args: Any, kwargs: Any, tensors: list[Any]) -> Any:
    """Calls a TensorFlow op with KerasTensors: makes its layer, and returns that layer's outputs."""
    layer = TFOpLambda(function, (list(args), dict(kwargs)))
    return layer(tensors if len(tensors) > 1 else tensors[0])


def _numbered(arguments: Any) -> Any:
    """Arguments with each KerasTensor replaced by its place among them."""
    seen: list[Any] = []
    return _replaced(arguments, op_tensor, seen)


def _replaced(value: Any, replace: Callable[[int], Any], seen: list[Any] | None = None) -> Any:
    """A structure with the places of tensors replaced; `seen` collects the KerasTensors."""
    if isinstance(value, keras.KerasTensor):
        assert seen is not None
        seen.append(value)
        return replace(len(seen) - 1)
    if isinstance(value, dict) and set(value) == {_TENSOR}:
        return replace(value[_TENSOR])
    if isinstance(value, dict):
        return {key: _replaced(each, replace, seen) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_replaced(each, replace, seen) for each in value)
    if isinstance(value, slice):
        return slice(*(_replaced(each, replace, seen) for each in (value.start, value.stop, value.step)))
    return value


def _symbol_of(function: Any) -> str:
    """The public name of an op; a function without one has its own."""
    wanted = _place(function)
    for folder in _FOLDERS:
        owner = operator.attrgetter(folder)(tf) if folder else tf
        for name in sorted(dir(owner), key=lambda name: name != wanted[1]):  # its own name first
            if _place(getattr(owner, name, None)) == wanted:
                return f"{folder}.{name}" if folder else name
    return wanted[1]


def _place(function: Any) -> tuple[str, str]:
    name = str(getattr(function, "__name__", "op"))
    return str(getattr(function, "__module__", "")), name.removesuffix("_v2")


def _op_of(symbol: str) -> Any:
    try:
        return operator.attrgetter(symbol)(tf)
    except AttributeError:
        raise ValueError(f"TensorFlow must have an op `tf.{symbol}` for this layer. Received: {symbol!r}") from None


def _unique(prefix: str) -> str:
    number = keras.backend.get_uid(prefix) - 1
    return f"{prefix}_{number}" if number else prefix


def __getattr__(name: str) -> Any:
    try:
        return getattr(keras.layers, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
