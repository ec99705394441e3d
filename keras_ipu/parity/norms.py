"""Records the gradient norm of each weight update, for `check_parity`."""

from __future__ import annotations

from typing import Any

import keras


def recording_norms(optimizer: Any, updates: int) -> Any:
    """Returns a copy of an optimizer that records the norm of each update's gradients in its variable `recorded_norms`.

    Args:
        optimizer: the optimizer, of which the configuration is copied.
        updates: how many updates there will be, counted from the optimizer's `iterations`.
    """
    kind, first = type(optimizer), int(optimizer.iterations)

    def added(norms: Any, gradients: Any, iterations: Any) -> Any:
        ops = keras.ops
        squares = [ops.sum(ops.square(ops.cast(each, "float32"))) for each in gradients if each is not None]
        present = ops.equal(ops.arange(updates), ops.cast(iterations, "int32") - first)
        return ops.where(present, ops.sqrt(sum(squares)), ops.convert_to_tensor(norms))

    class NormRecorder(kind):  # type: ignore[misc, valid-type]
        """Optimizer that records gradient norms."""

        def build(self, variables: Any) -> None:
            """Builds the optimizer and the variable of its norms."""
            super().build(variables)
            self.recorded_norms = self.add_variable((updates,), name="recorded_norms")

        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            """Records the norm and applies gradients; Keras on TensorFlow calls it."""
            grads = list(grads)
            if keras.backend.backend() == "tensorflow":
                self.recorded_norms.assign(added(self.recorded_norms, grads, self.iterations))
            return super().apply(grads, trainable_variables)

        def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
            """Records the norm and applies gradients; Keras on JAX calls it."""
            with keras.StatelessScope(list(zip(self.variables, optimizer_variables, strict=True))):
                norms = added(self.recorded_norms, grads, self.iterations)
            weights, slots = super().stateless_apply(optimizer_variables, grads, trainable_variables)
            pairs = zip(self.variables, slots, strict=True)
            return weights, [norms if variable is self.recorded_norms else slot for variable, slot in pairs]

    return NormRecorder.from_config(optimizer.get_config())


def slots_of(optimizer: Any) -> list[Any]:
    """Returns the variables of an optimizer without the recorded norms."""
    noted = getattr(optimizer, "recorded_norms", None)
    return [variable for variable in optimizer.variables if variable is not noted]
