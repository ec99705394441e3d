"""`outlined_function`: a function whose code an IPU keeps once, however often it is called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

import tensorflow as tf

from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf._tracing.unconverted import do_not_convert

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


@overload
def outlined_function(
    func: Callable[_Args, _Result],
    unique_sharding: bool = False,
    keep_input_layouts: bool | None = None,
    name: str | None = None,
) -> Callable[_Args, _Result]: ...


@overload
def outlined_function(
    func: None = None,
    unique_sharding: bool = False,
    keep_input_layouts: bool | None = None,
    name: str | None = None,
) -> Callable[[Callable[_Args, _Result]], Callable[_Args, _Result]]: ...


def outlined_function(
    func: Callable[..., Any] | None = None,
    unique_sharding: bool = False,
    keep_input_layouts: bool | None = None,
    name: str | None = None,
) -> Callable[..., Any]:
    """Makes a function whose code an IPU would keep once, however often it is called.

    Here its ops are part of the program at each call. Values and gradients are those of the function itself; tensors
    and variables around it may be used inside. Call it anywhere in a program, also within another such function.

    Args:
        func: takes tensors, or what converts to them, by position, and gives tensors in any structure; None in it
            stays None. Without it, a decorator is returned.
        unique_sharding: without effect in emulation.
        keep_input_layouts: without effect in emulation.
        name: scope of the ops' names; `function` by default.

    Returns:
        The function, or a decorator for it.

    Example:
        >>> import tensorflow as tf
        >>> from ipu_tf.ops.functional_ops import outlined_function
        >>> @outlined_function
        ... def halved(x):
        ...     return x / 2
        >>> float(halved(halved(8.0)))
        2.0
    """
    if func is None:
        return functools.partial(
            outlined_function, unique_sharding=unique_sharding, keep_input_layouts=keep_input_layouts, name=name
        )
    record_ignored("outlined_function.unique_sharding", unique_sharding or None)
    record_ignored("outlined_function.keep_input_layouts", keep_input_layouts)

    @functools.wraps(func)
    @do_not_convert
    def outlined(*args: Any) -> Any:
        with tf.name_scope(name or "function"):
            results = func(*[tf.convert_to_tensor(argument) for argument in args])
            return tf.nest.map_structure(lambda leaf: None if leaf is None else tf.identity(leaf), results)

    return outlined


def _convert_to_list(values: Any) -> list[Any]:
    """Converts the outputs of a stage or function to a list; Graphcore's own tests call it."""
    if values is None:
        return []
    return list(values) if isinstance(values, (list, tuple)) else [values]
