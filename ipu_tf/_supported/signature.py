"""Compares the parameters of a function with those of Graphcore's."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any


def differences(wanted: str, function: Any) -> tuple[str, ...]:
    """Compares a function's parameters with the expected ones; empty if every call of the latter is valid.

    Args:
        wanted: the parameters as Python writes them, without parentheses.
        function: a function, a method of a class, or a class.

    Example:
        >>> differences("x, name=None", lambda x: x)
        ('lacks `name`',)
        >>> differences("x, y=2", lambda x, y=3: x)
        ('`y` defaults to 3, not to 2',)
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ()
    return tuple(_differences(_parsed(wanted), list(signature.parameters.values())))


def _differences(wanted: ast.arguments, ours: list[inspect.Parameter]) -> Iterator[str]:
    kinds = {parameter.kind for parameter in ours}
    names = [argument.arg for argument in wanted.args]
    defaults = dict(zip(reversed(names), reversed(wanted.defaults), strict=False))
    known = {parameter.name: parameter for parameter in ours}
    positional = [p.name for p in ours if p.kind is not p.KEYWORD_ONLY and p.kind is not p.VAR_KEYWORD]
    for place, name in enumerate(names):
        if name not in known:
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                yield f"lacks `{name}`"
        elif inspect.Parameter.VAR_POSITIONAL not in kinds and positional[place : place + 1] != [name]:
            yield f"`{name}` has another place"
        elif name in defaults:
            yield from _default_difference(name, defaults[name], known[name].default)
    needed = [p.name for p in ours if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    yield from (f"wants `{name}`" for name in needed if name not in names)


def _default_difference(name: str, wanted: ast.expr, ours: Any) -> Iterator[str]:
    if ours is inspect.Parameter.empty:
        yield f"wants `{name}`"
    try:
        value = ast.literal_eval(wanted)
    except ValueError:
        return  # an expression such as `Mode.ALL`: only its name is known
    if ours is not inspect.Parameter.empty and _plain(ours) != _plain(value):
        yield f"`{name}` defaults to {ours!r}, not to {value!r}"


def _plain(value: Any) -> Any:
    """Normalises a default value for comparison: a list as a tuple."""
    return tuple(value) if isinstance(value, list) else value


def _parsed(parameters: str) -> ast.arguments:
    function = ast.parse(f"def f({parameters}): ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    return function.args
