"""`LayerNormalization` layer of the addons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_ipu.addons.layers.normalization import GroupNormalization, normalised


@keras.saving.register_keras_serializable(package="keras_ipu")
class LayerNormalization(GroupNormalization):
    """Normalises each sample to mean 0 and variance 1 along some axes (arXiv 1607.06450).

    Args:
        axis: the axes that are normalised together.
        epsilon: added to the variance.
        center: whether `beta` is added.
        scale: whether the result is multiplied by `gamma`.
        beta_initializer: of `beta`.
        gamma_initializer: of `gamma`.
        beta_regularizer: not supported.
        gamma_regularizer: not supported.
        beta_constraint: not supported.
        gamma_constraint: not supported.
        trainable: whether `beta` and `gamma` are trained.
        kwargs: of `keras.layers.Layer`.

    Raises:
        NotImplementedError: for an argument that is not supported.
        ValueError: if `axis` is neither a whole number nor a list of them.
    """

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        trainable: bool = True,
        **kwargs: Any,
    ) -> None:
        if not isinstance(axis, int | list | tuple):
            raise ValueError(
                f"Expected an int or a list/tuple of ints for the argument 'axis', but received instead: {axis}"
            )
        super().__init__(
            1, -1, center, scale, epsilon, beta_initializer, gamma_initializer, trainable=trainable, **kwargs
        )
        self.axis = axis if isinstance(axis, int) else list(axis)
        self._check_unsupported(beta_regularizer, "beta_regularizer")
        self._check_unsupported(gamma_regularizer, "gamma_regularizer")
        self._check_unsupported(beta_constraint, "beta_constraint")
        self._check_unsupported(gamma_constraint, "gamma_constraint")

    def build(self, input_shape: Any) -> None:
        """Creates the weights `gamma` and `beta`, of the shape of the normalised axes.

        Raises:
            ValueError: if an axis is out of range or given twice, or its length unknown.
        """
        rank = len(input_shape)
        given = [self.axis] if isinstance(self.axis, int) else list(self.axis)
        for axis in given:
            if not -rank <= axis < rank:
                raise ValueError(f"Invalid axis: {axis}")
        axes = tuple(sorted(axis % rank for axis in given))
        if len(set(axes)) != len(axes):
            raise ValueError(f"Duplicate axis: {axes}")
        # As Keras lays its parameters out: axes from the end come first.
        shape = tuple(input_shape[axis] for axis in sorted(given))
        if None in shape:
            raise ValueError(
                f"Input shape {input_shape} has unknown dimensions - all dimensions need to be fully specified."
            )
        self._axes, self._lengths = axes, tuple(input_shape[axis] for axis in axes)
        self._add_parameters(shape)

    def _laid_out(self, parameter: Any) -> Any:
        return ops.reshape(super()._laid_out(parameter), self._lengths)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """The inputs, normalised.

        Args:
            inputs: a tensor with the axes of this layer.
            training: no effect.
        """
        rank = len(inputs.shape)
        order = [*(axis for axis in range(rank) if axis not in self._axes), *self._axes]
        last = tuple(range(rank - len(self._axes), rank))
        x = normalised(ops.transpose(ops.cast(inputs, "float32"), order), last, self.epsilon)
        back = [order.index(axis) for axis in range(rank)]
        return ops.cast(ops.transpose(self._scaled(x), back), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        return {**self._shared_config(), "axis": self.axis if isinstance(self.axis, int) else list(self.axis)}
