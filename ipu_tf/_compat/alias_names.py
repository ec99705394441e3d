"""Table of Graphcore's module names and the modules of this package behind them."""

from __future__ import annotations

from ipu_tf._compat.alias_names_keras_2 import KERAS_2, KERAS_2_ITSELF

#: Inner modules of TensorFlow that went elsewhere, or went away with the Keras that lay in TensorFlow.
MOVED: dict[str, str] = {
    "keras.utils.tf_inspect": "tensorflow.python.util.tf_inspect",
    "tensorflow.compat.v1.keras": "keras._tf_keras.keras",
    "tensorflow.python.distribute.distribution_strategy_context": "tensorflow.python.distribute.distribute_lib",
    "tensorflow.python.keras.applications": "keras.applications",
    "tensorflow.python.keras.datasets": "keras.datasets",
    "tensorflow.python.keras.preprocessing": "keras.preprocessing",
    "tensorflow.python.training.tracking": "tensorflow.python.trackable",
    "tensorflow.python.training.training_ops": "tensorflow.python.ops.gen_training_ops",
    "tensorflow.pywrap_tensorflow": "tensorflow.python.pywrap_tensorflow",
}

#: Packages beside TensorFlow that programs import, where they are not installed -> ours.
NEIGHBOURS: dict[str, str] = {
    "horovod.tensorflow": "ipu_tf.horovod",
    "mpi4py": "ipu_tf._compat.mpi",
    "tensorflow_addons": "keras_ipu.legacy.tensorflow_addons",
    "tensorflow_addons.optimizers.weight_decay_optimizers": "keras_ipu.legacy.tensorflow_addons.optimizers",
}

_WITH_GRADIENTS = (
    "all_to_all_op",
    "control_flow_ops",
    "cross_replica_ops",
    "embedding_ops",
    "functional_ops",
    "grad_util_ops",
    "internal_ops",
    "nn_ops",
    "normalization_ops",
    "pipelining_ops",
    "rand_ops",
    "rnn_ops",
    "slicing_ops",
    "within_replica_ops",
)
#: Graphcore registers gradients in modules of their own; ours are part of the ops.
GRADIENT_MODULES = {f"tensorflow.python.ipu.ops.{name}_grad": f"ipu_tf.ops.{name}" for name in _WITH_GRADIENTS}

#: Graphcore's module -> ours. A name below an entry leads below its target; the longest entry decides.
#: The first entry for each of our packages is the name that errors tell.
ALIASES: dict[str, str] = {
    **GRADIENT_MODULES,
    "tensorflow.python.ipu": "ipu_tf",
    # One Keras has three module objects: `tf.keras`, `import tensorflow.keras` and `import keras`.
    "keras.ipu": "keras_ipu",
    "keras._tf_keras.keras.ipu": "keras_ipu",
    "tensorflow.keras.ipu": "keras_ipu",
    # ... and where it is Keras 2, two.
    "tf_keras.ipu": "keras_ipu",
    "tf_keras.api._v2.keras.ipu": "keras_ipu",
    # Up to SDK 2.5 the Keras part lay inside the TensorFlow part, and held the layers of today's addons.
    "tensorflow.python.ipu.keras": "keras_ipu",
    "tensorflow.python.ipu.keras.layers": "keras_ipu.addons.layers",
    "tensorflow.python.ipu.keras.losses": "keras_ipu.addons.losses",
    "ipu_tensorflow_addons": "keras_ipu.addons",
    "ipu_tensorflow_addons.keras": "keras_ipu.addons",
    "ipu_tensorflow_addons.layers": "keras_ipu.addons.v1.layers",
    "ipu_tensorflow_addons.layers.rnn_ops": "ipu_tf.ops.rnn_ops",
    "ipu_tensorflow_addons.v1.layers.rnn_ops": "ipu_tf.ops.rnn_ops",
    "libpvti": "ipu_tf.libpvti",
    "gcipuinfo": "ipu_tf.gcipuinfo",
    "popdist": "ipu_tf.popdist",
    "popef": "ipu_tf.popef",
    "pva": "ipu_tf.pva",
    "tensorflow.compiler.plugin.poplar": "ipu_tf.poplar",
    "tensorflow.contrib": "ipu_tf._compat.tf_contrib",
    "tensorflow.contrib.framework.python": "ipu_tf._compat.tf_contrib",
    "tensorflow.contrib.framework.python.framework.checkpoint_utils": "ipu_tf._compat.tf_contrib.framework",
    "tensorflow.contrib.ipu": "ipu_tf",
    # TensorFlow dropped its estimators; compat.v1 has two module objects.
    "tensorflow.estimator": "ipu_tf.tf_estimator",
    "tensorflow.compat.v1.estimator": "ipu_tf.tf_estimator",
    "tensorflow._api.v2.compat.v1.estimator": "ipu_tf.tf_estimator",
    "tensorflow.python.estimator": "ipu_tf.tf_estimator",
    "tensorflow_estimator": "ipu_tf.tf_estimator",
    "tensorflow_estimator.python": "ipu_tf.tf_estimator",
    "tensorflow_estimator.python.estimator": "ipu_tf.tf_estimator",
    "tensorflow_estimator.python.estimator.mode_keys": "ipu_tf.tf_estimator.model_fn",
    **MOVED,
    **KERAS_2,
    **NEIGHBOURS,
}

#: Entries of `ALIASES` that yield to a module of that name which something else provides.
YIELDING = frozenset({*MOVED, *KERAS_2, *NEIGHBOURS})

#: Packages that exist only to hold an alias, because nothing else has such a folder.
FOLDERS = frozenset({"horovod", "tensorflow.compiler.plugin"})

#: Our packages.
PACKAGES = frozenset({"ipu_tf", "keras_ipu"})


def alias_entry(name: str, aliases: dict[str, str]) -> str | None:
    """Returns the longest entry of `aliases` that is `name` or a package above it, or None.

    Example:
        >>> alias_entry("tensorflow.python.ipu.ops.nn_ops", ALIASES)
        'tensorflow.python.ipu'
    """
    while name:
        if name in aliases:
            return name
        name = name.rpartition(".")[0]
    return None


def aliased_module(name: str, aliases: dict[str, str], keras_2: bool) -> str:
    """Returns this package's name of Graphcore's module `name`, which has an entry.

    Args:
        name: the module.
        aliases: the entries.
        keras_2: whether the program is for Keras 2 itself, `tf_keras`.

    Example:
        >>> aliased_module("keras.engine.input_spec", ALIASES, keras_2=True)
        'tf_keras.src.engine.input_spec'
    """
    table = KERAS_2_ITSELF if keras_2 and alias_entry(name, KERAS_2_ITSELF) else aliases
    found = real_name(name, table)
    assert found is not None
    return found


def real_name(name: str, aliases: dict[str, str]) -> str | None:
    """Returns this package's name of Graphcore's module `name`; None if `aliases` has no entry for it.

    Example:
        >>> real_name("tensorflow.python.ipu.ops.nn_ops", ALIASES)
        'ipu_tf.ops.nn_ops'
    """
    entry = alias_entry(name, aliases)
    return None if entry is None else aliases[entry] + name[len(entry) :]


def graphcore_name(real: str, aliases: dict[str, str]) -> str | None:
    """Returns Graphcore's name of a module of this package; None for third-party modules.

    Example:
        >>> graphcore_name("ipu_tf.ops.nn_ops", ALIASES)
        'tensorflow.python.ipu.ops.nn_ops'
    """
    for alias, target in aliases.items():
        if target in PACKAGES and real.startswith(target + "."):
            return alias + real[len(target) :]
    return None
