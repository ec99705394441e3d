"""Converts plain data to JSON and arrays, and back, without losing a bit or a type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np


class NotPlainError(TypeError):
    """Raised for an object that is no plain data."""


def encoded(value: Any, arrays: list[np.ndarray]) -> Any:
    """Returns a value for `json`, and appends the arrays in it to `arrays`.

    Args:
        value: None, a bool, number, string, NumPy array or scalar; or a list, tuple or dictionary of such.
        arrays: those of the file so far.

    Raises:
        NotPlainError: for anything else, subclasses included.

    >>> arrays = []
    >>> decoded(encoded({"loss": [0.1, float("inf")], 3: (np.float32(1), None)}, arrays), arrays)
    {'loss': [0.1, inf], 3: (np.float32(1.0), None)}
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if (isinstance(value, np.generic) or kind is np.ndarray) and _is_number(value.dtype):
        arrays.append(value if kind is np.ndarray else np.array(value))
        return {"scalar" if isinstance(value, np.generic) else "array": len(arrays) - 1}
    if kind is list:
        return [encoded(each, arrays) for each in value]
    if kind is tuple:
        return {"tuple": [encoded(each, arrays) for each in value]}
    if kind is dict:
        return {"dict": [[encoded(key, arrays), encoded(each, arrays)] for key, each in value.items()]}
    raise NotPlainError(f"{kind.__module__}.{kind.__qualname__}")


def _is_number(dtype: np.dtype) -> bool:
    return dtype.kind in "biufc" or hasattr(ml_dtypes, dtype.name)


def decoded(value: Any, arrays: list[np.ndarray]) -> Any:
    """Returns the value that `encoded` was given.

    Args:
        value: what it returned.
        arrays: the arrays of the file.
    """
    if isinstance(value, list):
        return [decoded(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tuple":
        return tuple(decoded(each, arrays) for each in content)
    if kind == "dict":
        return {decoded(key, arrays): decoded(each, arrays) for key, each in content}
    array = arrays[content]
    return array[()] if kind == "scalar" else array.copy()
