"""Table of Keras 2's inner modules and what stands for them."""

from __future__ import annotations

_ENGINE = (
    "base_layer",
    "functional",
    "input_layer",
    "input_spec",
    "keras_tensor",
    "sequential",
    "topology",
    "training",
)
#: Keras 2's inner modules, as far as programs and tests for Graphcore's Keras import them -> ours.
KERAS_2: dict[str, str] = {
    "keras.engine": "keras_ipu.legacy.engine",
    **{f"keras.engine.{name}": "keras_ipu.legacy.engine" for name in _ENGINE},
    "keras.keras_parameterized": "keras_ipu.legacy.keras_parameterized",
    "keras.layers.core": "keras_ipu.legacy.core_layers",
    **{
        f"{keras}.layers.{name}": f"{keras}.layers"
        for keras in ("keras", "keras._tf_keras.keras", "tensorflow.keras")
        for name in ("experimental", "experimental.preprocessing")
    },
    "keras.losses.losses_utils": "keras_ipu.legacy.losses_utils",
    "keras.mixed_precision.policy": "keras_ipu.legacy.mixed_precision",
    "keras.optimizer_v2": "keras_ipu.legacy.optimizer_v2",
    "keras.saving.save": "keras.saving",
    "keras.testing_utils": "keras_ipu.legacy.testing_utils",
    "keras.utils.layer_utils": "keras_ipu.legacy.layer_utils",
    "keras.utils.losses_utils": "keras_ipu.legacy.losses_utils",
    "keras.utils.np_utils": "keras.utils",
}

#: Where `TF_USE_LEGACY_KERAS` asks for Keras 2 itself, the package `tf_keras`: these and names below them lead there.
KERAS_2_ITSELF: dict[str, str] = {
    "keras.engine": "tf_keras.src.engine",
    "keras.layers.core": "tf_keras.src.layers.core",
    "keras.layers.experimental": "tf_keras.layers.experimental",
    "tensorflow.keras.layers.experimental": "tf_keras.layers.experimental",
    "keras.losses.losses_utils": "tf_keras.src.utils.losses_utils",
    "keras.mixed_precision.policy": "tf_keras.src.mixed_precision.policy",
    "keras.optimizer_v2": "tf_keras.src.optimizers.legacy",
    "keras.optimizer_v2.learning_rate_schedule": "tf_keras.src.optimizers.schedules.learning_rate_schedule",
    "keras.saving.save": "tf_keras.src.saving.legacy.save",
    "keras.utils.layer_utils": "tf_keras.src.utils.layer_utils",
    "keras.utils.losses_utils": "tf_keras.src.utils.losses_utils",
    "keras.utils.np_utils": "tf_keras.src.utils.np_utils",
    "tensorflow.python.keras.applications": "keras_ipu.keras_2.applications",
    "tensorflow.python.keras.datasets": "tf_keras.src.datasets",
    "tensorflow.python.keras.preprocessing": "tf_keras.src.preprocessing",
    "ipu_tensorflow_addons.keras": "keras_ipu.keras_2.addons",
    "tensorflow.python.ipu.keras.layers": "keras_ipu.keras_2.addons.layers",
    "tensorflow_addons": "keras_ipu.keras_2.tensorflow_addons",
    "tensorflow_addons.optimizers.weight_decay_optimizers": "keras_ipu.keras_2.tensorflow_addons.optimizers",
}
