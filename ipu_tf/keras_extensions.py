"""Registers extension classes for Keras models of a strategy.

A Keras method marked with `keras_ipu.legacy.engine.extension_delegate` asks the strategy in whose scope it is called
for a delegate. IPU models do not need this: it is here for programs that extend layers of their own.
"""

from __future__ import annotations


class KerasExtensions:
    """Registry of Keras extension classes, as a part of a strategy.

    Args:
        enable_dataset_iterators: whether `iter(dataset)` within the scope makes an iterator that feeds the device.
        enable_keras_extensions: whether Keras models and extended classes are the strategy's within its scope.
    """

    def __init__(self, enable_dataset_iterators: bool = True, enable_keras_extensions: bool = True) -> None:
        self._enable_dataset_iterators = enable_dataset_iterators
        self._enable_keras_extensions = enable_keras_extensions
        self._keras_extensions: dict[tuple[type, type], type] = {}

    @property
    def keras_extensions_enabled(self) -> bool:
        """Returns whether Keras models made in the scope run on the device."""
        return self._enable_keras_extensions

    def keras_extension_of(self, extended: type) -> type | None:
        """The extension registered for a class or the nearest of its bases, or None."""
        if not self._enable_keras_extensions:
            return None
        for kind in extended.__mro__:
            for (registered, _), extension in self._keras_extensions.items():
                if registered is kind:
                    return extension
        return None

    def _register_keras_extension(self, extended: type, base: type, extension: type) -> None:
        """Registers an extension for a class, in place of one with the same base.

        Raises:
            ValueError: unless the extension derives from the base.
        """
        if not issubclass(extension, base):
            raise ValueError(f"Expected an extension that is a {base.__name__}. Received: {extension}.")
        self._keras_extensions[(extended, base)] = extension

    def _delete_keras_extension(self, extended: type, base: type) -> None:
        """Removes a registration, if there is one."""
        self._keras_extensions.pop((extended, base), None)
