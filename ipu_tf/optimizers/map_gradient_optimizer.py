"""`MapGradientOptimizer`: maps gradients before they are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from ipu_tf.optimizers.ipu_optimizer import IpuOptimizer

Mapping = Callable[[Any, tf.Tensor], Any]


class MapGradientOptimizer(IpuOptimizer):
    """Changes each gradient after it is computed.

    Args:
        wrapped_optimizer: a `tf.compat.v1.train.Optimizer`.
        gradient_mapping_function: from a gradient and its variable's value to the gradient to use. It is not called
            where there is no gradient.
        name: of the optimizer.

    Example:
        >>> import tensorflow as tf
        >>> from ipu_tf.optimizers.map_gradient_optimizer import MapGradientOptimizer
        >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ...     x = tf.compat.v1.Variable(2.0, use_resource=True)
        ...     inner = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        ...     optimizer = MapGradientOptimizer(inner, lambda gradient, value: gradient + 0.5 * value)
        ...     [(gradient, _)] = optimizer.compute_gradients(x * x, [x])
        ...     session.run(tf.compat.v1.global_variables_initializer())
        ...     float(session.run(gradient))
        5.0
    """

    def __init__(
        self,
        wrapped_optimizer: tf.compat.v1.train.Optimizer,
        gradient_mapping_function: Mapping,
        name: str = "MapGradientOptimizer",
    ) -> None:
        super().__init__(wrapped_optimizer, name)
        self._mapping = gradient_mapping_function

    def compute_gradients(self, loss: tf.Tensor, var_list: Any = None, **kwargs: Any) -> list[Any]:
        """The gradients that the wrapped optimizer computes, changed; arguments as `IpuOptimizer.compute_gradients`."""
        return _mapped(self._mapping, super().compute_gradients(loss, var_list, **kwargs))


class MapGradientOptimizerInvertedChaining(IpuOptimizer):
    """Changes each gradient before it is applied, after optimizers around this one have seen it.

    Args:
        wrapped_optimizer: a `tf.compat.v1.train.Optimizer`.
        gradient_mapping_function: as for `MapGradientOptimizer`.
        name: of the optimizer.
    """

    def __init__(
        self,
        wrapped_optimizer: tf.compat.v1.train.Optimizer,
        gradient_mapping_function: Mapping,
        name: str = "MapGradientOptimizerInvertedChaining",
    ) -> None:
        super().__init__(wrapped_optimizer, name)
        self._mapping = gradient_mapping_function

    def apply_gradients(
        self, grads_and_vars: Any, global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Applies mapped gradients with the wrapped optimizer; arguments as `IpuOptimizer.apply_gradients`."""
        return super().apply_gradients(_mapped(self._mapping, grads_and_vars), global_step, name)


_MapGradientOptimizerInvertedChaining = MapGradientOptimizerInvertedChaining


def _mapped(mapping: Mapping, grads_and_vars: Iterable[Any]) -> list[Any]:
    return [(None if grad is None else mapping(grad, var.value()), var) for grad, var in grads_and_vars]
