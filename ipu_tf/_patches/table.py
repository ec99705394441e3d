"""Table of every patch that this project applies to TensorFlow, Keras, JAX and Python's import system."""

from __future__ import annotations

from ipu_tf._patches.patch import Patch, When

_SESSION = "tensorflow.python.client.session:BaseSession"
_EAGER = "tensorflow.python.eager"
_TRAINER = "keras.src.backend"

#: Patches of TensorFlow.
TENSORFLOW = (
    Patch(f"{_SESSION}.__init__", When.IMPORT, "sessions accept ops that are placed on IPUs"),
    Patch(f"{_SESSION}._do_run", When.IMPORT, "ops placed on an IPU run there as a program, not on the host"),
    Patch(f"{_SESSION}.make_callable", When.IMPORT, "callables of a session go through `run`"),
    Patch(f"{_SESSION}._make_callable_from_options", When.IMPORT, "callables with ops on an IPU are refused"),
    Patch(
        f"{_SESSION}.run", When.USE, "`Session.run` raises the device's own exception, not TensorFlow's wording of it"
    ),
    Patch(f"{_EAGER}.context:_EagerDeviceContext.__*__", When.IMPORT, "device scopes know when they are an IPU's"),
    Patch(
        f"{_EAGER}.polymorphic_function.atomic_function:AtomicFunction.call_flat",
        When.IMPORT,
        "a function with ops on an IPU that the host is about to run is refused",
    ),
    Patch(
        f"{_EAGER}.polymorphic_function.function_context:make_function_context",
        When.IMPORT,
        "a `tf.function` that the host has traced is traced again for the device, and the other way round: a program's "
        "random numbers and lengths are made of other ops",
    ),
    Patch(
        "tensorflow.python.pywrap_tfe:TFE_Py_FastPathExecute", When.USE, "eager ops in an IPU's device scope run there"
    ),
    Patch("tensorflow.python.pywrap_tfe:TFE_Py_Execute", When.USE, "eager ops in an IPU's device scope run there"),
    Patch(
        "tensorflow.python.pywrap_tfe:TFE_Py_RegisterGradientFunction",
        When.USE,
        "ops of the backward pass lie on the IPU of their op of the forward pass",
    ),
    Patch(f"{_EAGER}.execute:record_gradient", When.USE, "gradient tapes note on which IPU an op is"),
    Patch(
        "tensorflow.python.ops.control_flow_util:EnableControlFlowV2",
        When.IMPORT,
        "loops and branches on an IPU can be lowered",
    ),
    Patch("tensorflow*xla*:compile", When.IMPORT, "`xla.compile` on an IPU is `ipu_compiler.compile`"),
    Patch(
        "tensorflow.python.ops.gen_candidate_sampling_ops:*_candidate_sampler",
        When.IMPORT,
        "TensorFlow's samplers of classes have no kernel in a program",
    ),
    Patch(
        "tensorflow.python.ops.gen_stateless_random_ops*:stateless_*",
        When.IMPORT,
        "`tf.random.stateless_*` in a program draws the numbers of TensorFlow's CPU kernels, which XLA does not, and "
        "distributions that XLA has no kernel for",
    ),
    Patch(
        "tensorflow.python.ops.gen_random_ops:random_*",
        When.IMPORT,
        "TensorFlow's gamma and Poisson distributions have no kernel in a program",
    ),
    Patch(
        "tensorflow.python.ops.gen_math_ops:dense_bincount",
        When.IMPORT,
        "`tf.math.bincount` computes its length, which a program has to know before",
    ),
    Patch(
        "tensorflow._api.v2.raw_ops:ImageProjectiveTransformV3",
        When.IMPORT,
        "TensorFlow's op that rotates and zooms images has no kernel in a program",
    ),
    Patch(
        "tensorflow.python.data.ops.dataset_ops:DatasetV2.__iter__",
        When.SCOPE,
        "`iter(dataset)` within the scope makes an iterator that feeds the device",
    ),
    Patch(
        "tensorflow.python.data.ops.iterator_ops:OwnedIterator._next_internal",
        When.USE,
        "programs take elements of iterators made outside of the scope",
    ),
    Patch(
        "tensorflow.python.framework.ops:_DefaultGraphStack.reset",
        When.SCOPE,
        "`keras.backend.clear_session()` within the scope does not leave it",
    ),
    Patch(
        f"{_EAGER}.context:Context._set_global_seed",
        When.IMPORT,
        "`tf.random.set_seed` and `keras.utils.set_random_seed` set the seeds of the devices too",
    ),
    Patch("tensorflow.python.framework.test_util:TensorFlowTestCase.*", When.TESTING, "Graphcore's assertions"),
    Patch("tensorflow.python.platform.test:TestCase.*", When.TESTING, "Graphcore's assertions"),
)

#: Patches of Keras. They let stock behaviour through for models made outside an `IPUStrategy`'s scope.
KERAS = (
    Patch(f"{_TRAINER}.*.trainer:*Trainer.*", When.SCOPE, "fit, evaluate and predict run on the device"),
    Patch(f"{_TRAINER}.*.trainer:*EpochIterator", When.SCOPE, "batches of several steps go into one execution"),
    Patch(
        "keras.src.optimizers.optimizer:Optimizer.apply",
        When.SCOPE,
        "rows of embeddings that a batch names several times are added up before the update; "
        "weights can be updated eagerly within the scope",
    ),
    Patch(
        "keras.src.optimizers.loss_scale_optimizer:LossScaleOptimizer.apply",
        When.SCOPE,
        "weights can be updated eagerly within the scope",
    ),
    Patch("keras.src.trainers.trainer:Trainer.*", When.SCOPE, "fit, evaluate and predict run on the device"),
    Patch("keras.src.models.model:Model.*", When.SCOPE, "options and pipeline stages of IPU models, and their saving"),
    Patch("keras.src.models.functional:Functional.*", When.SCOPE, "pipeline stages and saving of IPU models"),
    Patch("keras.src.models.sequential:Sequential.*", When.SCOPE, "pipeline stages and saving of IPU models"),
    Patch("keras.src.models.cloning:_clone_*_model", When.SCOPE, "clones of IPU models have their options"),
    Patch("keras.src.ops.operation:Operation.__new__", When.SCOPE, "layers know the `PipelineStage` they were made in"),
    Patch(
        "keras.src.layers.layer:Layer.__call__",
        When.SCOPE,
        "with JAX, user code's own functions that compute with layers of the scope on the host are reported",
    ),
    Patch("keras.src.ops.node:Node.__init__", When.SCOPE, "calls of layers know the `PipelineStage` they were made in"),
    Patch("keras.src.layers.core.input_layer:InputLayer.__init__", When.SCOPE, "`keras.Input(32)` as Keras 2 took it"),
    Patch("keras.src.layers.rnn.rnn:RNN.inner_loop", When.SCOPE, "recurrent layers read their weights once a call"),
    Patch(
        "keras.src.layers.preprocessing.image_preprocessing.equalization:Equalization._apply_equalization",
        When.SCOPE,
        "images are equalized in a step with fixed shapes",
    ),
    Patch(
        "keras.src.layers.preprocessing.image_preprocessing.random_crop:RandomCrop.transform_images",
        When.SCOPE,
        "images are cropped in a step with fixed shapes",
    ),
    Patch(
        "keras.src.backend.tensorflow.image:gaussian_blur",
        When.SCOPE,
        "elastic transforms draw the width of a blur in a step with fixed shapes",
    ),
    Patch(
        "keras_hub.src.models.causal_lm:CausalLM.make_generate_function",
        When.SCOPE,
        "`generate` of KerasHub's language models runs on the device as one execution",
    ),
    Patch(
        "keras.src.callbacks.callback_list:CallbackList.on_*_batch_*",
        When.USE,
        "asynchronous callbacks are called while the device runs",
    ),
    Patch("keras.src.callbacks.history:History.on_epoch_end", When.ALIASES, "programs that import Keras 2's modules"),
    Patch(
        "keras.src.backend.common.keras_tensor:KerasTensor.*", When.ALIASES, "programs that import Keras 2's modules"
    ),
    Patch("keras.backend:learning_phase", When.ALIASES, "programs that import Keras 2's modules"),
    Patch("keras.src.layers.layer:Layer.*", When.ALIASES, "programs that import Keras 2's modules"),
)

#: Patches for programs written for Graphcore's TensorFlow.
COMPATIBILITY = (
    Patch("tensorflow:__getattr__", When.ALIASES, "Graphcore's modules, and TensorFlow 1's names under the launcher"),
    Patch("tensorflow[._]*:__getattr__", When.ALIASES, "Graphcore's modules, and names that lay there formerly"),
    Patch("keras:__getattr__", When.ALIASES, "Graphcore's modules"),
    Patch("keras.*:__getattr__", When.ALIASES, "Graphcore's modules, and names that lay there formerly"),
    Patch("ipu_tf*:__getattr__", When.ALIASES, "Graphcore's modules below ours"),
    Patch("keras_ipu*:__getattr__", When.ALIASES, "Graphcore's modules below ours"),
    Patch("keras.src.utils.naming:uniquify", When.LAUNCHER, "layers are named in each TensorFlow 1 graph anew"),
    Patch(
        "keras.src.optimizers.base_optimizer:BaseOptimizer.apply_gradients",
        When.LAUNCHER,
        "Keras's optimizers give an operation in TensorFlow 1 graphs",
    ),
    Patch(
        "tensorflow.python.training.optimizer:Optimizer.*_gradients",
        When.LAUNCHER,
        "TensorFlow 1's optimizers take the variables of Keras 3's layers",
    ),
    Patch(
        "tensorflow.python.client.session:register_session_run_conversion_functions",
        When.LAUNCHER,
        "sessions fetch the variables of Keras 3's layers",
    ),
    Patch("tensorflow*compat.v1:layers", When.LAUNCHER, "`tf.layers` of TensorFlow 1"),
    Patch("tensorflow*compat.v1.nn:rnn_cell", When.LAUNCHER, "`tf.nn.rnn_cell` of TensorFlow 1"),
    Patch(
        "tensorflow.python.ops.resource_variable_ops:BaseResourceVariable.initialized_value",
        When.LAUNCHER,
        "a method of TensorFlow 1's variables",
    ),
    Patch(
        "tensorflow.python.framework.tensor_shape:Dimension.__init__",
        When.LAUNCHER,
        "sizes of dimensions that are whole numbers of type float",
    ),
    Patch("sys:meta_path", When.IMPORT, "what else is in this table waits for `tensorflow` to be imported"),
)

#: Every change, in the order in which a target is looked for.
PATCHES: tuple[Patch, ...] = (*TENSORFLOW, *KERAS, *COMPATIBILITY)
