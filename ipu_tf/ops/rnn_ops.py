"""Recurrent layers that make their own variables, in TF1's way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from ipu_tf._rnn.cells import gru, lstm
from ipu_tf._rnn.layer import RecurrentLayer, untrained

__all__ = ["LSTMStateTuple", "PopnnAUGRU", "PopnnDynamicGRU", "PopnnDynamicLSTM", "PopnnGRU", "PopnnLSTM"]


class LSTMStateTuple(NamedTuple):
    """The state of an LSTM, as TensorFlow 1's `tf.nn.rnn_cell.LSTMStateTuple`, which TensorFlow no longer has.

    Attributes:
        c: `[batch, num_units]`: the state that is not given out.
        h: `[batch, num_units]`: the state that is given out.
    """

    c: Any
    h: Any


class PopnnLSTM(RecurrentLayer):
    """An LSTM layer. Its gates lie in the order input, forget, candidate, output.

    Example:
        >>> import tensorflow as tf
        >>> outputs, state = PopnnLSTM(3)(tf.ones([5, 2, 4]))
        >>> outputs.shape.as_list(), state.c.shape.as_list()
        ([5, 2, 3], [2, 3])
    """

    _gates = 4

    def call(self, inputs: Any, initial_state: Any = None, training: bool = True) -> Any:
        """
        Args:
            inputs: `[steps, batch, features]`.
            initial_state: `LSTMStateTuple` of c and h, `[batch, num_units]` each; by default zeros.
            training: whether gradients can be taken.

        Returns:
            Outputs `[steps, batch, num_units]` and, unless `return_state` is off, the last `LSTMStateTuple`.

        Raises:
            ValueError: for another kind of initial state; when a gradient is taken without `training`.
        """
        return self._run(inputs, None, initial_state, training, "PopnnLstmLayer")

    def state_shape(self, batch_size: int) -> tuple[list[int], list[int]]:
        """Shapes of c and h."""
        return [batch_size, self.num_units], [batch_size, self.num_units]

    def _run(self, inputs: Any, lengths: Any, state: Any, training: bool, operation: str) -> Any:
        if state is None:
            state = LSTMStateTuple(*(tf.zeros(shape, self.dtype) for shape in self.state_shape(_batch(inputs))))
        # TensorFlow 1's own class is not ours.
        if getattr(state, "_fields", None) != LSTMStateTuple._fields:
            raise ValueError(f"Invalid initial_state type: `{type(state)}`, expecting `LSTMStateTuple`.")
        c, h = (tf.cast(part, self.dtype) for part in state)
        outputs, h, c = lstm(inputs, self.kernel, self.biases, h, c, self._activations, lengths)
        outputs, h, c = untrained((outputs, h, c), training, operation)
        return (outputs, LSTMStateTuple(c, h)) if self._return_state else outputs


class PopnnDynamicLSTM(PopnnLSTM):
    """An LSTM layer for sequences of different lengths."""

    def call(  # type: ignore[override] # the lengths come second, as in Graphcore's
        self, inputs: Any, seq_len: Any, initial_state: Any = None, training: bool = True
    ) -> Any:
        """As of `PopnnLSTM`.

        Args:
            inputs: `[steps, batch, features]`.
            seq_len: `[batch]`: how many steps count. After them outputs are zero; the last state is that before them.
            initial_state: `LSTMStateTuple` of c and h, `[batch, num_units]` each; by default zeros.
            training: whether gradients can be taken.
        """
        return self._run(inputs, seq_len, initial_state, training, "PopnnDynamicLstmLayer")


class PopnnGRU(RecurrentLayer):
    """A GRU layer. Its gates lie in the order update, reset, candidate.

    Example:
        >>> import tensorflow as tf
        >>> outputs, state = PopnnGRU(3)(tf.ones([5, 2, 4]))
        >>> outputs.shape.as_list(), state.shape.as_list()
        ([5, 2, 3], [2, 3])
    """

    _gates = 3

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
        reset_after: bool = False,
        options: Mapping[str, Any] | None = None,
        options_bwd: Mapping[str, Any] | None = None,
    ) -> None:
        """As of `RecurrentLayer`.

        Args:
            num_units: size of the state.
            dtype: float16 or float32.
            partials_dtype: recorded, without effect.
            seed: of the default `weights_initializer`.
            weights_initializer: by default Glorot's uniform one.
            bias_initializer: by default zeros.
            activation: of the candidate state.
            recurrent_activation: of the gates.
            return_state: whether calls also give the last state.
            name: of the variable scope.
            reset_after: whether the reset gate applies after the product with the state. The biases then have the
                shape `[3, 2, num_units]`: for inputs and for the state.
            options: recorded, without effect.
            options_bwd: recorded, without effect.
        """
        super().__init__(
            num_units,
            dtype,
            partials_dtype,
            seed,
            weights_initializer,
            bias_initializer,
            activation,
            recurrent_activation,
            return_state,
            name,
            options,
            options_bwd,
        )
        self._reset_after = reset_after

    @property
    def canonical_bias_shapes(self) -> list[int]:
        """Shape of the biases."""
        return [self._gates, 2, self._num_units] if self._reset_after else [self._gates, self._num_units]

    def call(self, inputs: Any, initial_state: Any = None, training: bool = True) -> Any:
        """
        Args:
            inputs: `[steps, batch, features]`.
            initial_state: `[batch, num_units]`; by default zeros.
            training: whether gradients can be taken.

        Returns:
            Outputs `[steps, batch, num_units]` and, unless `return_state` is off, the last state.

        Raises:
            ValueError: when a gradient is taken without `training`.
        """
        return self._run(inputs, None, None, initial_state, training, "PopnnGRULayer")

    def state_shape(self, batch_size: int) -> list[int]:
        """Shape of the state."""
        return [batch_size, self.num_units]

    def _run(self, inputs: Any, lengths: Any, attention: Any, state: Any, training: bool, operation: str) -> Any:
        state = tf.zeros(self.state_shape(_batch(inputs)), self.dtype) if state is None else state
        arguments = inputs, self.kernel, self._biases(), tf.cast(state, self.dtype), self._activations
        results = gru(*arguments, self._reset_after, lengths, attention)
        outputs, state = untrained(results, training, operation)
        return (outputs, state) if self._return_state else outputs

    def _biases(self) -> Any:
        return self.biases


class PopnnDynamicGRU(PopnnGRU):
    """A GRU layer for sequences of different lengths."""

    def call(  # type: ignore[override] # the lengths come second, as in Graphcore's
        self, inputs: Any, seq_len: Any, initial_state: Any = None, training: bool = True, time_major: bool = True
    ) -> Any:
        """As of `PopnnGRU`; outputs are `[steps, batch, num_units]` in either case.

        Args:
            inputs: `[steps, batch, features]`.
            seq_len: `[batch]`: how many steps count. After them outputs are zero; the last state is that before them.
            initial_state: `[batch, num_units]`; by default zeros.
            training: whether gradients can be taken.
            time_major: set to False for inputs `[batch, steps, features]`.
        """
        inputs = inputs if time_major else tf.transpose(inputs, [1, 0, 2])
        return self._run(inputs, seq_len, None, initial_state, training, "PopnnDynamicGRULayer")


class PopnnAUGRU(PopnnGRU):
    """A GRU layer whose update gate an attention score weakens (https://arxiv.org/abs/1809.03672).

    Its biases are the variables `bias_r_u`, from ones, and `bias_c`, from zeros; `biases` exists and is not used.
    """

    def call(  # type: ignore[override] # lengths and scores come second, as in Graphcore's
        self,
        inputs: Any,
        seq_len: Any,
        attention_score: Any,
        initial_state: Any = None,
        training: bool = True,
        time_major: bool = True,
    ) -> Any:
        """As of `PopnnGRU`; outputs are `[steps, batch, num_units]` in either case.

        Args:
            inputs: `[steps, batch, features]`.
            seq_len: `[batch]`: how many steps count. After them outputs are zero; the last state is that before them.
            attention_score: `[steps, batch]`: the update gate is multiplied by `1 - attention_score`.
            initial_state: `[batch, num_units]`; by default zeros.
            training: whether gradients can be taken.
            time_major: set to False for inputs `[batch, steps, features]` and scores `[batch, steps]`.
        """
        score = tf.cast(attention_score, self.dtype)
        inputs = inputs if time_major else tf.transpose(inputs, [1, 0, 2])
        score = score if time_major else tf.transpose(score)
        return self._run(inputs, seq_len, score, initial_state, training, "PopnnAUGRULayer")

    def _make_weights(self) -> None:
        super()._make_weights()
        units = self.num_units
        self._gate_biases = self._weight("bias_r_u", [2, units], tf.compat.v1.ones_initializer(self.dtype))
        self._state_bias = self._weight("bias_c", [1, units], tf.compat.v1.zeros_initializer(self.dtype))

    def _biases(self) -> tf.Tensor:
        biases = tf.concat([self._gate_biases, self._state_bias], axis=0)
        return tf.stack([biases, biases], axis=1) if self._reset_after else biases


def _batch(inputs: tf.Tensor) -> Any:
    """Returns the batch size: an int if it is static."""
    return inputs.shape.as_list()[1] or tf.shape(inputs)[1]
