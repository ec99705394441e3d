"""Patches of Keras for programs that were written for Keras 2: where, when, why, by which module."""

from __future__ import annotations

from ipu_tf._patches.patch import Patch, When

_LEGACY = "keras_ipu.legacy"
_COMPAT = "ipu_tf._compat"
_IF_KERAS_2 = "where `TF_USE_LEGACY_KERAS` is set:"
_INITIAL = "programs for Keras 2 that seed TensorFlow, and not Python, get the initial weights of TensorFlow 2.6"
_STEPS = ("train_step", "test_step", "predict_step")
_METRICS = "compile_utils:MetricsContainer._check_duplicated_metrics"
_OPTIMIZERS = "keras.src.backend"
_OPTIMIZER = "keras.src.optimizers.base_optimizer:BaseOptimizer"
_SCALING = "keras.src.optimizers.loss_scale_optimizer:LossScaleOptimizer"
#: What Keras 3's optimizers have, and is replaced; what Keras 2's have beside that.
_OPTIMIZER_NAMES = (
    *("__init__", "get_config", "apply_gradients", "variables", "_clip_gradients", "_backend_update_step"),
    *("lr", "_name", "weights", "get_weights", "set_weights", "minimize", "get_gradients", "get_updates"),
    "_compute_gradients",
    *("_transform_unaggregated_gradients", "_transform_gradients", "_aggregate_gradients"),
)
_OF_SUBCLASSES = (
    *("build", "__init_subclass__", "add_weight", "add_slot", "get_slot", "get_slot_names", "_prepare_local"),
    *("_resource_apply_dense", "_resource_apply_sparse", "_resource_apply_sparse_duplicate_indices", "_decayed_lr"),
    *("_fallback_apply_state", "_set_hyper", "_get_hyper", "_serialize_hyperparameter", "_create_slots"),
    *("_create_hypers", "_create_all_weights", "_call_if_callable", "_resource_scatter_add"),
    "_resource_scatter_update",
)
_CHECKPOINTS = "keras.src.callbacks.model_checkpoint:ModelCheckpoint"

#: Patches of Keras 3 for programs that were written for Keras 2.
KERAS_2 = (
    *(
        Patch(target, When.ALIASES, why, f"{_LEGACY}.{module}")
        for module, why, targets in (
            (
                "keras_2",
                "Keras 2's names, errors and order of logs",
                (
                    "keras.src.trainers.trainer:Trainer._assert_compile_called",
                    "keras.src.trainers.trainer:Trainer.compile",
                    "keras.src.callbacks.history:History.on_epoch_end",
                    "keras.src.models.sequential:Sequential.add",
                    "keras.src.models.functional:Functional._input_layers",
                    "keras.src.models.functional:Functional._output_layers",
                    "keras.src.backend.common.keras_tensor:KerasTensor.get_shape",
                    "keras.src.layers.layer:Layer.get_input_at",
                    "keras.src.layers.layer:Layer.get_output_at",
                    "keras.src.layers.layer:Layer.symbolic_call",
                    *(
                        f"{backend}:{name}"
                        for backend in ("keras.backend", "keras._tf_keras.keras.backend", "tensorflow.keras.backend")
                        for name in ("learning_phase", "set_value", "batch_set_value")
                    ),
                ),
            ),
            (
                "layer_arguments",
                "Keras 2's arguments and attributes of layers, models and callbacks",
                (
                    "keras.src.layers.layer:Layer.__call__",
                    "keras.src.layers.layer:Layer.add_weight",
                    "keras.src.layers.layer:Layer._name",
                    "keras.src.layers.layer:Layer.updates",
                    "keras.src.layers.core.dense:Dense.__init__",
                    "keras.src.layers.core.input_layer:InputLayer.input",
                    "keras.src.layers.core.lambda_layer:Lambda.from_config",
                    "keras.src.trainers.trainer:Trainer.compute_loss",
                    "keras.src.callbacks.callback:Callback.model",
                    "keras.src.backend.common.keras_tensor:KerasTensor.ref",
                    "keras.src.ops.node:KerasHistory.layer",
                    "keras.losses:LossFunctionWrapper",
                    "keras._tf_keras.keras.losses:LossFunctionWrapper",
                    "tensorflow.keras.losses:LossFunctionWrapper",
                ),
            ),
            (
                "layer_names",
                "names of layers with slashes",
                (
                    "keras.src.ops.operation:Operation.__init__",
                    "keras.src.backend.common.name_scope:name_scope.__init__",
                ),
            ),
            (
                "graph_dtypes",
                "layers in graphs of TensorFlow 1 compute in the dtype of their first input",
                ("keras.src.layers.layer:Layer.__init__", "keras.src.layers.layer:Layer.__call__"),
            ),
            (
                "removed_layers",
                "layers that Keras 3 dropped",
                tuple(f"{of}keras.layers:__getattr__" for of in ("", "keras._tf_keras.", "tensorflow.")),
            ),
            (
                "watched_variables",
                "tapes watch variables of Keras",
                ("tensorflow.python.eager.backprop:GradientTape.watch",),
            ),
            (
                "one_target",
                "one tensor of labels is that of each output",
                (
                    "keras.src.trainers.trainer:Trainer.compute_loss",
                    "keras.src.trainers.trainer:Trainer.compute_metrics",
                ),
            ),
            (
                "optimizers",
                "Keras 2's arguments, attributes and methods of optimizers",
                (
                    f"{_OPTIMIZERS}.tensorflow.optimizer:TFOptimizer._backend_update_step",
                    f"{_OPTIMIZERS}.tensorflow.optimizer:TFOptimizer._all_reduce_sum_gradients",
                    *(f"{_OPTIMIZER}.{name}" for name in _OPTIMIZER_NAMES),
                    f"{_SCALING}.variables",
                ),
            ),
            (
                "loss_scaling",
                "Keras 2's loss scaling with a fixed scale, and by hand",
                tuple(
                    f"{_SCALING}.{name}"
                    for name in (
                        *("__init__", "apply", "check_finite", "dynamic", "loss_scale", "get_scaled_loss"),
                        "get_unscaled_gradients",
                    )
                ),
            ),
            (
                "optimizer_subclasses",
                "Keras 2's methods of optimizers' subclasses",
                tuple(f"{_OPTIMIZER}.{name}" for name in _OF_SUBCLASSES),
            ),
            (
                "resnet",
                "residual networks of user-defined stacks",
                (
                    "keras.applications.resnet:ResNet",
                    "keras._tf_keras.keras.applications.resnet:ResNet",
                    "tensorflow.keras.applications.resnet:ResNet",
                ),
            ),
            (
                "weight_files",
                "weights in files of any name, as TensorFlow checkpoints; models in folders",
                (
                    "keras.src.models.model:Model.save_weights",
                    "keras.src.models.model:Model.load_weights",
                    "keras.src.models.model:Model.save",
                ),
            ),
            (
                "checkpoint_callback",
                "`ModelCheckpoint` with any file name, and with Keras 2's arguments",
                (
                    f"{_CHECKPOINTS}.__init__",
                    f"{_CHECKPOINTS}._save_model",
                    "keras.src.callbacks.monitor_callback:MonitorCallback._set_monitor_op",
                ),
            ),
            (
                "core_layers",
                "a TensorFlow op that is called with KerasTensors makes a layer",
                ("tensorflow.python.util.dispatch:_GLOBAL_DISPATCHERS",),
            ),
        )
        for target in targets
    ),
    *(
        Patch(
            f"{package}.optimizers:{name}",
            When.ALIASES,
            "where `TF_USE_LEGACY_KERAS` is set: the optimizers that TensorFlow 2.6 had under these names",
            "ipu_tf._compat.removed_names",
        )
        for package in ("tf_keras", "tf_keras.api._v2.keras", "tensorflow.keras")
        for name in ("SGD", "Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "Optimizer", "RMSprop")
    ),
    *(
        Patch(target, When.ALIASES, _INITIAL, f"{_COMPAT}.initial_weights")
        for target in ("tf_keras.src.backend:RandomGenerator._maybe_init", "random:seed")
    ),
    *(
        Patch(f"tf_keras.src.engine.{target}", When.ALIASES, f"{_IF_KERAS_2} {why}, as in TensorFlow 2.6", by)
        for target, why, by in (
            *(
                (f"training:Model.{step}", "[batch] tensors become [batch, 1]", f"{_COMPAT}.batch_ranks")
                for step in _STEPS
            ),
            (_METRICS, "one object of a metric for several outputs", f"{_COMPAT}.shared_metrics"),
        )
    ),
    Patch(
        "tf_keras.src.mixed_precision.loss_scale_optimizer:LossScaleOptimizerMetaclass.__new__",
        When.ALIASES,
        "where `TF_USE_LEGACY_KERAS` is set: subclasses of `LossScaleOptimizer` are of TensorFlow 2.6's",
        "ipu_tf._compat.removed_names",
    ),
)
