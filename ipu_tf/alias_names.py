"""Which of our modules stands behind each of Graphcore's module names."""

from __future__ import annotations

#: Graphcore's module -> ours. A name below an entry leads below its target; the longest entry decides.
#: The first entry for each of our packages is the name that errors tell.
ALIASES: dict[str, str] = {
    "tensorflow.python.ipu": "ipu_tf",
    # One Keras has three module objects: `tf.keras`, `import tensorflow.keras` and `import keras`.
    "keras.ipu": "keras_ipu",
    "keras._tf_keras.keras.ipu": "keras_ipu",
    "tensorflow.keras.ipu": "keras_ipu",
    # Up to SDK 2.5 the Keras part lay inside the TensorFlow part, and held the layers of today's addons.
    "tensorflow.python.ipu.keras": "keras_ipu",
    "tensorflow.python.ipu.keras.layers": "keras_ipu.addons.layers",
    "tensorflow.python.ipu.keras.losses": "keras_ipu.addons.losses",
    "ipu_tensorflow_addons": "keras_ipu.addons",
    "ipu_tensorflow_addons.keras": "keras_ipu.addons",
    "popdist": "ipu_tf.popdist",
    "tensorflow.compiler.plugin.poplar": "ipu_tf.poplar",
    # TensorFlow dropped its estimators; compat.v1 has two module objects.
    "tensorflow.estimator": "ipu_tf.tf_estimator",
    "tensorflow.compat.v1.estimator": "ipu_tf.tf_estimator",
    "tensorflow._api.v2.compat.v1.estimator": "ipu_tf.tf_estimator",
    "tensorflow.python.estimator": "ipu_tf.tf_estimator",
    "tensorflow.python.keras.datasets": "keras.datasets",
}

#: Entries of `ALIASES` that yield to a module of that name which something else provides.
YIELDING = frozenset({"tensorflow.python.keras.datasets"})

#: Packages that exist only to hold an alias, because stock TensorFlow has no such folder.
FOLDERS = frozenset({"tensorflow.compiler.plugin"})

#: Our packages.
PACKAGES = frozenset({"ipu_tf", "keras_ipu"})


def alias_entry(name: str, aliases: dict[str, str]) -> str | None:
    """The longest entry of `aliases` that is `name` or a package above it; None when there is none.

    Example:
        >>> alias_entry("tensorflow.python.ipu.ops.nn_ops", ALIASES)
        'tensorflow.python.ipu'
    """
    while name:
        if name in aliases:
            return name
        name = name.rpartition(".")[0]
    return None


def real_name(name: str, aliases: dict[str, str]) -> str | None:
    """Our name of Graphcore's module `name`; None when `aliases` does not speak of it.

    Example:
        >>> real_name("tensorflow.python.ipu.ops.nn_ops", ALIASES)
        'ipu_tf.ops.nn_ops'
    """
    entry = alias_entry(name, aliases)
    return None if entry is None else aliases[entry] + name[len(entry) :]


def graphcore_name(real: str, aliases: dict[str, str]) -> str | None:
    """Graphcore's name of a module inside one of our packages; None for modules of others.

    Example:
        >>> graphcore_name("ipu_tf.ops.nn_ops", ALIASES)
        'tensorflow.python.ipu.ops.nn_ops'
    """
    for alias, target in aliases.items():
        if target in PACKAGES and real.startswith(target + "."):
            return alias + real[len(target) :]
    return None
