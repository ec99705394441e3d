"""Elements for loops of steps written in JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from ipu_tf.device import synthetic
from ipu_tf.device.errors import InfeedExhausted, InfeedStarved
from ipu_tf.device.infeed import Infeed
from ipu_tf.device.patience import Reading, waiting, watched
from ipu_tf.lowering.host_errors import as_promised


class JaxFeed:
    """Elements for JAX step loops, out of a Python iterator; looks at the first to learn its shapes.

    Args:
        iterator: gives trees of arrays; 64-bit dtypes are fed as 32-bit ones.
        on_cast: told of each 64-bit dtype of the first element.

    Attributes:
        check: called before an element is taken; may raise.
    """

    def __init__(
        self, iterator: Iterator[Any], on_cast: Callable[[str, str], None] = lambda was, becomes: None
    ) -> None:
        self._iterator = iterator
        self._on_cast = on_cast
        self._first: list[Any] = []
        self._spec: Any = None
        self._infeed: Infeed | None = None
        self.check: Callable[[], None] = lambda: None

    def spec(self) -> Any:
        """Shape and dtype of each array of the first element, which all others have to have.

        Raises:
            StopIteration: if there is no element left.
            tf.errors.DeadlineExceededError: if none comes for a long time.
        """
        if self._spec is None:
            try:
                self._first.append(Reading([], self._next).result())
            except InfeedStarved as error:
                raise as_promised(error) from None
            self._spec = jax.tree.map(self._leaf_spec, self._first[0])
        return self._spec

    def infeed_as(self, name: str) -> Infeed:
        """The elements as an infeed of this name."""
        if self._infeed is None:
            self._infeed = Infeed(name, tuple(jax.tree.leaves(self.spec())), watched(self._name, self._arrays))
        self._infeed.name = name
        return self._infeed

    def taken_steps(self, steps: int, replicas: int) -> int:
        """Takes the elements of up to `steps` steps, for nobody; gives for how many there were elements."""
        assert self._infeed is not None
        for taken in range(steps * replicas):
            try:
                self._infeed.next()
            except InfeedExhausted:
                return taken // replicas
        return steps

    def _name(self) -> str:
        return "data of a step loop" if self._infeed is None else self._infeed.name

    def _next(self) -> Any:
        with waiting(self._name(), 0):
            return next(self._iterator)

    def _arrays(self) -> Iterator[tuple[np.ndarray, ...]]:
        while True:
            self.check()
            try:
                element = self._first.pop() if self._first else next(self._iterator)
            except StopIteration:
                return
            arrays = tuple(np.asarray(leaf) for leaf in jax.tree.leaves(element))
            yield synthetic.infeed_element(arrays) if synthetic.current().feeds else arrays

    def _leaf_spec(self, leaf: Any) -> jax.ShapeDtypeStruct:
        array = np.asarray(leaf)
        with jax.enable_x64(False):
            dtype = np.dtype(jax.dtypes.canonicalize_dtype(array.dtype))
        if dtype != array.dtype:
            self._on_cast(array.dtype.name, dtype.name)
        return jax.ShapeDtypeStruct(array.shape, dtype)
