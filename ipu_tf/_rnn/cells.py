"""Recurrent layers as functions of their weights: LSTM, GRU and GRU with attention."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_tf.ops.nn_ops import hard_sigmoid

_ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "hard_sigmoid": hard_sigmoid,
    "linear": tf.identity,
    "relu": tf.nn.relu,
    "sigmoid": tf.sigmoid,
    "softmax": tf.nn.softmax,
    "tanh": tf.tanh,
}


@dataclasses.dataclass(frozen=True)
class Activations:
    """The two functions of a recurrent cell, by name.

    Attributes:
        activation: of the candidate state.
        recurrent_activation: of the gates.
    """

    activation: str = "tanh"
    recurrent_activation: str = "sigmoid"

    def __post_init__(self) -> None:
        for name in (self.activation, self.recurrent_activation):
            if name not in _ACTIVATIONS:
                raise ValueError(f"Unknown activation: {name!r}. Choose one of {', '.join(_ACTIVATIONS)}.")

    def state(self, values: tf.Tensor) -> tf.Tensor:
        """The candidate state."""
        return _ACTIVATIONS[self.activation](values)

    def gate(self, values: tf.Tensor) -> tf.Tensor:
        """A gate."""
        return _ACTIVATIONS[self.recurrent_activation](values)


def lstm(
    inputs: tf.Tensor,
    kernel: tf.Tensor,
    biases: tf.Tensor,
    h: tf.Tensor,
    c: tf.Tensor,
    activations: Activations,
    sequence_lengths: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """An LSTM layer, time first.

    Args:
        inputs: `[steps, batch, features]`.
        kernel: `[features + units, 4 * units]`: the input gate, the forget gate, the candidate, the output gate.
        biases: `[4, units]`, in the same order.
        h: `[batch, units]`: the state that is given out.
        c: `[batch, units]`: the state that is not.
        activations: functions of the cell.
        sequence_lengths: `[batch]`: how many steps count; after them the outputs are zero and the states stay.

    Returns:
        Outputs `[steps, batch, units]`, the last h and the last c.
    """
    features, units = inputs.shape.as_list()[-1], h.shape.as_list()[-1]
    projected = tf.matmul(inputs, kernel[:features]) + tf.reshape(biases, [-1])
    recurrent = kernel[features:]

    def cell(state: tuple[tf.Tensor, ...], projected: tf.Tensor, _: Any) -> tuple[tf.Tensor, ...]:
        h, c = state
        gates = tf.split(projected + tf.matmul(h, recurrent), [units] * 4, axis=1)
        take, forget, give = (activations.gate(gates[index]) for index in (0, 1, 3))
        c = forget * c + take * activations.state(gates[2])
        return give * activations.state(c), c

    outputs, (h, c) = _run(cell, (h, c), projected, None, sequence_lengths)
    return outputs, h, c


def gru(
    inputs: tf.Tensor,
    kernel: tf.Tensor,
    biases: tf.Tensor,
    h: tf.Tensor,
    activations: Activations,
    reset_after: bool = False,
    sequence_lengths: tf.Tensor | None = None,
    attention: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """A GRU layer, time first.

    Args:
        inputs: `[steps, batch, features]`.
        kernel: `[features + units, 3 * units]`: the update gate, the reset gate, the candidate.
        biases: `[3, units]` in the same order; with `reset_after` `[3, 2, units]`, for inputs and for the state.
        h: `[batch, units]`: the state.
        activations: functions of the cell.
        reset_after: whether the reset gate applies after the product with the state, else before.
        sequence_lengths: `[batch]`: how many steps count; after them the outputs are zero and the state stays.
        attention: `[steps, batch]`: the update gate is multiplied by `1 - attention`.

    Returns:
        Outputs `[steps, batch, units]` and the last state.
    """
    features, units = inputs.shape.as_list()[-1], h.shape.as_list()[-1]
    of_inputs, of_state = (biases[:, 0], biases[:, 1]) if reset_after else (biases, tf.zeros_like(biases))
    projected = tf.matmul(inputs, kernel[:features]) + tf.reshape(of_inputs, [-1])
    recurrent, recurrent_bias = kernel[features:], tf.reshape(of_state, [-1])
    gates, candidate = recurrent[:, : 2 * units], recurrent[:, 2 * units :]

    def cell(state: tuple[tf.Tensor, ...], projected: tf.Tensor, score: Any) -> tuple[tf.Tensor, ...]:
        (h,) = state
        both = projected[:, : 2 * units] + tf.matmul(h, gates) + recurrent_bias[: 2 * units]
        update, reset = (activations.gate(gate) for gate in tf.split(both, [units] * 2, axis=1))
        if reset_after:
            new = reset * (tf.matmul(h, candidate) + recurrent_bias[2 * units :])
        else:
            new = tf.matmul(reset * h, candidate)
        new = activations.state(projected[:, 2 * units :] + new)
        update = update if attention is None else update * (1 - score[:, None])
        return (update * h + (1 - update) * new,)

    outputs, (h,) = _run(cell, (h,), projected, attention, sequence_lengths)
    return outputs, h


def _run(
    cell: Callable[[tuple[tf.Tensor, ...], tf.Tensor, Any], tuple[tf.Tensor, ...]],
    state: tuple[tf.Tensor, ...],
    projected: tf.Tensor,
    extra: tf.Tensor | None,
    lengths: tf.Tensor | None,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Applies the cell step by step; the first part of its state is the output."""
    steps = projected.shape.as_list()[0]

    def body(number: tf.Tensor, state: tuple[tf.Tensor, ...], outputs: tf.TensorArray) -> Any:
        score = None if extra is None else tf.gather(extra, number)
        new = cell(state, tf.gather(projected, number), score)
        output = new[0]
        if lengths is not None:
            counts = (number < tf.cast(lengths, tf.int32))[:, None]
            new = tuple(tf.where(counts, after, before) for after, before in zip(new, state, strict=True))
            output = tf.where(counts, output, tf.zeros_like(output))
        return number + 1, new, outputs.write(number, output)

    outputs = tf.TensorArray(projected.dtype, steps, element_shape=state[0].shape)
    _, state, outputs = tf.while_loop(
        lambda number, *_: number < steps, body, (0, state, outputs), maximum_iterations=steps
    )
    return outputs.stack(), state
