"""Registers Python functions in place of a user's precompiled Poplar ops."""

from __future__ import annotations

import dataclasses
import inspect
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._state.registry import register_state
from ipu_tf.emulation import EmulationError

_lock = threading.Lock()
_registered: dict[tuple[str, str], UserOp] = register_state("user ops", {})


@dataclasses.dataclass(frozen=True)
class UserOp:
    """Python implementation of one function of a user's library.

    Attributes:
        fn: from the inputs to the outputs.
        grad_fn: from `(output_gradients, inputs, outputs)` to the inputs' gradients; None where `fn` is differentiated.
    """

    fn: Callable[..., Any]
    grad_fn: Callable[..., Any] | None

    def outputs(self, inputs: Sequence[tf.Tensor], attributes: str | None) -> list[tf.Tensor]:
        """The outputs for some inputs."""
        return _as_list(_called(self.fn, inputs, attributes=attributes))


def register_user_op(
    library_basename: str, op_name: str, fn: Callable[..., Any], grad_fn: Callable[..., Any] | None = None
) -> None:
    """Registers the Python implementation of an op of a compiled IPU library, which is code for IPUs.

    `custom_ops.precompiled_user_op` and `cpu_user_operation` look an op up by the last part of their `library_path`
    and by their `op_name`, and trace `fn` into the program.

    Args:
        library_basename: file name of the library, e.g. `libmy_op.so`.
        op_name: the op's name in the library: `Build` by default in `precompiled_user_op`, `Callback` in
            `cpu_user_operation`.
        fn: takes one tensor an input and gives one tensor an output, by TensorFlow ops that XLA can compile. If it has
            a parameter `attributes`, it is given that argument of the op (a string or None).
        grad_fn: takes the gradients of the outputs, the inputs and the outputs, three lists of tensors, and gives the
            gradients of the inputs named in `inputs_with_gradients` (all by default), in their order. If it has a
            parameter `attributes`, it is given `gradient_attributes`; if it has a parameter `input_index` and the op
            asks for `separate_gradients`, it is called once for each of these inputs, with its index, and gives that
            one gradient. By default TensorFlow differentiates `fn`.

    Raises:
        TypeError: if `fn` or `grad_fn` cannot be called.

    Example:
        >>> import tensorflow as tf
        >>> import ipu_tf as ipu
        >>> ipu.register_user_op("libscale.so", "Build", lambda x: 3 * x)
        >>> outs = {"output_types": [tf.float32], "output_shapes": [tf.TensorShape([])]}
        >>> [y] = ipu.custom_ops.precompiled_user_op([tf.constant(2.0)], "/opt/libscale.so", outs=outs)
        >>> float(y)
        6.0
    """
    for role, function in (("fn", fn), ("grad_fn", grad_fn)):
        if not callable(function) and not (role == "grad_fn" and function is None):
            raise TypeError(f"register_user_op needs a function as `{role}`. Received: {function!r}.")
    with _lock:
        _registered[os.path.basename(library_basename), op_name] = UserOp(fn, grad_fn)


def user_op(library_path: str, op_name: str) -> UserOp:
    """Returns the registered implementation of an op of a library.

    Args:
        library_path: path of the library; its last part counts.
        op_name: the op's name in the library.

    Raises:
        tf.errors.NotFoundError: if nothing is registered, and there is no such library either.
        EmulationError: if nothing is registered.
    """
    library = os.path.basename(library_path)
    with _lock:
        found = _registered.get((library, op_name))
        others = sorted(name for base, name in _registered if base == library)
    if found is not None:
        return found
    advice = (
        f"Register a function of TensorFlow tensors in its place: "
        f"ipu_tf.register_user_op({library!r}, {op_name!r}, fn, grad_fn=None). "
        f"Registered for this library: {', '.join(others) or 'nothing'}."
    )
    if not os.path.exists(library_path):
        raise tf.errors.NotFoundError(
            None, None, f"{library_path}: cannot open shared object file: No such file or directory. {advice}"
        )
    raise EmulationError(f"The op `{op_name}` of {library_path} is code for IPUs, which cannot be run here. {advice}")


def call_gradient(
    function: Callable[..., Any],
    lists: Sequence[list[tf.Tensor]],
    attributes: str | None,
    indices: Sequence[int] | None,
) -> list[Any]:
    """Calls a `grad_fn`; returns its gradients.

    Args:
        function: the `grad_fn`.
        lists: output gradients, inputs and outputs.
        attributes: what it is given as `attributes`.
        indices: inputs to ask for one by one; None asks for all gradients at once.
    """
    if indices is None or "input_index" not in inspect.signature(function).parameters:
        return _as_list(_called(function, lists, attributes=attributes))
    return [_called(function, lists, attributes=attributes, input_index=index) for index in indices]


def _called(function: Callable[..., Any], arguments: Sequence[Any], **named: Any) -> Any:
    """Calls a function with those named arguments that it has."""
    parameters = inspect.signature(function).parameters
    return function(*arguments, **{name: value for name, value in named.items() if name in parameters})


def _as_list(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]
