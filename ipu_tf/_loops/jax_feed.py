"""Feeds batches to step loops written in JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from ipu_tf._loops.batch_feed import Arrays, BatchFeed
from ipu_tf.device.program.program import Types


class JaxFeed(BatchFeed):
    """Elements for JAX step loops: trees of arrays. Its `spec` is a tree of `jax.ShapeDtypeStruct`s.

    Args:
        iterator: as for `BatchFeed`.
        on_cast: as for `BatchFeed`.
        sizes_vary: as for `BatchFeed`.
        size: samples of a full element, where the first may have fewer; None for those of the first.
    """

    def __init__(
        self,
        iterator: Iterator[Any],
        on_cast: Callable[[str, str], None] = lambda was, becomes: None,
        sizes_vary: bool = False,
        size: int | None = None,
    ) -> None:
        super().__init__(iterator, on_cast, sizes_vary)
        self._size = size

    def spec(self) -> Any:
        """As for `BatchFeed`; a first element of fewer samples than a full one is left for `take_remainder`."""
        read = self._spec is None
        spec = super().spec()
        if read and self._size is not None:
            arrays = self._arrays_of(self._first[0])
            if len(arrays[0]) < self._size:
                self._remainder = [arrays]
                self._first.clear()
        return spec

    def _spec_of(self, element: Any) -> Any:
        return jax.tree.map(self._leaf_spec, element)

    def _types_of(self, spec: Any) -> Types:
        return tuple(jax.tree.leaves(spec))

    def _arrays_of(self, element: Any) -> Arrays:
        return tuple(np.asarray(leaf) for leaf in jax.tree.leaves(element))

    def _packed(self, arrays: Arrays) -> Any:
        return jax.tree.unflatten(jax.tree.structure(self._spec), arrays)

    def _leaf_spec(self, leaf: Any) -> jax.ShapeDtypeStruct:
        array = np.asarray(leaf)
        with jax.enable_x64(False):
            dtype = np.dtype(jax.dtypes.canonicalize_dtype(array.dtype))
        if dtype != array.dtype:
            self._on_cast(array.dtype.name, dtype.name)
        shape = array.shape if self._size is None else (self._size, *array.shape[1:])
        return jax.ShapeDtypeStruct(shape, dtype)
