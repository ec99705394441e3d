"""Table of every patch that this project applies to TensorFlow, Keras, JAX and Python's import system.

A name that several modules of ours replace has an entry for each. `*` stands for any text, in names of modules alone.
"""

from __future__ import annotations

from ipu_tf._patches.keras_2_table import KERAS_2
from ipu_tf._patches.keras_table import KERAS
from ipu_tf._patches.patch import Patch, When, patches_of

_SESSION = "tensorflow.python.client.session:BaseSession"
_EAGER = "tensorflow.python.eager"
_OPS = "tensorflow.python.ops"
_TF_PATCHES = "ipu_tf.lowering.tensorflow.tf_patches"
_TF_EAGER_PATCHES = "ipu_tf.lowering.tensorflow.tf_eager_patches"
_TF_STACKS = "ipu_tf.lowering.tensorflow.tf_stacks"
_TF_SESSION_PATCHES = "ipu_tf.lowering.tensorflow.tf_session_patches"
_PROGRAM_OPS = "ipu_tf._sessions.program_ops"
_TF1_NAMES = "ipu_tf._compat.tf1_names"
_ALIASES = "ipu_tf._compat.aliases"


#: Patches of TensorFlow.
TENSORFLOW = (
    Patch(f"{_SESSION}.__init__", When.IMPORT, "sessions accept ops that are placed on IPUs", _TF_SESSION_PATCHES),
    Patch(
        f"{_SESSION}._do_run",
        When.IMPORT,
        "ops placed on an IPU run there as a program, not on the host",
        _TF_SESSION_PATCHES,
    ),
    Patch(f"{_SESSION}.make_callable", When.IMPORT, "callables of a session go through `run`", _TF_SESSION_PATCHES),
    Patch(
        f"{_SESSION}._make_callable_from_options",
        When.IMPORT,
        "callables with ops on an IPU are refused",
        _TF_SESSION_PATCHES,
    ),
    Patch(
        f"{_SESSION}.run",
        When.USE,
        "`Session.run` raises the device's own exception, not TensorFlow's wording of it",
        _TF_SESSION_PATCHES,
    ),
    *patches_of(
        f"{_EAGER}.context:_EagerDeviceContext.",
        ("__enter__", "__exit__"),
        When.IMPORT,
        "device scopes know when they are an IPU's",
        _TF_EAGER_PATCHES,
    ),
    Patch(
        f"{_EAGER}.polymorphic_function.atomic_function:AtomicFunction.call_flat",
        When.IMPORT,
        "a function with ops on an IPU that the host is about to run is refused",
        _TF_EAGER_PATCHES,
    ),
    *patches_of(
        "tensorflow.python.pywrap_tfe:",
        ("TFE_Py_FastPathExecute", "TFE_Py_Execute"),
        When.USE,
        "eager ops in an IPU's device scope run there",
        _TF_EAGER_PATCHES,
    ),
    Patch(
        f"{_EAGER}.polymorphic_function.function_context:make_function_context",
        When.IMPORT,
        "a `tf.function` that the host has traced is traced again for the device, and the other way round: a program's "
        "random numbers and lengths are made of other ops",
        _TF_PATCHES,
    ),
    Patch(
        "tensorflow.python.util.tf_stack:extract_stack",
        When.USE,
        "ops of a program share the stack of the user's line: TensorFlow keeps 12 KB for each op's own",
        _TF_STACKS,
    ),
    Patch(
        "tensorflow.python.pywrap_tfe:TFE_Py_RegisterGradientFunction",
        When.USE,
        "ops of the backward pass lie on the IPU of their op of the forward pass",
        _TF_PATCHES,
    ),
    Patch(f"{_EAGER}.execute:record_gradient", When.USE, "gradient tapes note on which IPU an op is", _TF_PATCHES),
    *patches_of(
        f"{_OPS}.control_flow_util:",
        ("EnableControlFlowV2", "GraphOrParentsInXlaContext"),
        When.IMPORT,
        "loops and branches on an IPU, and gradients of them, can be lowered",
        _TF_PATCHES,
    ),
    *(
        Patch(f"{module}:compile", When.IMPORT, "`xla.compile` on an IPU is `ipu_compiler.compile`", _TF_PATCHES)
        for module in (
            "tensorflow.python.compiler.xla.xla",
            "tensorflow._api.v2.xla.experimental",
            "tensorflow._api.v2.compat.v1.xla.experimental",
            "tensorflow._api.v2.compat.v2.xla.experimental",
        )
    ),
    *patches_of(
        f"{_OPS}.gen_candidate_sampling_ops:",
        ("uniform_candidate_sampler", "log_uniform_candidate_sampler"),
        When.IMPORT,
        "TensorFlow's samplers of classes have no kernel in a program",
        _PROGRAM_OPS,
    ),
    *patches_of(
        f"{_OPS}.gen_stateless_random_ops:",
        ("stateless_multinomial", "stateless_random_binomial", "stateless_random_poisson"),
        When.IMPORT,
        "`tf.random.stateless_*` in a program draws the numbers of TensorFlow's CPU kernels, which XLA does not, and "
        "distributions that XLA has no kernel for",
        _PROGRAM_OPS,
    ),
    *patches_of(
        f"{_OPS}.gen_stateless_random_ops_v2:",
        ("stateless_random_uniform_v2", "stateless_random_normal_v2", "stateless_random_gamma_v3"),
        When.IMPORT,
        "`tf.random.stateless_*` in a program draws the numbers of TensorFlow's CPU kernels, which XLA does not, and "
        "distributions that XLA has no kernel for",
        _PROGRAM_OPS,
    ),
    *patches_of(
        f"{_OPS}.gen_random_ops:",
        ("random_gamma", "random_poisson_v2"),
        When.IMPORT,
        "TensorFlow's gamma and Poisson distributions have no kernel in a program",
        _PROGRAM_OPS,
    ),
    Patch(
        f"{_OPS}.gen_math_ops:dense_bincount",
        When.IMPORT,
        "`tf.math.bincount` computes its length, which a program has to know before",
        _PROGRAM_OPS,
    ),
    Patch(
        f"{_OPS}.gen_math_ops:mean",
        When.IMPORT,
        "the mean of integers in a program comes from their sum in 64 bits, as in TensorFlow's CPU kernel",
        _PROGRAM_OPS,
    ),
    *patches_of(
        f"{_OPS}.gen_math_ops:",
        ("reciprocal_grad", "rsqrt_grad", "sqrt_grad"),
        When.IMPORT,
        "gradients of roots and reciprocals of complex numbers in a program have their conjugates",
        _PROGRAM_OPS,
    ),
    Patch(
        f"{_OPS}.gen_nn_ops:selu_grad",
        When.IMPORT,
        "the slope of `tf.nn.selu` at 0 in a program is that of positive numbers, as in TensorFlow's CPU kernel",
        _PROGRAM_OPS,
    ),
    Patch(
        f"{_OPS}.gen_nn_ops:in_top_kv2",
        When.IMPORT,
        "`tf.math.in_top_k` in a program is False where a target is no class or a number not finite",
        _PROGRAM_OPS,
    ),
    Patch(
        f"{_OPS}.gen_nn_ops:top_kv2",
        When.IMPORT,
        "`tf.math.top_k` and sorts of bfloat16 in a program take -0 for no less than +0",
        _PROGRAM_OPS,
    ),
    Patch(
        f"{_OPS}.gen_array_ops:upper_bound",
        When.IMPORT,
        "`tf.searchsorted` in a program finds NaN behind all numbers",
        _PROGRAM_OPS,
    ),
    *patches_of(
        f"{_OPS}.gen_image_ops:",
        ("resize_bilinear_grad", "resize_nearest_neighbor"),
        When.IMPORT,
        "`tf.image.resize` in a program keeps integers and has gradients of the nearest pixels, and of short floats",
        _PROGRAM_OPS,
    ),
    Patch(
        "tensorflow._api.v2.raw_ops:Bucketize",
        When.IMPORT,
        "`keras.ops.digitize` in a program has NaN in the last bucket",
        _PROGRAM_OPS,
    ),
    Patch(
        "tensorflow._api.v2.raw_ops:ImageProjectiveTransformV3",
        When.IMPORT,
        "TensorFlow's op that rotates and zooms images has no kernel in a program",
        _PROGRAM_OPS,
    ),
    Patch(
        "tensorflow.python.data.ops.dataset_ops:DatasetV2.__iter__",
        When.SCOPE,
        "`iter(dataset)` within the scope makes an iterator that feeds the device",
        _TF_PATCHES,
    ),
    Patch(
        "tensorflow.python.data.ops.iterator_ops:OwnedIterator._next_internal",
        When.USE,
        "programs take elements of iterators made outside of the scope",
        _TF_PATCHES,
    ),
    Patch(
        "tensorflow.python.data.ops.iterator_ops:OwnedIterator.__tf_tracing_type__",
        When.USE,
        "programs take elements of iterators made outside of the scope",
        _TF_PATCHES,
    ),
    Patch(
        "tensorflow.python.framework.ops:_DefaultGraphStack.reset",
        When.SCOPE,
        "`keras.backend.clear_session()` within the scope does not leave it",
        _TF_PATCHES,
    ),
    Patch(
        f"{_EAGER}.context:Context._set_global_seed",
        When.IMPORT,
        "`tf.random.set_seed` and `keras.utils.set_random_seed` set the seeds of the devices too",
        _TF_PATCHES,
    ),
    *patches_of(
        "tensorflow.python.framework.test_util:TensorFlowTestCase.",
        (
            "_assert_all_in_tolerance",
            "assert_all_compute_sets_and_list",
            "assert_always_live_memory",
            "assert_compute_io_overlap_percentage",
            "assert_compute_sets_contain_list",
            "assert_compute_sets_matches",
            "assert_compute_sets_not_in_blacklist",
            "assert_each_tile_memory_is_less_than",
            "assert_execution_report_cycles",
            "assert_global_exchange_percentage",
            "assert_max_tile_memory",
            "assert_num_reports",
            "assert_number_of_executions",
            "assert_total_tile_memory",
            "assert_vertices_contain_list",
        ),
        When.TESTING,
        "Graphcore's assertions",
        "ipu_tf._testing.assertions",
    ),
)

#: Patches for programs written for Graphcore's TensorFlow.
COMPATIBILITY = (
    *KERAS_2,
    *(
        Patch(f"{modules}:__getattr__", When.ALIASES, "Graphcore's modules", _ALIASES)
        for modules in ("tensorflow*", "keras", "keras.*", "keras_ipu*", "tf_keras*")
    ),
    Patch(
        f"{_OPS}.gen_nn_ops:fused_batch_norm_v3",
        When.ALIASES,
        "batch norm takes its scale and offset in float16",
        "ipu_tf._compat.float16_batch_norm",
    ),
    Patch("numpy:__getattr__", When.ALIASES, "names that NumPy 1 had", "ipu_tf._compat.removed_names"),
    Patch("ipu_tf*:__getattr__", When.ALIASES, "Graphcore's modules", "ipu_tf.*"),
    *(
        Patch(
            f"{modules}:__getattr__",
            When.LAUNCHER,
            "names that lay there formerly",
            "ipu_tf._compat.removed_names",
        )
        for modules in ("tensorflow", "tensorflow.python.*", "keras.backend")
    ),
    *(
        Patch(f"{modules}:__getattr__", When.LAUNCHER, "TensorFlow 1's names", _TF1_NAMES)
        for modules in ("tensorflow", "tensorflow.*", "keras._tf_keras.keras.*")
    ),
    Patch(
        "keras.src.utils.naming:uniquify",
        When.LAUNCHER,
        "layers are named in each TensorFlow 1 graph anew",
        "ipu_tf._compat.keras_in_graphs",
    ),
    Patch(
        "keras.src.models.sequential:Sequential.__init__",
        When.LAUNCHER,
        "a layer that a `Sequential` is given twice is applied once in TensorFlow 1 graphs",
        "ipu_tf._compat.keras_in_graphs",
    ),
    Patch(
        "keras.src.optimizers.base_optimizer:BaseOptimizer.apply_gradients",
        When.LAUNCHER,
        "Keras's optimizers give an operation in TensorFlow 1 graphs",
        "ipu_tf._compat.keras_in_graphs",
    ),
    *patches_of(
        "tensorflow.python.training.optimizer:Optimizer.",
        ("compute_gradients", "apply_gradients"),
        When.LAUNCHER,
        "TensorFlow 1's optimizers take the variables of Keras 3's layers",
        "ipu_tf._compat.keras_in_graphs",
    ),
    Patch(
        "tensorflow.python.client.session:register_session_run_conversion_functions",
        When.LAUNCHER,
        "sessions fetch the variables of Keras 3's layers",
        "ipu_tf._compat.keras_in_graphs",
    ),
    Patch("tensorflow*compat.v1:layers", When.LAUNCHER, "`tf.layers` of TensorFlow 1", _TF1_NAMES),
    Patch("tensorflow*compat.v1.nn:rnn_cell", When.LAUNCHER, "`tf.nn.rnn_cell` of TensorFlow 1", _TF1_NAMES),
    Patch(
        f"{_OPS}.resource_variable_ops:BaseResourceVariable.initialized_value",
        When.LAUNCHER,
        "a method of TensorFlow 1's variables",
        _TF1_NAMES,
    ),
    Patch(
        "tensorflow.python.framework.tensor_shape:Dimension.__init__",
        When.LAUNCHER,
        "sizes of dimensions that are whole numbers of type float",
        _TF1_NAMES,
    ),
)

#: What every program gets: Python's import system, and JAX.
BASIC = (
    Patch(
        "sys:meta_path",
        When.IMPORT,
        "what else is in this table waits for `tensorflow` to be imported",
        "ipu_tf._patches.import_hooks",
    ),
    Patch(
        "builtins:__import__",
        When.LAUNCHER,
        "`import tensorflow` in the files of a program for TensorFlow 1 gives the module that TensorFlow 1 had",
        "ipu_tf._compat.tf1_module",
    ),
    Patch(
        "builtins:__import__",
        When.LAUNCHER,
        "where `TF_USE_LEGACY_KERAS` is set: `import keras` in the files of the program gives `tf_keras`",
        "ipu_tf._compat.keras_2_module",
    ),
    Patch(
        "jax.monitoring:register_event_duration_secs_listener",
        When.USE,
        "times of compilation are reported, and memory that the compiler freed is returned to the system",
        "ipu_tf.device.jax_events",
    ),
)

#: Every change.
PATCHES: tuple[Patch, ...] = (*TENSORFLOW, *KERAS, *COMPATIBILITY, *BASIC)
