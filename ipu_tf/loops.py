"""`while_loop` and `repeat`: loops on the device.

`repeat(n, body, inputs, infeed)` and `while_loop(condition, body, inputs, infeed)` are this:

    inputs ──► body ──► body ──► ... ──► outputs
                ▲        ▲
             element  element                  one element of the infeed for each iteration
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._arguments.counts import checked_iterations
from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf._tracing.element_arguments import body_arguments
from ipu_tf.ipu_infeed_queue import IPUInfeedQueue


def while_loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    maximum_iterations: Any = None,
    use_while_v1: bool = True,
) -> Any:
    """Runs `body` on the device as long as `condition` holds.

    Args:
        condition: takes the loop's values and gives a boolean scalar. It is not given infeed elements.
        body: takes the loop's values, then the infeed's element, and gives the loop's next values (same number,
            shapes and dtypes), then any operations that have to run in each iteration.
        inputs: the loop's initial values: a list, one tensor, or None for none.
        infeed_queue: feeds one element to each iteration.
        maximum_iterations: an upper bound on the iterations, an int or an int32 scalar tensor, at least 0; None for
            none.
        use_while_v1: recorded, without effect: there is one kind of loop here.

    Returns:
        The final values: an operation if there are none, the value itself if there is one, else a list.

    Raises:
        TypeError: if `body` or `condition` cannot be called so, or `body` changes a dtype; for a number of iterations
            that is no whole number, or a tensor of more than 32 bits.
        ValueError: if `body` returns operations before tensors; for a negative number of iterations, or one beyond
            32 bits.
    """
    if not isinstance(infeed_queue, IPUInfeedQueue | None):
        raise TypeError(f"`infeed_queue` must be an IPUInfeedQueue or None. Received: {infeed_queue!r}.")
    record_ignored("loops.use_while_v1", None if use_while_v1 else False, "there is one kind of loop")
    if maximum_iterations is not None:
        maximum_iterations = checked_iterations("maximum_iterations", maximum_iterations)
    values = [tf.convert_to_tensor(value) for value in _as_list(inputs)]
    _check_arguments("body", body, values, infeed_queue)
    _check_arguments("condition", condition, values, infeed_queue)
    dtypes = [value.dtype for value in values]
    # A loop without values carries a dummy, for its operations to hang on.
    carried = values or [tf.constant(0)]

    def loop_condition(*state: tf.Tensor) -> Any:
        return condition(*state[: len(values)])

    results = tf.while_loop(
        loop_condition,
        _loop_body(body, dtypes, infeed_queue),
        carried,
        maximum_iterations=maximum_iterations,
        parallel_iterations=1,
    )
    results = _as_list(results)
    if not values:
        return results[0].op
    return results[0] if len(results) == 1 else results


def _loop_body(
    body: Callable[..., Any], dtypes: Sequence[tf.DType], infeed_queue: IPUInfeedQueue | None
) -> Callable[..., list[tf.Tensor]]:
    """Returns the body of a loop as `tf.while_loop` takes it: it dequeues an element, and runs operations first."""

    def loop_body(*state: tf.Tensor) -> list[tf.Tensor]:
        positional, named = body_arguments(infeed_queue._dequeue()) if infeed_queue is not None else ([], {})
        tensors, operations = _split(body(*state[: len(dtypes)], *positional, **named))
        if [tensor.dtype for tensor in tensors] != dtypes:
            raise TypeError(
                f"Mismatch between input types and output types for loop body: {dtypes} vs "
                f"{[tensor.dtype for tensor in tensors]}."
            )
        with tf.control_dependencies(operations):
            return [tf.identity(tensor) for tensor in tensors or state]

    return loop_body


def repeat(
    n: Any,
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    use_while_v1: bool = True,
) -> Any:
    """Runs `body` on the device `n` times; with `n` = 0 the values come back as they were.

    Args:
        n: the number of iterations, an int or an int32 scalar tensor, at least 0; a tensor whose value is only known
            at run time and is negative counts as 0. Compile time does not depend on it.
        body: as for `while_loop`.
        inputs: as for `while_loop`.
        infeed_queue: as for `while_loop`.
        use_while_v1: recorded, without effect.

    Returns:
        As `while_loop`.

    Raises:
        TypeError, ValueError: as `while_loop`; None is refused as well, for `repeat` has no other way to end.

    Example:
        >>> import tensorflow as tf
        >>> import ipu_tf as ipu
        >>> config = ipu.config.IPUConfig()
        >>> config.auto_select_ipus = 1
        >>> config.configure_ipu_system()
        >>> def double(x):
        ...     return x * 2
        >>> @tf.function
        ... def program(x):
        ...     return ipu.loops.repeat(3, double, x)
        >>> float(ipu.ipu_strategy.IPUStrategy().run(program, [tf.constant(1.0)]))
        8.0
    """
    iterations = checked_iterations("n", n)
    return while_loop(lambda *_: True, body, inputs, infeed_queue, iterations, use_while_v1)


def _as_list(values: Any) -> list[Any]:
    if values is None:
        return []
    return list(values) if isinstance(values, (list, tuple)) else [values]


def _split(outputs: Any) -> tuple[list[tf.Tensor], list[tf.Operation]]:
    """Splits the return value of a body into tensors and operations."""
    outputs = [o if isinstance(o, tf.Operation) else tf.convert_to_tensor(o) for o in _as_list(outputs)]
    operations = [output for output in outputs if isinstance(output, tf.Operation)]
    tensors: list[tf.Tensor] = outputs[: len(outputs) - len(operations)]
    if any(isinstance(output, tf.Operation) for output in tensors):
        raise ValueError("IPU loop body must return zero or more Tensor values followed by zero or more Operations.")
    return tensors, operations


def _check_arguments(
    role: str, function: Callable[..., Any], values: Sequence[tf.Tensor], infeed_queue: IPUInfeedQueue | None
) -> None:
    if not callable(function):
        raise TypeError(f"`{role}` must be a function. Received: {function!r}.")
    extra = infeed_queue.number_of_tuple_elements if infeed_queue is not None and role == "body" else 0
    wanted = _argument_mismatch(function, len(values) + extra)
    if wanted is None:
        return
    given = f"You specified {len(values)} inputs: {list(values)}"
    needs = "the computation needs" if extra else f"the loop {role} needs"
    text = f"Supplied loop {role} function cannot be called with the specified inputs. {given}"
    text += (
        f" and {extra} additional inputs from infeed, but {needs} {wanted}." if extra else f", but {needs} {wanted}."
    )
    if role == "condition" and infeed_queue is not None:
        text += " Note that infeed is not passed to the loop condition."
    raise TypeError(text)


def _argument_mismatch(function: Callable[..., Any], count: int) -> str | None:
    """Returns how many arguments a function needs, as text, if it cannot be called with `count`; else None."""
    kinds = inspect.Parameter
    parameters = inspect.signature(function).parameters.values()
    plain = [
        p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    ]
    needed = sum(parameter.default is kinds.empty for parameter in plain)
    if count < needed:
        return f"{'exactly' if needed == len(plain) else 'at least'} {_arguments(needed)}"
    if count > len(plain) and not any(p.kind is kinds.VAR_POSITIONAL for p in parameters):
        return f"{'exactly' if needed == len(plain) else 'at most'} {_arguments(len(plain))}"
    return None


def _arguments(count: int) -> str:
    return "0 arguments" if count == 0 else "1 argument" if count == 1 else f"{count} arguments"
