"""Assertions in a running program: records the first failed check with its step and its tensors' first values.

A program with checks carries an array of words with it: 0 or the number of the first check that failed, counted from 1;
the step of the outermost loop, counted from 1, or 0 outside of loops; and the first elements of the check's tensors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipu_tf.device.errors import DeviceError

Types = tuple[jax.ShapeDtypeStruct, ...]

ASSERTIONS = "assertions"
"""The piece of hidden state that holds the first failure: `uint32[2 + n]`."""
_HEADER = 2


@dataclasses.dataclass(frozen=True)
class Check:
    """Assertion of a program.

    Attributes:
        kind: the type of TensorFlow's op: `Assert`, `CheckNumerics`, or one whose operands are checked.
        origin: the operation, by TensorFlow's name for it.
        message: of `check_numerics`; of a TensorArray, whether it may grow.
        pieces: what an assertion shows, in order: text, or None for the next of its tensors.
        summarize: how many elements of each tensor it shows; -1 for all.
        tensors: shape and dtype of each tensor that is kept for the message.
    """

    kind: str
    origin: str
    message: str = ""
    pieces: tuple[str | None, ...] = ()
    summarize: int = 3
    tensors: Types = ()


class AssertionFailed(DeviceError, AssertionError):
    """Raised after an execution if a check of the program failed.

    Attributes:
        check: the check.
        values: the first elements of each of its tensors, flat.
        where: the step and the replica, in words; empty where there are neither.
    """

    def __init__(self, check: Check, values: Sequence[np.ndarray], where: str) -> None:
        self.check = check
        self.values = tuple(values)
        self.where = where
        super().__init__(f"The check `{check.origin}` failed{where}. Received: {[value.tolist() for value in values]}.")


def state_type(tensors: Types, summarize: int) -> jax.ShapeDtypeStruct:
    """Returns shape and dtype of the hidden state that a check with these tensors needs."""
    words = sum(_kept(t, summarize) * _words_each(t.dtype) for t in tensors)
    return jax.ShapeDtypeStruct((_HEADER + words,), np.dtype(np.uint32))


def noted(state: jax.Array, failed: jax.Array, number: int, tensors: Sequence[jax.Array], summarize: int) -> jax.Array:
    """Updates the hidden state after a check: records the first failure.

    Args:
        state: before it.
        failed: `bool[]`.
        number: of the check in the program's list.
        tensors: the tensors that the check shows.
        summarize: how many elements of each; -1 for all.
    """
    words = [_words(tensor.reshape(-1)[: _kept(tensor, summarize)]) for tensor in tensors]
    mine = jnp.concatenate([jnp.array([number + 1, 0], np.uint32), *words])
    mine = jnp.pad(mine, (0, state.shape[0] - mine.shape[0]))
    return jnp.where((state[0] == 0) & failed, mine, state)


def stamped(before: jax.Array, after: jax.Array, iteration: jax.Array) -> jax.Array:
    """Updates the hidden state after a loop's iteration: records its number if the first failure was in it.

    An outer loop records its number after the loops in it, so the outermost loop's is kept.
    """
    failed_now = (before[0] == 0) & (after[0] != 0)
    return after.at[1].set(jnp.where(failed_now, iteration.astype(np.uint32) + 1, after[1]))


def failed(state: jax.Array) -> jax.Array:
    """Returns whether a check has failed so far, `bool[]`."""
    return state[0] != 0


def check_assertions(states: np.ndarray, checks: Mapping[int, Check]) -> None:
    """Raises the first failed assertion of an execution, from its hidden state.

    Args:
        states: `uint32[2 + n]`, or `uint32[replicas, 2 + n]`.
        checks: the program's checks by their numbers.

    Raises:
        AssertionFailed: if one of them failed. Of several replicas, the one whose step is the first.
    """
    each = [(state[1], replica, state) for replica, state in enumerate(np.atleast_2d(states)) if state[0]]
    if not each:
        return
    step, replica, state = min(each, key=lambda entry: entry[:2])
    check = checks[int(state[0]) - 1]
    where = (f" in step {step} of the loop" if step else "") + (f" on replica {replica}" if states.ndim > 1 else "")
    raise AssertionFailed(check, _values(state[_HEADER:], check), where)


def _kept(tensor: Any, summarize: int) -> int:
    """Returns the number of elements of a tensor that are kept."""
    size = int(np.prod(tensor.shape, dtype=np.int64))
    return size if summarize < 0 else min(size, summarize)


def _words_each(dtype: Any) -> int:
    return max(1, np.dtype(dtype).itemsize // 4)


def _words(flat: jax.Array) -> jax.Array:
    """Converts numbers to 32-bit words: small types are widened, large ones split."""
    if jnp.issubdtype(flat.dtype, jnp.complexfloating):
        flat = jnp.stack([flat.real, flat.imag], axis=-1).reshape(-1)
    if flat.dtype.itemsize < 4:
        flat = flat.astype(_widened(flat.dtype))
    return lax.bitcast_convert_type(flat, np.dtype(np.uint32)).reshape(-1)


def _widened(dtype: Any) -> np.dtype:
    return np.dtype(np.float32 if jnp.issubdtype(dtype, jnp.floating) else np.int32)


def _values(words: np.ndarray, check: Check) -> list[np.ndarray]:
    """Converts words back to numbers, one array for each tensor of a check; inverse of `_words`."""
    values = []
    for tensor in check.tensors:
        count = _kept(tensor, check.summarize) * _words_each(tensor.dtype)
        own, words = np.ascontiguousarray(words[:count]), words[count:]
        held = tensor.dtype if tensor.dtype.itemsize >= 4 else _widened(tensor.dtype)
        values.append(own.view(held).astype(tensor.dtype))
    return values
