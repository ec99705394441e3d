"""Names of layers with a slash, which Keras 2 took: a part of the path of the layer's variables."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

from ipu_tf._patches.installation import replace_in


def install_layer_names() -> None:
    """Patches Keras to take names with slashes for layers, models and name scopes. Calling it again changes nothing."""
    replace_in(keras.Operation, "__init__", _operation)
    # The class that checks the name lies below that of Keras's backend.
    replace_in(keras.name_scope.__mro__[-2], "__init__", _scope)


def _operation(stock: Callable[..., None]) -> Callable[..., None]:
    # Keras reads the names of the arguments, to know what to write into a saved model.
    def init(self: Any, name: str | None = None) -> None:
        stock(self, name=_checked(name))
        if name is not None:
            self.name = name

    return init


def _scope(stock: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(stock)
    def init(self: Any, name: str, *args: Any, **kwargs: Any) -> None:
        stock(self, _checked(name), *args, **kwargs)
        self.name = name

    return init


def _checked(name: Any) -> Any:
    return name.replace("/", "_") if isinstance(name, str) else name
