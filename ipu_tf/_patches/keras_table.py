"""Table of the patches that this project applies to Keras; a part of `ipu_tf._patches.table`."""

from __future__ import annotations

from ipu_tf._patches.patch import Patch, When, patches_of

_TRAINERS = "keras_ipu.training.*.trainer"
_MODEL_PATCHES = "keras_ipu.scope.model_patches"
_SAVING = "keras_ipu.saving.saving"

#: Patches of Keras. They let stock behaviour through for models made outside an `IPUStrategy`'s scope.
KERAS = (
    *(
        patch
        for trainer in ("tensorflow.trainer:TensorFlowTrainer.", "jax.trainer:JAXTrainer.")
        for patch in patches_of(
            f"keras.src.backend.{trainer}",
            (
                *("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"),
                *("make_train_function", "make_test_function", "make_predict_function"),
            ),
            When.SCOPE,
            "fit, evaluate and predict run on the device",
            _TRAINERS,
        )
    ),
    Patch(
        "keras.src.backend.tensorflow.trainer:TensorFlowTrainer._maybe_symbolic_build",
        When.SCOPE,
        "models are built while their step is traced",
        _TRAINERS,
    ),
    Patch(
        "keras.src.backend.jax.trainer:JAXTrainer.__init__",
        When.SCOPE,
        "models of the scope know its strategy",
        _TRAINERS,
    ),
    Patch(
        "keras.src.trainers.trainer:Trainer._symbolic_build",
        When.SCOPE,
        "variables of optimizers are created without compiling a program for each shape, on JAX",
        "keras_ipu.training.jax.trainer",
    ),
    Patch(
        "keras.src.backend.jax.numpy:zeros",
        When.USE,
        "variables of optimizers are created without compiling a program for each shape",
        "keras_ipu.stock.arrays",
    ),
    *(
        Patch(f"keras.src.backend.{name}", When.SCOPE, "batches of several steps go into one execution", _TRAINERS)
        for name in ("tensorflow.trainer:TFEpochIterator", "jax.trainer:JAXEpochIterator")
    ),
    *patches_of(
        "keras.src.trainers.trainer:Trainer.",
        ("compile", "_get_metrics_result_or_logs"),
        When.SCOPE,
        "fit, evaluate and predict run on the device",
        _TRAINERS,
    ),
    *(
        Patch(
            f"keras.src.optimizers.{optimizer}.apply",
            When.SCOPE,
            "gradients are summed over replicas before they are clipped or looked at",
            "keras_ipu.training.tensorflow.summed_gradients",
        )
        for optimizer in ("optimizer:Optimizer", "loss_scale_optimizer:LossScaleOptimizer")
    ),
    Patch(
        "keras.src.optimizers.optimizer:Optimizer.apply",
        When.SCOPE,
        "rows of embeddings that a batch names several times are added up before the update",
        "keras_ipu.training.tensorflow.summed_gradients",
    ),
    *(
        Patch(
            f"keras.src.optimizers.{optimizer}.apply",
            When.SCOPE,
            "weights can be updated eagerly within the scope",
            "keras_ipu.training.tensorflow.eager_updates",
        )
        for optimizer in ("optimizer:Optimizer", "loss_scale_optimizer:LossScaleOptimizer")
    ),
    *patches_of(
        "keras.src.models.model:Model.",
        (
            "_asynchronous_callbacks",
            "_gradient_accumulation_optimizer_kwargs",
            "_gradient_accumulation_reduction_method",
            "_gradient_accumulation_steps_per_replica",
            "_infeed_kwargs",
            "_is_pipelined",
            "_outfeed_kwargs",
            "_pipeline_stage_assignment",
            "_pipeline_stage_assignment_valid",
            "_pipelining_accumulate_outfeed",
            "_pipelining_device_mapping",
            "_pipelining_gradient_accumulation_steps_per_replica",
            "_pipelining_kwargs",
            "_replicated_metric_reduction_method",
            "export_for_ipu_serving",
            "get_pipeline_stage_assignment",
            "ipu_generator",
            "ipu_report",
            "pipeline_timetable",
            "print_pipeline_stage_assignment_summary",
            "print_pipeline_stage_report",
            "reset_pipeline_stage_assignment",
            "set_asynchronous_callbacks",
            "set_gradient_accumulation_options",
            "set_infeed_queue_options",
            "set_outfeed_queue_options",
            "set_pipeline_stage_assignment",
            "set_pipelining_options",
            "set_replication_options",
            "split_into_pipeline_stages",
        ),
        When.SCOPE,
        "options, pipeline stages and reports of IPU models",
        _MODEL_PATCHES,
    ),
    Patch(
        "keras.src.models.model:Model.build",
        When.SCOPE,
        "subclassed models know their pipeline stages once they are built",
        _MODEL_PATCHES,
    ),
    *patches_of(
        "keras.src.models.model:Model.",
        ("save_assets", "load_assets"),
        When.SCOPE,
        "options of IPU models are saved",
        _MODEL_PATCHES,
    ),
    *patches_of(
        "keras.src.models.model:Model.", ("save", "from_config"), When.SCOPE, "options of IPU models are saved", _SAVING
    ),
    *(
        Patch(
            f"keras.src.{name}",
            When.SCOPE,
            "weights do not change while tokens of the model are streamed",
            "keras_ipu.training.common.running_streams",
        )
        for name in ("models.model:Model.quantize", "models.model:Model.load_weights", "layers.layer:Layer.set_weights")
    ),
    Patch(
        "keras.src.models.functional:Functional.__init__",
        When.SCOPE,
        "models know the pipeline stages of their layers",
        _MODEL_PATCHES,
    ),
    Patch("keras.src.models.functional:Functional.get_config", When.SCOPE, "options of IPU models are saved", _SAVING),
    *patches_of(
        "keras.src.models.sequential:Sequential.",
        ("add", "pop", "build"),
        When.SCOPE,
        "models know the pipeline stages of their layers",
        _MODEL_PATCHES,
    ),
    Patch(
        "keras.src.models.sequential:Sequential.build",
        When.SCOPE,
        "the functional model that a `Sequential` keeps for itself is no IPU model of its own",
        "keras_ipu.stock.patches",
    ),
    *patches_of(
        "keras.src.models.sequential:Sequential.",
        ("get_config", "from_config"),
        When.SCOPE,
        "options of IPU models are saved",
        _SAVING,
    ),
    *patches_of(
        "keras.src.models.cloning:",
        ("_clone_functional_model", "_clone_sequential_model"),
        When.SCOPE,
        "clones of IPU models have their options",
        _SAVING,
    ),
    Patch(
        "keras.src.ops.operation:Operation.__new__",
        When.SCOPE,
        "layers know the `PipelineStage` they were made in",
        _MODEL_PATCHES,
    ),
    Patch(
        "keras.src.layers.layer:Layer.__call__",
        When.SCOPE,
        "with JAX, user code's own functions that compute with layers of the scope on the host are reported",
        "keras_ipu.training.jax.host_functions",
    ),
    Patch(
        "keras.src.ops.node:Node.__init__",
        When.SCOPE,
        "calls of layers know the `PipelineStage` they were made in",
        _MODEL_PATCHES,
    ),
    Patch(
        "keras.src.layers.core.input_layer:InputLayer.__init__",
        When.SCOPE,
        "`keras.Input(32)` as Keras 2 took it",
        "keras_ipu.scope.input_shapes",
    ),
    Patch(
        "keras.src.layers.rnn.rnn:RNN.inner_loop",
        When.SCOPE,
        "recurrent layers read their weights once a call",
        "keras_ipu.training.tensorflow.recurrent_weights",
    ),
    Patch(
        "keras.src.layers.preprocessing.image_preprocessing.equalization:Equalization._apply_equalization",
        When.SCOPE,
        "images are equalized in a step with fixed shapes",
        "keras_ipu.training.tensorflow.image_layers",
    ),
    Patch(
        "keras.src.layers.preprocessing.image_preprocessing.random_crop:RandomCrop.transform_images",
        When.SCOPE,
        "images are cropped in a step with fixed shapes",
        "keras_ipu.training.tensorflow.image_layers",
    ),
    Patch(
        "keras.src.optimizers.optimizer:Optimizer.add_variable_from_reference",
        When.SCOPE,
        "an optimizer is of the scope that it is used in, wherever it was made or is built",
        "keras_ipu.training.tensorflow.eager_updates",
    ),
    Patch(
        "keras.src.random.seed_generator:SeedGenerator.next",
        When.SCOPE,
        "each replica draws random numbers of its own",
        "keras_ipu.training.common.replica_seeds",
    ),
    Patch(
        "keras.src.backend.tensorflow.image:gaussian_blur",
        When.SCOPE,
        "elastic transforms draw the width of a blur in a step with fixed shapes",
        "keras_ipu.training.tensorflow.image_layers",
    ),
    *patches_of(
        "tf_keras.src.engine.training:Model.",
        (
            *("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"),
            *("make_train_function", "make_test_function", "make_predict_function"),
            "_validate_and_get_metrics_result",
        ),
        When.SCOPE,
        "fit, evaluate and predict of Keras 2's models run on the device",
        "keras_ipu.keras_2.trainer",
    ),
    Patch(
        "tf_keras.src.engine.data_adapter:DataHandler.enumerate_epochs",
        When.SCOPE,
        "steps of Keras 2's models on replicas know the batches of an epoch",
        "keras_ipu.keras_2.trainer",
    ),
    *patches_of(
        "tf_keras.src.engine.training:Model.",
        (
            *("set_asynchronous_callbacks", "set_replication_options", "set_gradient_accumulation_options"),
            *("set_pipelining_options", "set_infeed_queue_options", "set_outfeed_queue_options"),
            *("get_pipeline_stage_assignment", "set_pipeline_stage_assignment"),
            *("reset_pipeline_stage_assignment", "print_pipeline_stage_assignment_summary"),
        ),
        When.SCOPE,
        "options of IPU models, of Keras 2 as well",
        "keras_ipu.keras_2.model_methods",
    ),
    Patch(
        "tf_keras.src.engine.base_layer:Layer.__new__",
        When.SCOPE,
        "layers of Keras 2 know the `PipelineStage` they were made in",
        "keras_ipu.pipeline.stage_scopes",
    ),
    Patch(
        "tf_keras.src.engine.node:Node.__init__",
        When.SCOPE,
        "calls of Keras 2's layers know the `PipelineStage` they were made in",
        "keras_ipu.pipeline.stage_scopes",
    ),
    Patch(
        "tf_keras.src.mixed_precision.loss_scale_optimizer:strategy_supports_loss_scaling",
        When.SCOPE,
        "Keras 2's loss scaling takes an `IPUStrategy`",
        "keras_ipu.keras_2.trainer",
    ),
    Patch(
        "keras_hub.src.models.causal_lm:CausalLM.make_generate_function",
        When.SCOPE,
        "`generate` of KerasHub's language models runs on the device as one execution",
        "keras_ipu.generation.kerashub",
    ),
    *(
        Patch(
            f"keras_hub.src.models.{owner}CausalLM.generate",
            When.SCOPE,
            "`generate(on_tokens=...)` gives tokens to a function as they are made",
            "keras_ipu.generation.kerashub",
        )
        for owner in (
            "causal_lm:",
            "blip2.blip2_causal_lm:BLIP2",
            "gemma3.gemma3_causal_lm:Gemma3",
            "gemma3n.gemma3n_causal_lm:Gemma3n",
            "gemma4.gemma4_causal_lm:Gemma4",
            "phi3.phi3_causal_lm:Phi3",
        )
    ),
    *(
        Patch(
            f"keras.src.layers.core.{owner}._int{bits}_call",
            When.SCOPE,
            "weights stay packed in memory while text is generated",
            "keras_ipu.generation.packed_layers",
        )
        for owner in ("dense:Dense", "einsum_dense:EinsumDense", "reversible_embedding:ReversibleEmbedding")
        for bits in (8, 4)
    ),
    Patch(
        "keras.src.layers.core.embedding:Embedding._int4_call",
        When.SCOPE,
        "of a packed table the rows that are looked up are unpacked alone",
        "keras_ipu.generation.packed_layers",
    ),
    *patches_of(
        "keras.src.callbacks.callback_list:CallbackList.",
        (f"on_{kind}_batch_{edge}" for kind in ("train", "test", "predict") for edge in ("begin", "end")),
        When.USE,
        "asynchronous callbacks are called while the device runs",
        "keras_ipu.training.common.async_callbacks",
    ),
)
