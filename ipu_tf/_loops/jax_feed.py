"""Feeds batches to step loops written in JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ipu_tf._loops.batch_feed import Arrays, BatchFeed
from ipu_tf.device.program.program import Types


class JaxFeed(BatchFeed):
    """Elements for JAX step loops: trees of arrays. Its `spec` is a tree of `jax.ShapeDtypeStruct`s."""

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
        return jax.ShapeDtypeStruct(array.shape, dtype)
