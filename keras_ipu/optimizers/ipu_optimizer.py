"""`IpuOptimizer`: base class of optimizers that wrap another one.

A step goes through a chain of wrappers twice, as it did in Keras 2:

    transform_gradients   innermost first: what was done where gradients are computed
    update                outermost first: what is done where they are applied, down to the stock optimizer's `apply`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras

from keras_ipu.optimizers.inner_optimizer_calls import (
    apply_inner_gradients,
    captured_gradients_scope,
    current_captured_gradients,
    do_not_convert,
    takes_captured_grads,
)

CapturedGrads = Mapping[str, Any] | None
"""Captured gradients by tag: each a tensor or a list of tensors."""


def _inner_property(name: str) -> Any:
    """Property that forwards to the wrapped optimizer."""

    def read(self: Any) -> Any:
        return getattr(self.inner_optimizer, name)

    def write(self: Any, value: Any) -> None:
        # Keras's constructor sets its defaults before there is an inner optimizer; those are not for it.
        if "inner_optimizer" in vars(self):
            setattr(self.inner_optimizer, name, value)

    return property(read, write, doc=f"`{name}` of the wrapped optimizer.")


@keras.saving.register_keras_serializable(package="keras_ipu")
class IpuOptimizer(keras.optimizers.Optimizer):
    """Base class of optimizers that wrap another one; forwards everything to it.

    Args:
        opt: the `keras.optimizers.Optimizer` to wrap, by name or as an object.
        name: of this optimizer.

    Attributes:
        inner_optimizer: the wrapped optimizer.

    Raises:
        TypeError: if `opt` is not a Keras optimizer.
    """

    clipnorm = _inner_property("clipnorm")
    global_clipnorm = _inner_property("global_clipnorm")
    clipvalue = _inner_property("clipvalue")
    weight_decay = _inner_property("weight_decay")
    loss_scale_factor = _inner_property("loss_scale_factor")

    def __init__(self, opt: Any, name: str | None = None) -> None:
        super().__init__(learning_rate=0.0, name=name)
        self.inner_optimizer = _keras_optimizer(opt, type(self).__name__)

    def build(self, variables: Sequence[Any]) -> None:
        """Creates this optimizer's variables and those of the wrapped one.

        Args:
            variables: the model's trainable variables.
        """
        if not self.inner_optimizer.built:
            self.inner_optimizer.build(variables)
        super().build(variables)

    def exclude_from_weight_decay(self, var_list: Any = None, var_names: Any = None) -> None:
        """Excludes variables from the decay of the wrapped optimizer, which applies it; arguments as Keras's."""
        self.inner_optimizer.exclude_from_weight_decay(var_list, var_names)

    @do_not_convert
    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], captured_grads: CapturedGrads = None, name: str | None = None
    ) -> Any:
        """Updates variables by their gradients.

        Args:
            grads_and_vars: (gradient, variable) pairs.
            captured_grads: gradients that layers captured, by tag, for optimizers that look at them.
            name: accepted for compatibility, ignored.

        Returns:
            The number of updates so far.
        """
        grads, variables = zip(*grads_and_vars, strict=True)
        with captured_gradients_scope(captured_grads):
            self.apply(list(grads), list(variables))
        return self.iterations

    @do_not_convert
    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """Updates variables by their gradients.

        Args:
            grads: a gradient for each variable, or None where there is none.
            trainable_variables: the variables; default: those that the optimizer was built with.

        Raises:
            ValueError: if no variables are given and the optimizer is not built, or a variable is unknown.
        """
        if trainable_variables is None:
            if not self.built:
                raise ValueError(
                    f"{self.name} does not know its variables yet. Pass `trainable_variables`, or call "
                    "`optimizer.build(trainable_variables)` first."
                )
            trainable_variables = self._trainable_variables
        variables = list(trainable_variables)
        if not self.built:
            self.build(variables)
        self._check_variables_are_known(variables)
        self.update(self.transform_gradients(list(grads), variables), variables, current_captured_gradients())

    def transform_gradients(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        """Transforms gradients by all wrappers, the innermost first."""
        inner = self.inner_optimizer
        return inner.transform_gradients(grads, variables) if isinstance(inner, IpuOptimizer) else grads

    def update(self, grads: list[Any], variables: list[Any], captured_grads: CapturedGrads = None) -> None:
        """Applies gradients returned by `transform_gradients`: passes them to the wrapped optimizer."""
        inner = self.inner_optimizer
        if isinstance(inner, IpuOptimizer):
            inner.update(grads, variables, captured_grads)
        else:
            apply_inner_gradients(inner, grads, variables, captured_grads)

    @property
    def supports_captured_grads(self) -> bool:
        """Returns whether `apply_gradients` makes use of captured gradients: as the wrapped optimizer does."""
        return takes_captured_grads(self.inner_optimizer)

    def scale_loss(self, loss: Any) -> Any:
        """Scales the loss as the wrapped optimizer does, before gradients are computed."""
        return self.inner_optimizer.scale_loss(loss)

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """Assigns variables their final values at the end of training, as the wrapped optimizer does."""
        self.inner_optimizer.finalize_variable_values(var_list)

    @property
    def variables(self) -> list[Any]:
        """This optimizer's variables and those of the wrapped one."""
        return self._variables + self.inner_optimizer.variables

    @property
    def learning_rate(self) -> Any:
        """The learning rate of the wrapped optimizer."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        self.inner_optimizer.learning_rate = learning_rate

    lr = learning_rate

    @property
    def iterations(self) -> Any:
        """Number of updates that the wrapped optimizer made."""
        return self.inner_optimizer.iterations

    @property
    def weights(self) -> list[Any]:
        """The variables once the optimizer is built; none before."""
        return self.variables if self.built else []

    def get_weights(self) -> list[Any]:
        """The values of `weights`, as numpy arrays."""
        return [variable.numpy() for variable in self.weights]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Assigns values to `weights`.

        Raises:
            ValueError: if there are more or fewer values than weights.
        """
        if len(weights) != len(self.weights):
            raise ValueError(
                f"{self.name} has {len(self.weights)} weights. Received: {len(weights)} values. An optimizer has its "
                "weights once it is built: `optimizer.build(model.trainable_variables)`."
            )
        for variable, value in zip(self.weights, weights, strict=True):
            variable.assign(value)

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        return {"name": self.name, "inner_optimizer": keras.saving.serialize_keras_object(self.inner_optimizer)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None) -> Any:
        """Makes an optimizer from the result of `get_config`, without the values of its variables."""
        arguments = {
            name: keras.saving.deserialize_keras_object(value, custom_objects) if isinstance(value, dict) else value
            for name, value in config.items()
        }
        return cls(arguments.pop("inner_optimizer"), **arguments)


def _keras_optimizer(opt: Any, wrapper: str) -> Any:
    if isinstance(opt, str):
        opt = keras.optimizers.get(opt)
    if not isinstance(opt, keras.optimizers.Optimizer):
        raise TypeError(
            f"{wrapper} wraps a keras.optimizers.Optimizer. Received: {opt!r} of type {type(opt).__name__}. For "
            "tf.compat.v1.train optimizers use the wrappers of ipu.optimizers."
        )
    return opt
