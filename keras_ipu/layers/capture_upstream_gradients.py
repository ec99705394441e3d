"""Layers that capture gradients of other layers for the optimizer.

In `fit`, captured gradients reach `optimizer.apply_gradients` as `captured_grads`, a dict from tag to gradients.
In a loop of your own they are what a `GradientCaptureTape` or `GradientCaptureContext` captured; with Keras on JAX a
`GradientCaptureContext` around `jax.grad`, in the function that reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from keras_ipu.stock import graphs as keras_graphs


def _capture(tensors: Any, tag: str) -> Any:
    """Identity of tensors whose gradients are captured under `tag`."""
    if keras.backend.backend() == "jax":
        from keras_ipu.training.jax.captured_gradients import capture

        return capture(tensors, tag)
    if keras.backend.backend() != "tensorflow":
        raise NotImplementedError(
            "Gradients are captured with Keras's TensorFlow or JAX backend. Received: the "
            f"{keras.backend.backend()} backend. Set KERAS_BACKEND=tensorflow or KERAS_BACKEND=jax."
        )
    from ipu_tf.ops import grad_util_ops

    return grad_util_ops.capture_upstream_gradients(tensors, tag=tag)


def _checked(layer: Any) -> Any:
    if not isinstance(layer, keras.layers.Layer):
        raise ValueError("Expected an instance of a keras.engine.base_layer.Layer")
    return layer


class _GradientCaptureLayer(keras.layers.Wrapper):
    """Base class of wrapper layers that capture gradients under a tag."""

    _SUFFIX = ""

    def __init__(self, layer: Any, tag: str | None = None, **kwargs: Any) -> None:
        layer = _checked(layer)
        tag = layer.name + self._SUFFIX if tag is None else tag
        super().__init__(layer, **{"name": tag, "dtype": layer.dtype_policy, **kwargs})
        self.tag = tag
        self.supports_masking = layer.supports_masking

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns the outputs of the wrapped layer."""
        return self.layer(inputs, *args, **kwargs)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """Returns the mask of the wrapped layer's outputs."""
        return self.layer.compute_mask(inputs, previous_mask)

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        return {**super().get_config(), "tag": self.tag}


@keras.saving.register_keras_serializable(package="keras_ipu")
class CaptureUpstreamGradients(_GradientCaptureLayer):
    """Wrapper layer that captures the gradient of the wrapped layer's output.

    Args:
        layer: the layer to wrap.
        tag: under which the gradient is captured; default: the layer's name with `_cug` after it.
        kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: if `layer` is not a Keras layer.
    """

    _SUFFIX = "_cug"

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns the outputs of the wrapped layer."""
        outputs = super().call(inputs, *args, **kwargs)
        captured = _capture(outputs, self.tag)
        for ours, own in zip(keras.tree.flatten(captured), keras.tree.flatten(outputs), strict=True):
            if (mask := keras_graphs.get_mask(own)) is not None:
                keras_graphs.set_mask(ours, mask)
        return captured


@keras.saving.register_keras_serializable(package="keras_ipu")
class _ActivationCapture(keras.layers.Activation):
    """Activation function that captures the gradient of its input."""

    def __init__(self, activation: Any, tag: str, **kwargs: Any) -> None:
        super().__init__(activation, **kwargs)
        self.tag = tag

    def call(self, inputs: Any) -> Any:
        return super().call(_capture(inputs, self.tag))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "tag": self.tag}


@keras.saving.register_keras_serializable(package="keras_ipu")
class CaptureActivationGradients(_GradientCaptureLayer):
    """Wrapper layer that captures the gradient of the inputs of the wrapped layer's activations.

    The layer is made again from its configuration, with activations that capture; a built one keeps its weights.

    Args:
        layer: the layer to wrap; its configuration must have an activation.
        tag: gradients are captured under `<tag>_<name of the activation>`, e.g. `dense_cag_activation`; default: the
            layer's name with `_cag` after it.
        kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: if `layer` is not a Keras layer or has no activation.
    """

    _SUFFIX = "_cag"

    def __init__(self, layer: Any, tag: str | None = None, **kwargs: Any) -> None:
        if not self.layer_is_supported(layer):
            raise ValueError(
                f"Layer {layer.name} does not use an activation function so is not supported by "
                "keras.ipu.layers.CaptureActivationGradients"
            )
        super().__init__(layer, tag, **kwargs)
        self._original = keras.saving.serialize_keras_object(layer)
        config = layer.get_config()
        self._wrapped_activations = {
            key: _ActivationCapture(activation, f"{self.tag}_{key}", dtype=layer.dtype_policy)
            for key, activation in _activations(config).items()
        }
        self.layer = type(layer).from_config({**config, **self._wrapped_activations})
        if layer.built:
            self.layer.build_from_config(layer.get_build_config())
            self.layer.set_weights(layer.get_weights())

    @staticmethod
    def layer_is_supported(layer: Any) -> bool:
        """Returns whether a layer has an activation in its configuration.

        Raises:
            ValueError: if `layer` is not a Keras layer.
        """
        return bool(_activations(_checked(layer).get_config()))

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        config = keras.layers.Layer.get_config(self)
        return {**config, "layer": self._original, "tag": self.tag}


def _activations(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the activations in a layer's configuration, by key."""
    found = {key: _activation(value) for key, value in config.items() if "activation" in key}
    return {key: activation for key, activation in found.items() if activation is not None}


def _activation(value: Any) -> Any:
    """Returns the activation of a configuration's value; None if it is not one."""
    try:
        return keras.activations.get(value)
    except (ValueError, TypeError):
        return None
