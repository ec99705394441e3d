"""`LSTM` and `GRU` layers with the arguments of Graphcore's `PopnnLSTM` and `PopnnGRU`.

Weights are laid out as those of Keras's layers: gates in the order input, forget, cell, output (LSTM) and update,
reset, candidate (GRU).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from ipu_tf.emulation import record_ignored
from keras_ipu.addons.layers.dropout import dropped
from keras_ipu.addons.layers.ipu_layer import IPULayer

ACTIVATIONS = ("tanh", "relu", "softmax", "sigmoid", "hard_sigmoid")
RECURRENT_ACTIVATIONS = ("tanh", "softmax", "sigmoid", "hard_sigmoid")
_UNSUPPORTED = (
    "kernel_regularizer",
    "recurrent_regularizer",
    "bias_regularizer",
    "activity_regularizer",
    "kernel_constraint",
    "recurrent_constraint",
    "bias_constraint",
    "recurrent_dropout",
    "go_backwards",
    "unroll",
)


@keras.saving.register_keras_serializable(package="keras_ipu")
def hard_sigmoid(x: Any) -> Any:
    """Hard sigmoid as on the IPU: `0.2 x + 0.5`, clipped to 0 and 1, steeper than that of Keras 3."""
    return ops.clip(0.2 * x + 0.5, 0.0, 1.0)


def _initializers(kernel: Any, recurrent: Any, bias: Any, seed: int | None) -> dict[str, Any]:
    """Returns the initializers of a layer; for None those of Graphcore's layers."""
    if kernel is None:
        kernel = keras.initializers.GlorotUniform(seed)
    if recurrent is None:
        recurrent = keras.initializers.Orthogonal(seed=seed)
    if bias is None:
        bias = "zeros"
    return {"kernel_initializer": kernel, "recurrent_initializer": recurrent, "bias_initializer": bias}


class _PopnnRNN(IPULayer):
    """Mixin for Keras's LSTM and GRU: checks arguments, and takes time-major data."""

    _KIND = ""

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        dropout: float = 0.0,
        dropout_seed: Any = None,
        implementation: int = 2,
        partials_dtype: Any = "float32",
        seed: int | None = None,
        time_major: bool = False,
        options: Mapping[str, Any] | None = None,
        options_bwd: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._check(use_bias, implementation, kwargs)
        names = _checked_activations(activation, recurrent_activation)
        super().__init__(
            units,
            activation=_function(names[0]),
            recurrent_activation=_function(names[1]),
            **_initializers(kernel_initializer, recurrent_initializer, bias_initializer, seed),
            use_cudnn=False,
            **kwargs,
        )
        if self.compute_dtype not in ("float16", "float32"):
            raise ValueError(f"Only support float16, float32, provided {self.compute_dtype}")
        self._names, self._options = names, {"options": dict(options or {}), "options_bwd": dict(options_bwd or {})}
        self._dropout_seed = (
            None if dropout_seed is None else [int(part) for part in ops.convert_to_numpy(dropout_seed)]
        )
        self._partials_dtype, self._seed = keras.backend.standardize_dtype(partials_dtype), seed
        self._rate, self._time_major = dropout, time_major
        self._generator = None if keras.backend.backend() == "tensorflow" else keras.random.SeedGenerator(seed)
        self._record()

    def _check(self, use_bias: bool, implementation: int, arguments: Mapping[str, Any]) -> None:
        wrong = [name for name in _UNSUPPORTED if arguments.get(name)]
        wrong += ["use_bias = False"] * (not use_bias) + ["implementation != 1"] * (implementation not in (1, 2))
        if wrong:
            raise ValueError(f"IPU custom {self._KIND} layer does not support {wrong[0]}.")

    def _record(self) -> None:
        for name, value in self._options.items():
            record_ignored(f"{self._KIND}.{name}", value or None)
        partials = None if self._partials_dtype == "float32" else self._partials_dtype
        record_ignored(
            f"{self._KIND}.partials_dtype", partials, "sums are taken in the precision of the data or better"
        )

    def build(self, input_shape: Any) -> None:
        """Creates the weights.

        Raises:
            ValueError: if the input does not have three dimensions or the length of the last one is unknown.
        """
        if self.built:
            return
        if len(input_shape) != 3:
            raise ValueError(f"Expecting input_shape with 3 dims, got {len(input_shape)}")
        if input_shape[-1] is None:
            raise ValueError("The last dimension of the inputs to `_PopnnRNN` should be defined. Found `None`.")
        self.input_size = input_shape[-1]
        super().build(self._swapped(tuple(input_shape)))

    def _swapped(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        return (shape[1], shape[0], *shape[2:]) if self._time_major else shape

    def call(self, inputs: Any, mask: Any = None, training: bool | None = None, initial_state: Any = None) -> Any:
        """Runs the layer over the time steps.

        Args:
            inputs: `[batch, time, size]`, or `[time, batch, size]` with `time_major`.
            mask: not supported.
            training: whether elements are dropped.
            initial_state: a tensor `[batch, units]`, or for an LSTM two of them, output and cell; default: zeros.

        Returns:
            The outputs at all time steps or at the last, as `return_sequences` says, and with `return_state` the
            final states.
        """
        self._check_unsupported(mask, "mask", "call")
        if len(inputs.shape) != 3:
            raise ValueError("inputs tensor must be 3D")
        x = ops.cast(inputs, self.compute_dtype)
        x = ops.swapaxes(x, 0, 1) if self._time_major else x
        if training and self._rate > 0.0:
            # One mask for all time steps.
            noise_shape = (ops.shape(x)[0], 1, x.shape[2])
            x = dropped(x, self._rate, noise_shape, self._dropout_seed, self._generator)
        if initial_state is not None:
            initial_state = keras.tree.map_structure(lambda state: ops.cast(state, self.compute_dtype), initial_state)
        result = super().call(x, initial_state=initial_state, mask=None, training=bool(training))
        if not (self._time_major and self.return_sequences):
            return result
        if not self.return_state:
            return ops.swapaxes(result, 0, 1)
        return (ops.swapaxes(result[0], 0, 1), *result[1:])

    def compute_output_shape(self, inputs_shape: Any, initial_state_shape: Any = None) -> Any:
        """Returns the shape of `call`'s output."""
        shapes = super().compute_output_shape(self._swapped(tuple(inputs_shape)))
        if not (self._time_major and self.return_sequences):
            return shapes
        return (self._swapped(shapes[0]), *shapes[1:]) if self.return_state else self._swapped(shapes)

    @property
    def num_units(self) -> int:
        """Number of elements of an output."""
        return int(self.units)

    @property
    def kernel(self) -> Any:
        """The weights of the inputs, `[size, gates * units]`."""
        return self.cell.kernel

    @property
    def recurrent_kernel(self) -> Any:
        """The weights of the previous outputs, `[units, gates * units]`."""
        return self.cell.recurrent_kernel

    @property
    def biases(self) -> Any:
        """The biases, `[gates * units]`, or `[2, gates * units]` for a GRU with `reset_after`."""
        return self.cell.bias

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        config = super().get_config()
        for name in (*_UNSUPPORTED, "zero_output_for_mask"):
            config.pop(name, None)
        return {
            **config,
            "activation": self._names[0],
            "recurrent_activation": self._names[1],
            "dropout": self._rate,
            "dropout_seed": self._dropout_seed,
            "partials_dtype": self._partials_dtype,
            "seed": self._seed,
            "time_major": self._time_major,
            **{name: dict(value) for name, value in self._options.items()},
        }


@keras.saving.register_keras_serializable(package="keras_ipu")
class LSTM(_PopnnRNN, keras.layers.LSTM):
    """Long short-term memory layer.

    Args:
        units: elements of an output.
        activation: `tanh`, `relu`, `softmax`, `sigmoid` or `hard_sigmoid`.
        recurrent_activation: the same but `relu`.
        use_bias: must be True.
        kernel_initializer: of the weights of the inputs; None for Glorot's uniform one with `seed`.
        recurrent_initializer: of the weights of the outputs before; None for the orthogonal one with `seed`.
        bias_initializer: of the biases; None for zeros.
        dropout: the share of the inputs' elements that are dropped while training, the same at all time steps.
        dropout_seed: two int32 for the same elements each time.
        implementation: no effect.
        partials_dtype: of partial sums on the IPU; recorded, no effect.
        seed: of initializers that are None.
        time_major: whether time is the first dimension of the data, rather than the second.
        options: of the IPU's library; recorded, no effect.
        options_bwd: the same for the backward pass.
        kwargs: `unit_forget_bias`, `return_sequences`, `return_state` and `stateful` as for `keras.layers.LSTM`, and
            those of `keras.layers.Layer`.

    Raises:
        ValueError: for what the IPU's layer does not support: regularizers, constraints, `recurrent_dropout`,
            `go_backwards`, `unroll`, other activations.
    """

    _KIND = "LSTM"


@keras.saving.register_keras_serializable(package="keras_ipu")
class GRU(_PopnnRNN, keras.layers.GRU):
    """Gated recurrent unit. Takes the arguments of this module's `LSTM`, with `reset_after` for `unit_forget_bias`.

    `reset_after` says whether the reset gate applies after the product with the recurrent weights; default: True.
    """

    _KIND = "GRU"


def _checked_activations(activation: Any, recurrent_activation: Any) -> tuple[str, str]:
    found = _name(activation), _name(recurrent_activation)
    for name, accepted, kind in (
        (found[0], ACTIVATIONS, "an activation"),
        (found[1], RECURRENT_ACTIVATIONS, "a recurrent activation"),
    ):
        if name not in accepted:
            listed = ",".join(f'"{one}"' for one in accepted)
            raise ValueError(f"IPU custom RNN layer does not support '{name}' as {kind}. Acceptable value are {listed}")
    return found


def _name(activation: Any) -> str:
    return activation if isinstance(activation, str) else str(getattr(activation, "__name__", activation))


def _function(name: str) -> Any:
    return hard_sigmoid if name == "hard_sigmoid" else keras.activations.get(name)
