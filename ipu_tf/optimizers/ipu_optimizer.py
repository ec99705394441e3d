"""`IpuOptimizer`: base class of optimizers that wrap another optimizer."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class IpuOptimizer(tf.compat.v1.train.Optimizer):
    """Base class of optimizers that wrap another one, those of users included: calls the wrapped optimizer.

    Args:
        opt: a `tf.compat.v1.train.Optimizer`.
        name: of the wrapper; by default its class's.

    Raises:
        ValueError: for a Keras optimizer.
    """

    def __init__(self, opt: tf.compat.v1.train.Optimizer, name: str | None = None) -> None:
        if not isinstance(opt, tf.compat.v1.train.Optimizer):
            raise ValueError(
                "Should use optimizer in keras.ipu.optimizers (in the Keras package) to wrap V2 optimizers. Wanted: a "
                f"tf.compat.v1.train.Optimizer. Received: {type(opt).__name__}."
            )
        super().__init__(False, name or type(self).__name__)
        self._opt = opt

    def get_name(self) -> str:
        """The name of the wrapped optimizer."""
        return str(self._opt.get_name())

    def get_slot(self, *args: Any, **kwargs: Any) -> tf.Variable | None:
        """A slot of the wrapped optimizer: `get_slot(variable, name)`; None if there is none."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """The names of the wrapped optimizer's slots."""
        return list(self._opt.get_slot_names(*args, **kwargs))

    def variables(self) -> list[tf.Variable]:
        """The variables of the wrapped optimizer."""
        return list(self._opt.variables())

    def compute_gradients(self, loss: tf.Tensor, var_list: Any = None, **kwargs: Any) -> list[Any]:
        """The gradients that the wrapped optimizer computes.

        Args:
            loss: what to minimise.
            var_list: variables; by default the graph's trainable ones.
            **kwargs: for the wrapped optimizer.

        Returns:
            `(gradient, variable)` for each variable; a gradient may be None.
        """
        return list(self._opt.compute_gradients(loss, var_list=var_list, **kwargs))

    def apply_gradients(
        self, grads_and_vars: Any, global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Applies gradients with the wrapped optimizer.

        Args:
            grads_and_vars: `(gradient, variable)` pairs.
            global_step: counts one more update, if given.
            name: for the op.

        Returns:
            The op that applies them.

        Raises:
            ValueError: if there is no gradient at all.
        """
        return self._opt.apply_gradients(grads_and_vars, global_step, name)
