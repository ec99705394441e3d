"""Activations, grouped convolutions, sampled losses and CTC."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, overload

import tensorflow as tf

from ipu_tf._ops.ctc_beam_search import ctc_beam_search_decoder, ctc_beam_search_decoder_with_log_probs
from ipu_tf._ops.ctc_ops import ctc_loss_v2, ctc_loss_with_log_probs
from ipu_tf._ops.sampled_losses import _compute_sampled_logits, nce_loss, sampled_softmax_loss
from ipu_tf.emulation import record_ignored

__all__ = [
    "_compute_sampled_logits",
    "ctc_beam_search_decoder",
    "ctc_beam_search_decoder_with_log_probs",
    "ctc_loss_v2",
    "ctc_loss_with_log_probs",
    "gelu",
    "hard_sigmoid",
    "multi_conv",
    "nce_loss",
    "sampled_softmax_loss",
    "softmax",
    "swish",
]

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


def gelu(x: Any, approximate: bool = True, name: str | None = None) -> tf.Tensor:
    """Gaussian error linear unit.

    Args:
        x: a tensor of floats; half precision is worked out in float32.
        approximate: whether to use tanh rather than erf.
        name: of the op.

    Example:
        >>> round(float(gelu(1.0)), 4)
        0.8412
    """
    x = tf.convert_to_tensor(x)
    return tf.cast(tf.nn.gelu(_at_least_single(x), approximate, name=name), x.dtype)


def hard_sigmoid(x: Any, name: str | None = None) -> tf.Tensor:
    """`0.2 * x + 0.5`, clipped to [0, 1].

    Example:
        >>> hard_sigmoid([-3.0, 0.0, 9.0]).numpy().tolist()
        [0.0, 0.5, 1.0]
    """
    x = tf.convert_to_tensor(x)
    return tf.clip_by_value(0.2 * x + 0.5, 0, 1, name=name)


def swish(x: Any, name: str | None = None) -> tf.Tensor:
    """`x * sigmoid(x)`.

    Example:
        >>> round(float(swish(1.0)), 4)
        0.7311
    """
    with tf.name_scope(name or "swish"):
        return tf.nn.silu(tf.convert_to_tensor(x))


def softmax(x: Any, stable: bool = False, name: str | None = None) -> tf.Tensor:
    """Softmax over the last dimension.

    Args:
        x: a tensor of floats.
        stable: recorded, without effect: the largest element is always subtracted first, so that nothing overflows.
        name: of the op.

    Example:
        >>> softmax([1.0, 1.0]).numpy().tolist()
        [0.5, 0.5]
    """
    record_ignored("softmax.stable", stable or None, "the largest element is always subtracted first")
    return tf.nn.softmax(tf.convert_to_tensor(x), name=name)


@overload
def multi_conv(
    func: Callable[_Args, _Result], options: Mapping[str, str] | None = None
) -> Callable[_Args, _Result]: ...


@overload
def multi_conv(
    func: None = None, options: Mapping[str, str] | None = None
) -> Callable[[Callable[_Args, _Result]], Callable[_Args, _Result]]: ...


def multi_conv(func: Callable[..., Any] | None = None, options: Mapping[str, str] | None = None) -> Callable[..., Any]:
    """A decorator for a function whose convolutions may run at the same time; its results are those of the function.

    Args:
        func: takes tensors as positional arguments only and gives at least one tensor.
        options: Poplar's options for the convolutions; recorded, without effect.

    Returns:
        The decorated function; without `func`, a decorator.

    Raises:
        TypeError: when called, if the options are not a dictionary.

    Example:
        >>> import tensorflow as tf
        >>> @multi_conv
        ... def both(x, y):
        ...     return x + 1.0, y + 2.0
        >>> [float(result) for result in both(tf.constant(1.0), tf.constant(1.0))]
        [2.0, 3.0]
    """

    def decorated(inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def wrapper(*args: Any) -> Any:
            if options is not None and not isinstance(options, Mapping):
                raise TypeError(f"Expected the multi_conv `options` to be a `dict`, but got {options} instead.")
            record_ignored("multi_conv.options", options)
            with tf.name_scope("multi_conv"):
                results = inner(*tf.nest.map_structure(tf.convert_to_tensor, args))
                return tf.nest.map_structure(tf.convert_to_tensor, results)

        return wrapper

    return decorated if func is None else decorated(func)


def _at_least_single(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32) if x.dtype in (tf.float16, tf.bfloat16) else x
