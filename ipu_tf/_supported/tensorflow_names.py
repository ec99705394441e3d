"""Table of Graphcore's public names for TensorFlow, as its documentation lists them."""

from __future__ import annotations

_GROUP_NORM = (
    "center=True, scale=True, epsilon=1.53e-5, param_initializers=None, reuse=None, variables_collections=None, "
    "training=True, trainable=True, scope=None"
)
_ACCUMULATING = (
    "opt, num_mini_batches, offload_weight_update_variables=None, replicated_optimizer_state_sharding=False, "
    "dtype=None, reduction_method=GradientAccumulationReductionMethod.SUM"
)
_EXPORT = (
    "preprocessing_step=None, preprocessing_step_signature=None, postprocessing_step=None, "
    "postprocessing_step_signature=None, purge_export_dir=False"
)

#: (title, Graphcore's module) -> names in it; those of functions and classes with their parameters.
TENSORFLOW_NAMES: dict[tuple[str, str], tuple[str, ...]] = {
    ("Configuration", "tensorflow.python.ipu.config"): (
        'configure_ipu_system(config, device="cpu", reset_configuration=True)',
        "reset_ipu_configuration()",
        "get_ipu_config(session=None)",
        "running_on_ipu_model()",
        "deprecate_config_attribute(name, msg)",
        "deprecate_config_attributes(to_deprecate)",
        "IPUConfig()",
        'IPUConfig.configure_ipu_system(self, device="cpu")',
        "IPUConfig.get_attribute_metadata(self, attr)",
        "IPUConfig.to_dict(self)",
        "IPUConfig.from_dict(self, dct)",
        "IPUConfig.to_json(self)",
        "IPUConfig.from_json(self, json_cfg)",
        "AttributeMetadata",
        "AttributeMetadata.check_type(self, value)",
        "AttributeMetadata.warn_if_deprecated(self)",
        "SelectionOrder",
        "ExecutionProfileType",
        "DeviceConnectionType",
        "MergeRemoteBuffersBehaviour",
        "SchedulingAlgorithm",
        "StochasticRoundingBehaviour",
        "StochasticRoundingBehaviour.from_bool(value)",
    ),
    ("Scopes", "tensorflow.python.ipu.scopes"): (
        "ipu_jit_scope(ipu_scope)",
        "ipu_scope(device)",
        'outside_compilation_scope(name="outside")',
        "ipu_shard(index)",
        "frontend_attribute(attribute_name, attribute_value, restore_to=None)",
        "stochastic_rounding(override)",
        "partials_type(override_type)",
    ),
    ("Programs", "tensorflow.python.ipu.ipu_compiler"): ("compile(computation, inputs=None)",),
    ("Loops", "tensorflow.python.ipu.loops"): (
        "while_loop(condition, body, inputs=None, infeed_queue=None, maximum_iterations=None, use_while_v1=True)",
        "repeat(n, body, inputs=None, infeed_queue=None, use_while_v1=True)",
    ),
    ("Infeeds", "tensorflow.python.ipu.ipu_infeed_queue"): (
        "IPUInfeedQueue(dataset, device_ordinal=None, prefetch_depth=None, optimise_latency=False, **kwargs)",
        "IPUInfeedQueue.dequeued",
        "IPUInfeedQueue.number_of_tuple_elements",
        "IPUInfeedQueue.initializer",
        "IPUInfeedQueue.deleter",
        "IPUInfeedQueue.get_next(self)",
        "IPUIterator(dataset=None, infeed_spec=None, element_spec=None, **kwargs)",
        "IPUIterator.get_next(self)",
        "IPUIterator.get_next_as_optional(self)",
        "IPUIterator.element_spec",
        "IPUOwnedIterator(dataset=None, infeed_spec=None, element_spec=None, **kwargs)",
    ),
    ("Outfeeds", "tensorflow.python.ipu.ipu_outfeed_queue"): (
        "IPUOutfeedMode.ALL",
        "IPUOutfeedMode.LAST",
        "IPUOutfeedQueue(outfeed_mode=None, device_ordinal=None, buffer_depth=3, optimise_latency=False)",
        "IPUOutfeedQueue.enqueue(self, tensors)",
        "IPUOutfeedQueue.dequeue(self, wait_for_completion=False)",
        "IPUOutfeedQueue.enqueued",
        "IPUOutfeedQueue.deleter",
        "IPUOutfeedQueueIterator",
        "ScopedIPUOutfeedQueue(outfeed_mode=None, device_ordinal=None)",
    ),
    ("Data sets", "tensorflow.python.ipu.data.ops.dataset_ops"): ("BufferDataset(input_dataset, buffer_size)",),
    ("Measuring data sets", "tensorflow.python.ipu.dataset_benchmark"): (
        "dataset_benchmark(dataset, number_of_epochs, elements_per_epochs, print_stats=True, "
        "apply_debug_options=True, do_memcpy=True)",
        "infeed_benchmark(infeed_queue, number_of_epochs, elements_per_epochs, print_stats=True, do_memcpy=True)",
    ),
    ("Data sets and variables in files", "tensorflow.python.ipu.dataset_extractor"): (
        "dataset_extractor(dataset, num_elements, filename, feed_name, print_stats=True)",
        "export_variables(variables, names, filename, metadata=None, print_stats=True)",
        "import_variables(variables, filenames, is_input=True, strict=True, print_stats=True)",
        "get_variable_handles(variables)",
    ),
    ("Strategy", "tensorflow.python.ipu.ipu_strategy"): (
        'IPUStrategyV1(ipu_device="/device:IPU:0", cpu_device="/device:CPU:0", enable_dataset_iterators=True, '
        "enable_keras_extensions=True)",
        "IPUStrategy",
        "IPUStrategyV1.run(self, fn, args=(), kwargs=None, options=None)",
        "IPUStrategyV1.scope(self)",
        "IPUStrategyV1.reduce(self, reduce_op, value, axis)",
        "IPUStrategyV1.supports_loss_scaling",
        "IPUStrategyV1.num_replicas_in_sync",
        "IPUStrategyV1.experimental_run_v2",
    ),
    ("Keras extensions of the strategy", "tensorflow.python.ipu.keras_extensions"): (
        "KerasExtensions(enable_dataset_iterators=True, enable_keras_extensions=True)",
    ),
    ("Pipelines", "tensorflow.python.ipu.pipelining_ops"): (
        "PipelineSchedule.Grouped",
        "PipelineSchedule.Interleaved",
        "PipelineSchedule.Sequential",
        "RecomputationMode.Auto",
        "RecomputationMode.RecomputeThenBackpropagate",
        "RecomputationMode.RecomputeAndBackpropagateInterleaved",
        "recomputation_checkpoint(tensors, name=None)",
        "PipelineStageOptions(convolution_options=None, matmul_options=None, slice_options=None)",
        "OptimizerFunctionOutput(opt, loss, compute_gradients_args=None, compute_gradients_kwargs=None, "
        "apply_gradients_args=None, apply_gradients_kwargs=None, variables=None, tape=None, "
        "gradient_capture_context=None, captured_gradient_outfeed=None)",
        "pipeline(computational_stages, gradient_accumulation_count=None, gradient_accumulation_dtype=None, "
        "gradient_accumulation_for_captured_grads=True, repeat_count=1, batch_serialization_iterations=1, inputs=None, "
        "infeed_queue=None, outfeed_queue=None, optimizer_function=None, device_mapping=None, pipeline_schedule=None, "
        "recomputation_mode=None, forward_propagation_stages_poplar_options=None, "
        "backward_propagation_stages_poplar_options=None, weight_update_poplar_options=None, "
        "offload_weight_update_variables=None, replicated_optimizer_state_sharding=False, offload_activations=None, "
        "offload_gradient_accumulation_buffers=None, replicated_weight_sharding=None, offload_weights=None, "
        "continuous_weight_updates=False, outfeed_loss=False, accumulate_outfeed=False, "
        "accumulate_outfeed_dtype=None, outfeed_mask=None, "
        "reduction_method=GradientAccumulationReductionMethod.SUM, name=None)",
    ),
    ("Gradient accumulation", "tensorflow.python.ipu.gradient_accumulation"): (
        "GradientAccumulationReductionMethod.SUM",
        "GradientAccumulationReductionMethod.MEAN",
        "GradientAccumulationReductionMethod.RUNNING_MEAN",
        "GradientAccumulationReductionMethod.parse(reduction_method)",
    ),
    ("Optimizers", "tensorflow.python.ipu.optimizers"): (
        "IpuOptimizer(opt, name=None)",
        "IpuOptimizer.apply_gradients(self, grads_and_vars, global_step=None, name=None)",
        "IpuOptimizer.compute_gradients(self, loss, var_list=None, **kwargs)",
        'CrossReplicaOptimizer(opt, name="CrossReplicaOptimizer")',
        f'GradientAccumulationOptimizerV2({_ACCUMULATING}, name="GradientAccumulationOptimizerV2")',
        f"CrossReplicaGradientAccumulationOptimizerV2({_ACCUMULATING}, "
        'name="CrossReplicaGradientAccumulationOptimizerV2")',
        'GradientAccumulationOptimizer(opt, num_mini_batches, verify_usage=True, name="GradientAccumulationOptimizer")',
        "CrossReplicaGradientAccumulationOptimizer(opt, num_mini_batches, verify_usage=True, "
        'name="CrossReplicaGradientAccumulationOptimizer")',
        'MapGradientOptimizer(wrapped_optimizer, gradient_mapping_function, name="MapGradientOptimizer")',
        "ShardedOptimizer(optimizer)",
    ),
    ("Captured gradients", "tensorflow.python.ipu.eager.backprop"): (
        "GradientCaptureContext()",
        "GradientCaptureContext.captured_gradients",
        "GradientCaptureTape(persistent=False, watch_accessed_variables=True)",
        "num_gradient_collection_tapes()",
    ),
    ("Custom ops", "tensorflow.python.ipu.custom_ops"): (
        'precompiled_user_op(inputs, library_path, gp_path="", outs=None, name="UserOp", op_name="Build", '
        "separate_gradients=False, inputs_with_gradients=None, attributes=None, gradient_attributes=None)",
        'cpu_user_operation(inputs, library_path, outs=None, name="UserOp", op_name="Callback", '
        "separate_gradients=False, inputs_with_gradients=None, attributes=None, gradient_attributes=None)",
        "codelet_expression_op(vertex_expression, *args)",
    ),
    ("Vertex expressions", "tensorflow.python.ipu.vertex_edsl"): (
        "constant(value)",
        "let(expr, f)",
        "condition(pred, a, b)",
        "VertexExpression",
        "Float16",
        "Float32",
        "Int16",
        "Int32",
    ),
    ("Collectives across replicas", "tensorflow.python.ipu.cross_replica_ops"): (
        "cross_replica_sum(x, replica_group_size=None, name=None)",
        "cross_replica_mean(x, replica_group_size=None, name=None)",
        "assume_equal_across_replicas(tensors, inplace=False)",
    ),
    ("All to all", "tensorflow.python.ipu.all_to_all_op"): (
        "all_to_all(x, split_dimension, concat_dimension, replication_factor, name=None)",
        "all_gather(x, replication_factor, name=None)",
    ),
    ("Reduce and scatter", "tensorflow.python.ipu.reduce_scatter_op"): (
        "reduce_scatter(x, replication_factor, op='COLLECTIVE_OP_ADD', name=None)",
    ),
    ("Replicas", "tensorflow.python.ipu.replication_ops"): ("replication_index(name=None)",),
    ("Collectives within a replica", "tensorflow.python.ipu.within_replica_ops"): (
        "all_reduce(input_shards, op)",
        "reduce_scatter(input_shards, op)",
        "all_gather(input_shards, axis=0)",
    ),
    ("Control flow", "tensorflow.python.ipu.control_flow_ops"): (
        "barrier(tensors, insert_barrier_for_gradients=False, name=None)",
    ),
    ("Embeddings", "tensorflow.python.ipu.embedding_ops"): (
        "embedding_lookup(params, ids, serialization_factor=1, indices_are_sorted=False, name=None)",
        "HostEmbeddingOptimizerSpec(learning_rate, optimizer_name=None)",
        "HostEmbeddingSGDGAOptimizerSpec(learning_rate, accumulation_factor)",
        'HostEmbedding(name, embedding_tensor, partition_strategy="TOKEN", optimizer_spec=None)',
        "HostEmbedding.lookup(self, indices, clip_indices=True)",
        "HostEmbedding.register(self, session=None)",
        "HostEmbedding.get_embedding_tensor(self)",
        'create_host_embedding(name, shape, dtype, partition_strategy="TOKEN", optimizer_spec=None, initializer=None)',
    ),
    ("Float8", "tensorflow.python.ipu.f8_ops"): (
        "Format.F143",
        "Format.F152",
        "create_metadata(fmt, scale=0)",
        "QuarterTensor(data, metadata)",
        "convert_to_f8(values, metadata, name=None)",
        "convert_from_f8(packed_input, dtype=dtypes.half, name=None)",
        "f8_matmul(lhs, rhs, name='f8_matmul')",
        "f8_conv_1d(inputs, filters, strides, padding, data_format='NWC', dilations=[1], name=NAME)",
        "f8_conv_2d(inputs, filters, strides, padding, data_format='NHWC', dilations=[1, 1, 1, 1], name=NAME)",
        "f8_conv_3d(inputs, filters, strides, padding, data_format='NDHWC', dilations=[1, 1, 1, 1, 1], name=NAME)",
    ),
    ("Functions", "tensorflow.python.ipu.functional_ops"): (
        "outlined_function(func=None, unique_sharding=False, keep_input_layouts=None, name=None)",
    ),
    ("Gradients", "tensorflow.python.ipu.grad_util_ops"): ('capture_upstream_gradients(args, tag="")',),
    ("Images", "tensorflow.python.ipu.image_ops"): (
        "normalise_image(image, channel_offsets, channel_scales, scale=1, name=None)",
    ),
    ("Internal ops", "tensorflow.python.ipu.internal_ops"): (
        "remap(x, name=None)",
        "remap_deduce(x, name=None)",
        "fifo(x, depth, offload=False, name=None)",
        'print_tensor(input, name="")',
        "get_current_iteration_counter(name=None, **kwargs)",
    ),
    ("Mathematics", "tensorflow.python.ipu.math_ops"): (
        "serialized_matmul(a, b, serialization_factor, serialization_dimension, transpose_a=False, transpose_b=False, "
        "name=None)",
        "segment_sum(data, segment_ids, num_segments, name=None)",
    ),
    ("Neural networks", "tensorflow.python.ipu.nn_ops"): (
        "gelu(x, approximate=True, name=None)",
        "hard_sigmoid(x, name=None)",
        "swish(x, name=None)",
        "softmax(x, stable=False, name=None)",
        "multi_conv(func=None, options=None)",
        "sampled_softmax_loss(weights, biases, labels, inputs, num_sampled, num_classes, num_true=1, "
        "sampled_values=None, name='sampled_softmax_loss', seed=None)",
        "nce_loss(weights, biases, labels, inputs, num_sampled, num_classes, num_true=1, sampled_values=None, "
        "name='nce_loss')",
        "ctc_loss_v2(labels, logits, label_length, logit_length, blank_index, out_dtype=None, name=None)",
        "ctc_loss_with_log_probs(labels, data, label_length, data_length, blank_index, out_dtype=None, name=None)",
        "ctc_beam_search_decoder(logits, logits_lengths, beam_width=100, top_paths=1, blank_index=-1, name=None)",
        "ctc_beam_search_decoder_with_log_probs(log_probs, input_lengths, beam_width=100, top_paths=1, "
        "blank_index=-1, name=None)",
    ),
    ("Normalisation", "tensorflow.python.ipu.normalization_ops"): (
        f"group_norm(inputs, groups=2, channels_axis=-1, {_GROUP_NORM}, strided_channel_grouping=True)",
        f"layer_norm(inputs, channels_axis=-1, {_GROUP_NORM})",
        f"instance_norm(inputs, channels_axis=-1, {_GROUP_NORM})",
    ),
    ("Random numbers", "tensorflow.python.ipu.rand_ops"): (
        "dropout(x, rate=0.5, noise_shape=None, seed=None, name=None, **kwargs)",
    ),
    ("Slices", "tensorflow.python.ipu.slicing_ops"): (
        "sequence_slice(dst, src, num_elems, src_offsets, dst_offsets, zero_unused)",
        "sequence_slice_unpack(src, num_elems, src_offsets, total_elements)",
        "sequence_slice_pack(dst, src, num_elems, dst_offsets, zero_unused)",
    ),
    ("Statistics", "tensorflow.python.ipu.statistics_ops"): (
        "fixed_width_bins(inputs, n_bins)",
        "histogram_normalize(hist)",
        "histogram(inputs, levels, absolute_of_input=False)",
        "histogram_update(hist, inputs, levels, absolute_of_input=False)",
    ),
    ("Recurrent networks (up to SDK 2.5)", "tensorflow.python.ipu.rnn_ops"): (
        "PopnnLSTM",
        "PopnnDynamicLSTM",
        "PopnnGRU",
        "PopnnDynamicGRU",
        "PopnnAUGRU",
    ),
    ("Compiling without running", "tensorflow.python.ipu.application_compile_op"): (
        "experimental_application_compile_op(func, inputs=None, output_path=None, freeze_variables=False, name=None)",
    ),
    ("Executables as services", "tensorflow.python.ipu.embedded_runtime"): (
        "embedded_runtime_start(executable_file, inputs, name, timeout=None)",
        "embedded_runtime_call(inputs, context)",
        "embedded_runtime_stop(context)",
        "embedded_runtime_start_and_call(executable_file, startup_inputs, call_inputs, name)",
        "RuntimeContext",
    ),
    ("Custom float formats", "tensorflow.python.ipu.ops.experimental.popfloat_cast_to_gfloat"): (
        "GenericFloat(man=10, exp=5, bias=15, en_denorm=True, en_inf=True, calc_type='auto', name=None)",
        "cast_native_to_gfloat",
        "cast_gfloat_to_native",
        "calc_gfloat_params",
    ),
    ("Helpers of other ops", "tensorflow.python.ipu.op_util"): (
        "accumulate_gradients",
        "create_resource_update",
        "get_accumulator_dtype(variable, dtype_override)",
        "bool_to_three_state(value, default=None)",
        "get_activation_name(identifier)",
        "gradient_override_scope(training)",
    ),
    ("Utilities", "tensorflow.python.ipu.utils"): (
        "IPUConfig",
        "SelectionOrder",
        "ExecutionProfileType",
        "DeviceConnectionType",
        "MergeRemoteBuffersBehaviour",
        "SchedulingAlgorithm",
        "get_ipu_config",
        "configure_ipu_system",
        'get_num_of_ipus_in_device(ipu_device, device="cpu")',
        "running_on_ipu_model()",
        'reset_ipu_seed(seed, device="/device:IPU:0", cpu_device="cpu", experimental_identical_replicas=False)',
        "move_variable_initialization_to_cpu(graph=None)",
        'export_dataset_to_file(dataset_or_infeed, output_filename, num_elements, feed_name="", '
        "apply_debug_options=True)",
        "export_inputs_to_file(inputs, output_filename, feed_dict)",
        "use_synthetic_data_for(synthetic_data_category)",
        "SyntheticDataCategory",
        "IpuOptions",
        "IpuTraceEvent",
        "export_variables_from_live_session",
        "export_variables_from_live_model",
        "import_data_in_live_session",
        "import_data_in_live_model",
    ),
    ("Sharding", "tensorflow.python.ipu.sharding"): (
        "get_sharding(op)",
        "has_attr(o, attr_name)",
        "dependencies(roots)",
        "get_shard_from_colocation(op)",
        "propagate_sharding(g)",
        "enable_sharded_gradient_tape()",
    ),
    ("Serving", "tensorflow.python.ipu.serving"): (
        "export_single_step(predict_step, export_dir, iterations, predict_step_signature=None, input_dataset=None, "
        f"output_names=None, {_EXPORT})",
        "export_pipeline(computational_stages, export_dir, iterations, inputs=None, device_mapping=None, "
        "pipeline_schedule=None, poplar_options=None, name=None, predict_step_signature=None, input_dataset=None, "
        f"output_names=None, {_EXPORT})",
        f"export_keras(model, export_dir, batch_size=None, output_names=None, {_EXPORT})",
    ),
    ("Estimators: configuration", "tensorflow.python.ipu.ipu_run_config"): (
        "IPURunConfig(iterations_per_loop=1, ipu_options=None, num_replicas=1, num_shards=1, ordinal=0, "
        "prefetch_depth=None)",
        "RunConfig(ipu_run_config=None, master=None, **kwargs)",
    ),
    ("Estimators", "tensorflow.python.ipu.ipu_estimator"): (
        "IPUEstimatorSpec",
        "IPUEstimator(model_fn, model_dir=None, config=None, params=None, warm_start_from=None, "
        "train_batch_size=None, eval_batch_size=None, predict_batch_size=None)",
        "IPUEstimator.train(self, input_fn, hooks=None, steps=None, max_steps=None, saving_listeners=None)",
        "IPUEstimator.evaluate(self, input_fn, steps=None, hooks=None, checkpoint_path=None, name=None)",
        "IPUEstimator.predict(self, input_fn, predict_keys=None, hooks=None, checkpoint_path=None, "
        "yield_single_examples=True, num_predictions=None)",
    ),
    ("Estimators of pipelines", "tensorflow.python.ipu.ipu_pipeline_estimator"): (
        "IPUPipelineEstimatorSpec",
        "IPUPipelineEstimator(model_fn, model_dir=None, config=None, params=None, warm_start_from=None)",
    ),
    ("Hooks of sessions", "tensorflow.python.ipu.ipu_session_run_hooks"): (
        "IPULoggingTensorHook(every_n_iter=None, every_n_secs=None, at_end=False, formatter=None, "
        "logging_mode=LoggingMode.LAST)",
        "IPULoggingTensorHook.log(self, tensors)",
    ),
    ("Workers", "tensorflow.python.ipu.ipu_multi_worker_strategy"): (
        'IPUMultiWorkerStrategyV1(cluster_resolver, ipu_device="/device:IPU:0", variables_on_host=False)',
    ),
    ("Collectives across hosts", "tensorflow.python.ipu.distributed"): (
        "allgather(value, tensor_name=None)",
        "allreduce(value, reduce_op, tensor_name=None)",
        "broadcast(value, root_rank=0, tensor_name=None)",
    ),
    ("Strategy of several processes", "tensorflow.python.ipu.distributed.popdist_strategy"): (
        'PopDistStrategy(ipu_device="/device:IPU:0", add_ipu_cross_replica_reductions=True, '
        "enable_dataset_iterators=True, enable_keras_extensions=True)",
        "PopDistStrategy.update_ipu_config(self, config)",
    ),
    ("Several processes", "popdist"): (
        "init()",
        "finalizeBackend()",
        "isPopdistEnvSet()",
        "getNumInstances()",
        "getInstanceIndex()",
        "getNumTotalReplicas()",
        "getNumLocalReplicas()",
        "getNumIpusPerReplica()",
        "getReplicaIndexOffset()",
        "checkNumIpusPerReplica",
        "getLocalInstanceIndex()",
        "getDeviceId",
        "synchronize()",
        "execute_on_instances",
    ),
    ("Several processes and TensorFlow", "popdist.tensorflow"): (
        "set_ipu_config(config, ipus_per_replica=None, configure_device=True)",
    ),
    ("Tests", "tensorflow.python.ipu.test_utils"): (
        "test_uses_ipus(num_ipus, allow_ipu_model=False, func=None)",
        "test_may_use_ipus_or_model(num_ipus, func=None)",
        "skip_on_hw(func)",
        "skip_if_not_enough_ipus(self, num_ipus)",
        "skip_with_asan(reason)",
        "has_ci_ipus()",
        "get_ci_num_ipus()",
        "add_hw_ci_connection_options(opts)",
        "ipu_session(disable_grappler_optimizers=None)",
        "move_variable_initialization_to_cpu()",
        "enable_ipu_events(ipu_config)",
        "ReportHelper()",
        "ReportJSON(test, sess=None, eager_mode=False)",
        "TensorMap(tensor_map)",
        "create_single_increasing_dataset(value, shape=None, dtype=np.float32, repeat=True)",
        "create_dual_increasing_dataset(value, data_shape=None, label_shape=None, dtype=np.float32, repeat=True)",
        "create_multi_increasing_dataset(value, shapes=None, dtypes=None, repeat=True)",
    ),
    ("Poplar reports", "pva"): ("openReport", "ProgramVisitor"),
}
