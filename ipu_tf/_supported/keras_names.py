"""Table of Graphcore's public names for Keras, as its documentation lists them."""

from __future__ import annotations

_ALS = (
    "initial_loss_scaling_factor=1, update_frequency=8, increase_factor=2, max_loss_scaling_factor=32768, "
    "accumulate_statistics_over_update_period=True, ratio_threshold=10e-6, captured_grads_only=False, lpf_alpha=0.0, "
    "histogram_bin_edge=2**13"
)
_ACCUMULATING = (
    "num_mini_batches, offload_weight_update_variables=None, replicated_optimizer_state_sharding=False, dtype=None, "
    "reduction_method=GradientAccumulationReductionMethod.SUM"
)

#: (title, Graphcore's module) -> names in it; those of functions and classes with their parameters.
KERAS_NAMES: dict[tuple[str, str], tuple[str, ...]] = {
    ("Pipelined models", "keras.ipu"): (
        "PipelineStage(stage)",
        "FunctionalLayerPipelineStageAssignment(layer, node_index, pipeline_stage=None)",
        "ModelLayerPipelineStageAssignment(layer, node_index, pipeline_stage=None)",
        "SequentialLayerPipelineStageAssignment(layer, pipeline_stage=None)",
        "NestedModelPipelineStageAssignment(nested_model, node_index, pipeline_stage_assignments)",
        "FunctionalNestedModelPipelineStageAssignment(nested_model, node_index, pipeline_stage_assignments)",
        "SequentialNestedModelPipelineStageAssignment(nested_model, pipeline_stage_assignments)",
        "ReplicatedMetricReductionMethod",
    ),
    ("Extensions of models", "keras.ipu.extensions"): (
        "FunctionalExtension",
        "SequentialExtension",
        "ModelExtension",
        "ModelExtension.set_asynchronous_callbacks(self, asynchronous=False)",
        "ModelExtension.set_replication_options(self, replicated_metric_reduction_method='NONE')",
        "ModelExtension.set_gradient_accumulation_options(self, gradient_accumulation_steps_per_replica=None, "
        "gradient_accumulation_reduction_method='sum', use_v2_gradient_accumulation_optimizer=False, "
        "**gradient_accumulation_optimizer_kwargs)",
        "ModelExtension.set_pipelining_options(self, gradient_accumulation_steps_per_replica=None, "
        "device_mapping=None, accumulate_outfeed=None, gradient_accumulation_reduction_method='sum', "
        "**pipelining_kwargs)",
        "ModelExtension.set_infeed_queue_options(self, **kwargs)",
        "ModelExtension.set_outfeed_queue_options(self, **kwargs)",
        "ModelExtension.get_pipeline_stage_assignment(self)",
        "ModelExtension.set_pipeline_stage_assignment(self, pipeline_stage_assignment)",
        "ModelExtension.reset_pipeline_stage_assignment(self)",
        "ModelExtension.print_pipeline_stage_assignment_summary(self, line_length=None, print_fn=None)",
        "ModelExtension.export_for_ipu_serving(self, export_dir, batch_size=None, output_names=None, "
        "preprocessing_step=None, preprocessing_step_signature=None, postprocessing_step=None, "
        "postprocessing_step_signature=None, purge_export_dir=False)",
    ),
    ("Keras layers", "keras.ipu.layers"): (
        "CaptureUpstreamGradients(layer, tag=None)",
        "CaptureActivationGradients(layer, tag=None)",
        "CaptureActivationGradients.layer_is_supported(layer)",
    ),
    ("Keras optimizers", "keras.ipu.optimizers"): (
        f'GradientAccumulationOptimizer(opt, {_ACCUMULATING}, name="GradientAccumulationOptimizer")',
        f'ALSOptimizer(opt, {_ALS}, name="ALSOptimizer")',
        f"ALSOptimizerAdam(learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-07, {_ALS})",
        f"ALSOptimizerSGD(learning_rate=0.01, momentum=0.0, {_ALS})",
        f"ALSOptimizerRMSProp(learning_rate=0.001, rho=0.9, momentum=0.0, epsilon=1e-07, centered=False, {_ALS})",
        f'ALSGradientAccumulationOptimizer(als_optimizer, {_ACCUMULATING}, name="ALSGradientAccumulationOptimizer")',
    ),
    ("Add-ons: layers", "ipu_tensorflow_addons.keras.layers"): (
        "AssumeEqualAcrossReplicas",
        "CTCInferenceLayer",
        "CTCPredictionsLayer",
        "ConvertFromF8",
        "ConvertToF8",
        "Dense",
        "Dropout(rate, noise_shape=None, seed=None, **kwargs)",
        "EffectiveTransformer",
        "Embedding",
        "GRU",
        "GroupNormalization",
        "InstanceNormalization",
        "LSTM",
        "LayerNormalization",
        "RecomputationCheckpoint",
        "SerialDense(units, serialization_factor, serialization_dimension, activation=None, use_bias=True, **kwargs)",
    ),
    ("Add-ons: losses", "ipu_tensorflow_addons.keras.losses"): ("CTCLoss",),
    ("Add-ons: optimizers", "ipu_tensorflow_addons.keras.optimizers"): (
        "AdamIpuOptimizer(learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-07, amsgrad=False, name='Adam', "
        "m_dtype=None, v_dtype=None, vhat_dtype=None, debiasing=True, **kwargs)",
        "IpuOptimizerBase",
        "LAMBIpuOptimizer",
        "SGDIpuOptimizer",
    ),
    ("Keras inside the TensorFlow package (up to SDK 2.5)", "tensorflow.python.ipu.keras"): (
        "PipelineStage",
        "FunctionalLayerPipelineStageAssignment",
        "SequentialLayerPipelineStageAssignment",
        "FunctionalExtension",
        "SequentialExtension",
        "CTCLoss",
        "Model",
        "Sequential",
        "PipelineModel",
        "PipelineSequential",
    ),
    ("Its layers (up to SDK 2.5)", "tensorflow.python.ipu.keras.layers"): (
        "AssumeEqualAcrossReplicas",
        "CTCInferenceLayer",
        "CTCPredictionsLayer",
        "Dropout",
        "EffectiveTransformer",
        "Embedding",
        "GroupNorm",
        "InstanceNorm",
        "LayerNorm",
        "RecomputationCheckpoint",
        "LSTM",
        "PopnnLSTM",
        "GRU",
        "PopnnGRU",
        "SerialDense",
    ),
    ("Its optimizers (up to SDK 2.5)", "tensorflow.python.ipu.keras.optimizers"): (
        "IpuOptimizer",
        "AutomaticLossScalingOptimizer",
        "CrossReplicaOptimizer",
        "MapGradientOptimizer",
        "MapGradientOptimizerInvertedChaining",
        "GradientAccumulationOptimizer",
    ),
    ("Its losses (up to SDK 2.5)", "tensorflow.python.ipu.keras.losses"): ("CTCLoss",),
}
