"""User-defined ops: codelet expressions, and Python functions in place of precompiled Poplar ops."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf._ops.user_ops import UserOp, call_gradient, user_op
from ipu_tf.vertex_edsl import as_expression, placeholder


def codelet_expression_op(vertex_expression: Callable[..., Any], *args: Any) -> tf.Tensor:
    """Computes an expression element by element. It has no gradient.

    Args:
        vertex_expression: takes one expression an argument, and combines them by what `vertex_edsl` has: `+`, `-`, `*`,
            unary `-` and `+`, `abs`, `constant`, `let`, `condition`.
        *args: tensors of one dtype, whose shapes broadcast.

    Returns:
        A tensor of the dtype of `args`.

    Raises:
        ValueError: without tensors, or for tensors of several dtypes.
        TypeError: for an operator that expressions do not have.
        LookupError: if its gradient is taken.

    Example:
        >>> import tensorflow as tf
        >>> from ipu_tf.ops.custom_ops import codelet_expression_op
        >>> codelet_expression_op(lambda x, y: x * x - y, tf.constant([2.0, 3.0]), tf.constant(1.0)).numpy().tolist()
        [3.0, 8.0]
    """
    tensors = [tf.convert_to_tensor(argument) for argument in args]
    dtypes = sorted({tensor.dtype.name for tensor in tensors})
    if len(dtypes) != 1:
        raise ValueError(
            f"codelet_expression_op needs at least one tensor, and all of one dtype. Received: {dtypes or 'none'}. "
            "Cast them first."
        )
    names = [f"in{index}" for index in range(len(tensors))]
    expression = as_expression(vertex_expression(*map(placeholder, names)))
    shape = functools.reduce(tf.broadcast_static_shape, [tensor.shape for tensor in tensors])

    @tf.custom_gradient
    def evaluated(*values: tf.Tensor) -> Any:
        result = expression.evaluate(dict(zip(names, values, strict=True)), values[0].dtype)
        return tf.broadcast_to(result, shape), _no_gradient

    return evaluated(*tensors)


def precompiled_user_op(
    inputs: Sequence[Any],
    library_path: str,
    gp_path: str = "",
    outs: dict[str, Any] | None = None,
    name: str = "UserOp",
    op_name: str = "Build",
    separate_gradients: bool = False,
    inputs_with_gradients: Sequence[int] | None = None,
    attributes: str | None = None,
    gradient_attributes: str | None = None,
) -> list[tf.Tensor]:
    """An op of a library built for IPUs, computed by the Python function that was registered for it.

    See `ipu_tf.register_user_op`: the library's code is for IPUs.

    Args:
        inputs: tensors.
        library_path: path of the library; its file name and `op_name` say which function is meant.
        gp_path: path of compiled codelets; without effect in emulation.
        outs: `{"output_types": [dtypes], "output_shapes": [shapes]}` of the outputs; by default there are none.
        name: scope of the ops' names.
        op_name: name of the op in the library.
        separate_gradients: whether the gradient of each input is computed by a call of its own.
        inputs_with_gradients: indices of the inputs that have gradients; by default all have.
        attributes: a string for the function.
        gradient_attributes: a string for its gradient.

    Returns:
        The outputs.

    Raises:
        ValueError: if an attribute is not a string, or the outputs are not as `outs` says.
        tf.errors.NotFoundError: if nothing is registered and there is no library either.
        EmulationError: if nothing is registered for the library and op.
    """
    record_ignored("precompiled_user_op.gp_path", gp_path or None)
    call = _Call(library_path, op_name, separate_gradients, inputs_with_gradients, attributes, gradient_attributes)
    return call.run(inputs, outs, name)


def cpu_user_operation(
    inputs: Sequence[Any],
    library_path: str,
    outs: dict[str, Any] | None = None,
    name: str = "UserOp",
    op_name: str = "Callback",
    separate_gradients: bool = False,
    inputs_with_gradients: Sequence[int] | None = None,
    attributes: str | None = None,
    gradient_attributes: str | None = None,
) -> list[tf.Tensor]:
    """An op of a library for an IPU's host, computed by the Python function that was registered for it.

    The function is traced into the program, like that of `precompiled_user_op`, which see for the arguments.

    Raises:
        ValueError: if an attribute is not a string, or the outputs are not as `outs` says.
        tf.errors.NotFoundError: if nothing is registered and there is no library either.
        EmulationError: if nothing is registered for the library and op.
    """
    call = _Call(library_path, op_name, separate_gradients, inputs_with_gradients, attributes, gradient_attributes)
    return call.run(inputs, outs, name)


class _Call:
    """One call of a user's op."""

    def __init__(
        self,
        library_path: str,
        op_name: str,
        separate_gradients: bool,
        inputs_with_gradients: Sequence[int] | None,
        attributes: str | None,
        gradient_attributes: str | None,
    ) -> None:
        for role, text in (("attributes", attributes), ("gradient_attributes", gradient_attributes)):
            if text and not isinstance(text, str):
                raise ValueError(f"Expected {role} to be a 'str' type, but was {type(text)}.")
        self._title = f"The op `{op_name}` of {library_path}"
        self._op: UserOp = user_op(library_path, op_name)
        self._separate = separate_gradients
        self._with_gradients = None if inputs_with_gradients is None else list(inputs_with_gradients)
        self._attributes = attributes
        self._gradient_attributes = gradient_attributes

    def run(self, inputs: Sequence[Any], outs: dict[str, Any] | None, name: str) -> list[tf.Tensor]:
        """The op's outputs."""
        outs = outs or {"output_types": [], "output_shapes": []}
        wanted = [
            tf.TensorSpec(shape, dtype)
            for shape, dtype in zip(outs["output_shapes"], outs["output_types"], strict=True)
        ]
        with tf.name_scope(name):
            tensors = [tf.convert_to_tensor(tensor) for tensor in inputs]
            return list(self._differentiable(wanted)(*tensors)) if wanted else self._outputs(tensors, wanted)

    def _differentiable(self, wanted: list[tf.TensorSpec]) -> Callable[..., Any]:
        @tf.custom_gradient
        def computed(*inputs: tf.Tensor) -> Any:
            outputs = self._outputs(inputs, wanted)
            return outputs, lambda *upstream: self._gradients(list(upstream), list(inputs), outputs)

        return computed

    def _outputs(self, inputs: Sequence[tf.Tensor], wanted: list[tf.TensorSpec]) -> list[tf.Tensor]:
        outputs = [tf.convert_to_tensor(value) for value in self._op.outputs(inputs, self._attributes) if wanted]
        fit = len(outputs) == len(wanted) and all(
            output.dtype == spec.dtype and spec.shape.is_compatible_with(output.shape)
            for output, spec in zip(outputs, wanted, strict=False)
        )
        if not fit:
            got = [(output.shape, output.dtype.name) for output in outputs]
            asked = [(spec.shape, spec.dtype.name) for spec in wanted]
            raise ValueError(f"{self._title} should give {asked}, as `outs` says. Its registered function gave: {got}.")
        return outputs

    def _gradients(self, upstream: list[Any], inputs: list[tf.Tensor], outputs: list[tf.Tensor]) -> list[Any]:
        chosen = list(range(len(inputs))) if self._with_gradients is None else self._with_gradients
        if self._op.grad_fn is None:
            found = self._by_tensorflow(upstream, [inputs[index] for index in chosen], chosen, inputs)
        else:
            separately = chosen if self._separate else None
            found = call_gradient(self._op.grad_fn, [upstream, inputs, outputs], self._gradient_attributes, separately)
        if len(found) != len(chosen):
            raise ValueError(
                f"{self._title} has gradients for {len(chosen)} inputs. Its registered grad_fn gave: {len(found)}."
            )
        by_input = dict(zip(chosen, found, strict=True))
        return [by_input.get(index) for index in range(len(inputs))]

    def _by_tensorflow(
        self, upstream: list[Any], sources: list[tf.Tensor], chosen: list[int], inputs: list[tf.Tensor]
    ) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch(sources)
            outputs = self._op.outputs(inputs, self._attributes)
        found: list[Any] = tape.gradient(outputs, sources, upstream)
        return found


def _no_gradient(*upstream: Any) -> Any:
    raise LookupError("codelet_expression_op has no gradient: it cannot be trained through. Use TensorFlow's own ops.")
