"""Base class of the TensorFlow 1 recurrent layers: weights in a variable scope, options, shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ipu_tf._rnn.cells import Activations
from ipu_tf.emulation import record_ignored
from ipu_tf.ops.op_util import get_activation_name

tf1 = tf.compat.v1


class RecurrentLayer:
    """A recurrent layer, time first, with one kernel for inputs and state together.

    Attributes:
        built: whether the weights exist.
        kernel: `[input_size + num_units, gates * num_units]`, once built.
        biases: `[gates, num_units]`, once built.
        name: of the variable scope; while it is not built, the one asked for.
    """

    _gates: int

    def __init__(
        self,
        num_units: int,
        dtype: Any = tf.float32,
        partials_dtype: Any = tf.float32,
        seed: int | None = None,
        weights_initializer: Any = None,
        bias_initializer: Any = None,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        return_state: bool = True,
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
        options_bwd: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Args:
            num_units: size of the state.
            dtype: float16 or float32.
            partials_dtype: recorded, without effect: sums are as precise as the dtype or more.
            seed: of the default `weights_initializer`.
            weights_initializer: by default Glorot's uniform one.
            bias_initializer: by default zeros.
            activation: `tanh`, `relu`, `softmax`, `sigmoid` or `hard_sigmoid`, or the function.
            recurrent_activation: likewise, for the gates.
            return_state: whether calls also give the last state.
            name: of the variable scope.
            options: Poplar's for the forward pass; recorded, without effect.
            options_bwd: Poplar's for the backward pass; recorded, without effect.

        Raises:
            ValueError: for other dtypes or activations.
            TypeError: if an activation is a function of another library.
        """
        if tf.as_dtype(dtype) not in (tf.float16, tf.float32):
            raise ValueError(f"Only support float16, float32, provided {dtype}")
        self.dtype = tf.as_dtype(dtype)
        self.name = name or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()
        self.built = False
        self._weights: list[tf.Variable] = []
        self._num_units = num_units
        self._input_size: int | None = None
        self._weights_initializer = weights_initializer or tf1.glorot_uniform_initializer(seed, self.dtype)
        self._bias_initializer = bias_initializer or tf1.zeros_initializer(self.dtype)
        names = get_activation_name(activation), get_activation_name(recurrent_activation)
        self._activations = Activations(*names)
        self._return_state = return_state
        self._options = {"options": options or {}, "options_bwd": options_bwd or {}}
        self._record(partials_dtype)

    def _record(self, partials_dtype: Any) -> None:
        layer = type(self).__name__
        if tf.as_dtype(partials_dtype) != tf.float32:
            record_ignored(f"{layer}.partials_dtype", partials_dtype)
        for name, options in self._options.items():
            record_ignored(f"{layer}.{name}", options or None)

    @property
    def num_layers(self) -> int:
        """Always 1."""
        return 1

    @property
    def num_units(self) -> int:
        """Size of the state."""
        return self._num_units

    @property
    def input_size(self) -> int:
        """Size of the inputs' last dimension.

        Raises:
            ValueError: before the layer is built.
        """
        if self._input_size is None:
            raise ValueError("'input_size' is unknown since layer has not been built.")
        return self._input_size

    @property
    def saveable(self) -> bool:
        """False: the weights are ordinary variables."""
        return False

    @property
    def canonical_weight_shape(self) -> list[int]:
        """Shape of the kernel.

        Raises:
            RuntimeError: before the inputs' size is known.
        """
        if self._input_size is None:
            raise RuntimeError(f"{type(self).__name__}.canonical_weight_shape invoked before input shape is known")
        return [self._input_size + self._num_units, self._gates * self._num_units]

    @property
    def canonical_bias_shapes(self) -> list[int]:
        """Shape of the biases."""
        return [self._gates, self._num_units]

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """The weights; none before the layer is built."""
        return list(self._weights)

    def build(self, input_shape: Any) -> None:
        """Makes the weights, unless they exist; otherwise the first call does.

        Args:
            input_shape: `[steps, batch, features]`, of which the features are known.

        Raises:
            ValueError: for another rank or unknown features.
        """
        if self.built:
            return
        rank = tf.TensorShape(input_shape).rank
        if rank != 3:
            raise ValueError(f"Expecting input_shape with 3 dims, got {rank}")
        features = tf.TensorShape(input_shape).as_list()[-1]
        if features is None:
            raise ValueError("The last dimension of the inputs to `_PopnnRNN` should be defined. Found `None`.")
        self._input_size = features
        with tf1.variable_scope(None, default_name=self.name) as scope:
            self.name = scope.name
            self._make_weights()
        self.built = True

    def _make_weights(self) -> None:
        self.kernel = self._weight("kernel", self.canonical_weight_shape, self._weights_initializer)
        self.biases = self._weight("biases", self.canonical_bias_shapes, self._bias_initializer)

    def _weight(self, name: str, shape: list[int], initializer: Any) -> tf.Variable:
        self._weights.append(tf1.get_variable(name, shape, self.dtype, initializer))
        return self._weights[-1]

    def _check_options(self) -> None:
        """Refuses what Poplar would refuse of the options known here."""
        for options in self._options.values():
            proportion = float(options.get("availableMemoryProportion", 0))
            if proportion < 0:
                message = "availableMemoryProportion: Value must be greater than or equal to 0. Received: "
                raise tf.errors.InternalError(None, None, f"{message}{proportion}.")

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Builds the layer if need be, then runs `call` with the same arguments."""
        self._check_options()
        inputs = tf.cast(inputs, self.dtype)
        self.build(self._time_first(inputs, kwargs).shape)
        with tf.name_scope(self.name.rpartition("/")[2]):
            return self.call(inputs, *args, **kwargs)

    def _time_first(self, inputs: tf.Tensor, kwargs: Mapping[str, Any]) -> tf.Tensor:
        return inputs

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs the layer; subclasses say how."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is called.")


def untrained(results: Any, training: bool, operation: str) -> Any:
    """The results, of which gradients may only be taken where `training` is set.

    Raises:
        ValueError: when a gradient is taken without it.
    """
    if training:
        return results

    @tf.custom_gradient
    def forward_only(*tensors: tf.Tensor) -> Any:
        def gradient(*_: Any) -> Any:
            raise ValueError(f"To use {operation} in gradients, is_training must be set to True.")

        return [tf.identity(tensor) for tensor in tensors], gradient

    return tf.nest.pack_sequence_as(results, forward_only(*tf.nest.flatten(results)))
