"""Imports between layers go downwards only; device code is free of TensorFlow; private API has its listed files."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("ipu_tf", "keras_ipu", "pytest_ipu", "examples", "benchmarks")

#: Layer -> the layers it may import from, itself included.
MAY_IMPORT = {
    "state": {"state"},
    "patches": {"patches", "state"},
    "device": {"device", "patches", "state"},
    "lowering": {"lowering", "device", "patches", "state"},
    "surface": {"surface", "lowering", "device", "patches", "state"},
    "keras_ipu": {"keras_ipu", "surface", "patches", "state"},
    "pytest_ipu": {"pytest_ipu", "surface"},
    "examples": {"examples", "keras_ipu", "surface"},
    "benchmarks": {"benchmarks", "examples", "keras_ipu", "surface", "lowering", "device"},
}
#: Imports upwards, each with its reason.
EXCEPTIONS = {
    # The three lines of a user's script do not name keras_ipu, yet models of the scope must not stay on the CPU.
    ("ipu_tf/_strategy/hooks.py", "keras_ipu"),
    # A program for Keras 2 imports Keras alone, and gets what Keras 2 had.
    ("ipu_tf/_compat/aliases.py", "keras_ipu.legacy"),
}
#: What `keras_ipu` may use of `ipu_tf` beyond its public modules.
PRIVATE_ENTRY_POINTS = frozenset(
    {
        "ipu_tf._checkpoints.checkpoint_file",
        "ipu_tf._checkpoints.checkpoint_folder",
        "ipu_tf._checkpoints.plain_data",
        "ipu_tf._checkpoints.random_state",
        "ipu_tf._checkpoints.tensorflow_values",
        "ipu_tf._config.argument_table",
        "ipu_tf._config.base",
        "ipu_tf._config.library_options",
        "ipu_tf._config.state",
        "ipu_tf._config.synthetic_data",
        "ipu_tf._config.treatment",
        "ipu_tf._config.types",
        "ipu_tf._arguments.counts",
        "ipu_tf._ops.packed_product",
        "ipu_tf._data.narrow_dtypes",
        "ipu_tf._loops.feature_names",
        "ipu_tf._loops.interruption",
        "ipu_tf._loops.jax_feed",
        "ipu_tf._loops.jax_step",
        "ipu_tf._loops.output_stream",
        "ipu_tf._loops.batch_feed",
        "ipu_tf._loops.array_feed",
        "ipu_tf._loops.step_loop",
        "ipu_tf._loops.tensor_feed",
        "ipu_tf._loops.tensorflow_step",
        "ipu_tf._patches.import_hooks",
        "ipu_tf._patches.installation",
        "ipu_tf._pipelining.pipeline_table",
        "ipu_tf._pipelining.stage_boundaries",
        "ipu_tf._serving.export",
        "ipu_tf._serving.export_checks",
        "ipu_tf._sessions.session_devices",
        "ipu_tf._state.context",
        "ipu_tf._state.once",
        "ipu_tf._state.registry",
        "ipu_tf._strategy.hooks",
        "ipu_tf._strategy.run",
        "ipu_tf._strategy.auto_shard",
        "ipu_tf._tracing.caller_location",
        "ipu_tf._tracing.queue_arguments",
        "ipu_tf._state.trace_lock",
        "ipu_tf._training.replication",
        "ipu_tf._training.weight_update",
    }
)
#: What the device layer may import from outside of the project and the standard library.
DEVICE_LIBRARIES = {"jax", "numpy"}
PRIVATE_API = (
    "tensorflow.python",
    "tensorflow.compiler",
    "tensorflow.core",
    "keras.src",
    "keras._tf_keras",
    "jax._src",
    "jaxlib",
)
PRIVATE_API_FILES = {
    "ipu_tf/lowering/tensorflow/tf1_private.py": ("tensorflow",),
    "ipu_tf/lowering/tensorflow/tf_patches.py": ("tensorflow",),
    "ipu_tf/lowering/tensorflow/tf_eager_patches.py": ("tensorflow",),
    "ipu_tf/lowering/tensorflow/tf_session_patches.py": ("tensorflow",),
    "ipu_tf/lowering/tensorflow/tf_private.py": ("tensorflow",),
    "ipu_tf/lowering/tensorflow/tf_graphs.py": ("tensorflow",),
    "ipu_tf/lowering/tensorflow/tf_stacks.py": ("tensorflow",),
    "ipu_tf/lowering/tensorflow/tf_values.py": ("tensorflow",),
    "ipu_tf/lowering/jax/jax_private.py": ("jax", "jaxlib"),
    "ipu_tf/device/feeds/jax_effects.py": ("jax",),
    "ipu_tf/device/files/exported_module.py": ("jax", "jaxlib"),
    "ipu_tf/device/cache/jax_compilation.py": ("jax", "jaxlib"),
    "ipu_tf/device/instances/coordination.py": ("jax",),
    "keras_ipu/stock/arrays.py": ("keras",),
    "keras_ipu/stock/graphs.py": ("keras",),
    "keras_ipu/stock/patches.py": ("keras",),
    "keras_ipu/stock/models.py": ("keras",),
}


def layer_of(module: str) -> str | None:
    """The layer of a module of ours; None for modules of others."""
    parts = module.split(".")
    if parts[0] != "ipu_tf":
        return parts[0] if parts[0] in MAY_IMPORT or parts[0] == "tests" else None
    tiers = {"device": "device", "lowering": "lowering", "_patches": "patches", "_state": "state"}
    return tiers.get(parts[1], "surface") if parts[1:] else "surface"


def imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[tuple[int, str, str]]:
    """(line, module, name taken from it or "") of each import, those by `import_module("...")` too."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                source = ".".join([*package[: len(package) + 1 - node.level], source]).rstrip(".")
            yield from ((node.lineno, source, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0]
            if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
                yield node.lineno, str(first.value), ""


def below(module: str, packages: tuple[str, ...]) -> bool:
    """Whether `module` is one of `packages` or inside one."""
    return any(f"{module}.".startswith(package + ".") for package in packages)


def complaint(importer: str, file: str, source: str, name: str) -> str | None:
    """The rule that `importer`, in `file`, breaks by `from source import name`; None if it breaks none."""
    wanted = f"{source}.{name}" if name else source
    layer, other = layer_of(importer), layer_of(wanted)
    assert layer is not None
    if below(wanted, PRIVATE_API) and not below(wanted, PRIVATE_API_FILES.get(file, ())):
        return f"private API {wanted}"
    if other is not None and other not in MAY_IMPORT[layer] and (file, wanted) not in EXCEPTIONS:
        return f"{layer} imports {other}"
    if (
        layer == "keras_ipu"
        and other in ("surface", "patches", "state")
        and is_private(wanted)
        and not below(wanted, (*PRIVATE_ENTRY_POINTS,))
    ):
        return f"keras_ipu imports {wanted}, which is neither public nor one of PRIVATE_ENTRY_POINTS"
    top = wanted.split(".")[0]
    private = set(PRIVATE_API_FILES.get(file, ()))
    libraries = {"device": DEVICE_LIBRARIES | private, "patches": private, "state": private}
    if layer in libraries and other is None and top not in libraries[layer] | sys.stdlib_module_names:
        return f"{layer} imports {top}"
    return None


def is_private(name: str) -> bool:
    """Whether a dotted name has a part with a leading underscore, dunder names excepted."""
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def complaints(file: str, text: str) -> list[str]:
    """Every complaint about a file, given its path from the project's root and its text."""
    path = Path(file)
    is_package = path.name == "__init__.py"
    module = ".".join((path.parent if is_package else path.with_suffix("")).parts)
    found = imports(ast.parse(text, filename=file), module, is_package)
    wrong = ((line, complaint(module, file, source, name)) for line, source, name in found)
    return [f"{file}:{line}: {what}" for line, what in wrong if what is not None]


def project_files() -> list[str]:
    """Every Python file of the packages, by its path from the project's root."""
    return sorted(str(path.relative_to(ROOT)) for name in PACKAGES for path in (ROOT / name).rglob("*.py"))


def test_the_project_keeps_its_layers() -> None:
    files = project_files()
    assert "ipu_tf/device/counters.py" in files
    wrong = [line for file in files for line in complaints(file, (ROOT / file).read_text())]
    assert not wrong, "\n".join(wrong)


def test_private_api_files_exist_only_where_they_are_used() -> None:
    """A listed file that imports nothing private would be a hole in the rule."""
    for file in filter(lambda file: (ROOT / file).exists(), PRIVATE_API_FILES):
        found = imports(ast.parse((ROOT / file).read_text()), "module", is_package=False)
        assert any(below(f"{source}.{name}", PRIVATE_API) for _, source, name in found), file


def test_every_private_entry_point_is_used() -> None:
    used = set()
    for file in filter(lambda file: file.startswith("keras_ipu/"), project_files()):
        found = imports(ast.parse((ROOT / file).read_text()), "keras_ipu.module", is_package=False)
        used |= {
            entry for _, source, name in found for entry in PRIVATE_ENTRY_POINTS if below(f"{source}.{name}", (entry,))
        }
    assert used == PRIVATE_ENTRY_POINTS


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        ("ipu_tf/device/a.py", "import tensorflow as tf", "device imports tensorflow"),
        ("ipu_tf/device/a.py", "def f():\n    from keras import ops", "device imports keras"),
        ("ipu_tf/device/a.py", "from ipu_tf import loops", "device imports surface"),
        ("ipu_tf/device/a.py", "from ..lowering import graph", "device imports lowering"),
        ("ipu_tf/device/b/__init__.py", "from ...lowering.graph import x", "device imports lowering"),
        ("ipu_tf/lowering/a.py", "import ipu_tf.config", "lowering imports surface"),
        ("ipu_tf/lowering/a.py", "from ipu_tf.config import IPUConfig", "lowering imports surface"),
        ("ipu_tf/config.py", "import keras_ipu", "surface imports keras_ipu"),
        ("ipu_tf/config.py", "importlib.import_module('keras_ipu.x')", "surface imports keras_ipu"),
        ("ipu_tf/config.py", "from examples import digits_cnn", "surface imports examples"),
        ("ipu_tf/config.py", "from tensorflow.python.framework import ops", "private API"),
        ("ipu_tf/config.py", "from tensorflow import python", "private API"),
        ("ipu_tf/lowering/tensorflow/tf_private.py", "import keras.src.backend", "private API"),
        ("ipu_tf/lowering/jax/jax_private.py", "import tensorflow.python.eager", "private API"),
        ("keras_ipu/layers.py", "from ipu_tf.lowering import graph", "keras_ipu imports lowering"),
        ("keras_ipu/layers.py", "from ipu_tf import device", "keras_ipu imports device"),
        ("keras_ipu/layers.py", "from ipu_tf.config import _hidden", "neither public"),
        ("keras_ipu/layers.py", "from ipu_tf._hidden import x", "neither public"),
        ("keras_ipu/layers.py", "from ipu_tf._loops.step_outputs import x", "neither public"),
        ("keras_ipu/layers.py", "from ipu_tf._patches.table import PATCHES", "neither public"),
        ("keras_ipu/layers.py", "from ipu_tf._state import numbers", "neither public"),
        ("keras_ipu/layers.py", "from keras.src import backend", "private API"),
        ("examples/a.py", "from ipu_tf.device.counters import COUNTERS", "examples imports device"),
        ("ipu_tf/config.py", "import tests.conftest", "surface imports tests"),
    ],
)
def test_a_breach_is_found(file: str, text: str, what: str) -> None:
    found = complaints(file, text)
    assert len(found) == 1
    assert what in found[0]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("ipu_tf/device/a.py", "import jax.numpy as jnp, numpy as np, threading\nfrom . import b"),
        ("ipu_tf/device/b/__init__.py", "from .. import counters\nfrom .c import d"),
        ("ipu_tf/lowering/a.py", "import tensorflow as tf\nfrom ipu_tf.device.counters import COUNTERS"),
        ("ipu_tf/lowering/tensorflow/tf_private.py", "from tensorflow.python.framework import ops"),
        ("ipu_tf/lowering/jax/jax_private.py", "from jaxlib.mlir import ir\nimport jax._src.core"),
        ("ipu_tf/ops/nn_ops.py", "from ipu_tf.lowering import graph\nfrom ..device import counters"),
        ("keras_ipu/a.py", "from ipu_tf import loops\nfrom ipu_tf.ops.nn_ops import gelu\nfrom .b import c"),
        ("keras_ipu/a.py", "from ipu_tf._loops.step_loop import StepLoop"),
        ("keras_ipu/stock/models.py", "from keras.src import backend"),
        ("examples/a.py", "import keras_ipu\nfrom ipu_tf.config import IPUConfig"),
    ],
)
def test_what_is_allowed_is_not_a_breach(file: str, text: str) -> None:
    assert complaints(file, text) == []
