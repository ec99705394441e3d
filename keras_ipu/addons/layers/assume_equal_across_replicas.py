"""`AssumeEqualAcrossReplicas`: identity layer that marks values as equal on all replicas."""

from __future__ import annotations

from typing import Any

import keras


@keras.saving.register_keras_serializable(package="keras_ipu")
class AssumeEqualAcrossReplicas(keras.layers.Layer):
    """Identity layer that marks its input as equal on all replicas, so that control flow may depend on it.

    Args:
        inplace: whether the IPU may mark the tensor without copying it; no effect on values.
        kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, inplace: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inplace = inplace

    def call(self, inputs: Any) -> Any:
        """Returns the marked inputs; with Keras on JAX, where nothing depends on the mark, the inputs unchanged."""
        if keras.backend.backend() != "tensorflow":
            return inputs
        from ipu_tf.ops import cross_replica_ops

        return cross_replica_ops.assume_equal_across_replicas(inputs, self.inplace)

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        return {**super().get_config(), "inplace": self.inplace}
