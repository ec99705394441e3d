"""Private API of TensorFlow, Keras and JAX that the project uses still exists and behaves as expected.

A test that fails here names the file to mend and the thing that moved.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf
import keras_ipu
from tests.helpers.keras_2_modules import lacks_keras_2
from tests.project.test_layering import PRIVATE_API, PRIVATE_API_FILES, ROOT


def private_imports(file: str) -> list[tuple[str, str]]:
    """(module, name) of everything a file imports from private modules."""
    tree = ast.parse((ROOT / file).read_text())
    return [
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PRIVATE_API)
        for alias in node.names
    ]


@pytest.mark.parametrize(
    ("module", "name"), sorted({pair for file in PRIVATE_API_FILES for pair in private_imports(file)})
)
def test_what_is_imported_exists(module: str, name: str) -> None:
    try:
        found = importlib.import_module(module)
        assert hasattr(found, name) or importlib.import_module(f"{module}.{name}")
    except ImportError as error:
        pytest.fail(f"{module}.{name} has moved: {error}")


#: Libraries whose private methods are looked for.
LIBRARIES = {"tensorflow", "keras", "keras_hub", "jax"}
_STRATEGY = "tensorflow.python.distribute.distribute_lib:StrategyExtendedV2"
_VARIABLE = "tensorflow.python.ops.resource_variable_ops:BaseResourceVariable"
_EPOCHS = "keras.src.trainers.epoch_iterator:EpochIterator"
_OPTIMIZER = "keras.src.optimizers.base_optimizer:BaseOptimizer"
#: Private methods of other libraries' classes that classes here replace, by class: the libraries call them.
OVERRIDES = {
    "ipu_tf.ipu_strategy:_IPUExtended": (
        _STRATEGY,
        {
            *("_batch_reduce_to", "_create_variable", "_distribute_datasets_from_function", "_in_multi_worker_mode"),
            *("_experimental_distribute_dataset", "_local_results", "_num_replicas_in_sync", "_reduce_to", "_update"),
        },
    ),
    "ipu_tf.ipu_strategy:_IPUExtended of TensorFlow 1": (
        "tensorflow.python.distribute.distribute_lib:StrategyExtendedV1",
        {"_call_for_each_replica", "_update_non_slot"},
    ),
    "ipu_tf._strategy.instance_variables:_OfStrategy": (_VARIABLE, {"_restore_from_tensors", "_serialize_to_tensors"}),
    "ipu_tf._strategy.instance_variables:IPUSyncOnReadVariable": (_VARIABLE, {"_read_variable_op"}),
    "keras_ipu.addons.optimizers.ipu_optimizer_base:IpuOptimizerBase": (_OPTIMIZER, {"_backend_update_step"}),
    "keras_ipu.training.common.epoch_iterator:IPUEpochIterator": (_EPOCHS, {"_enumerate_iterator", "_get_iterator"}),
    "keras_ipu.training.common.eager_runs:_DenseEpochIterator": (_EPOCHS, {"_get_iterator"}),
    "keras_ipu.training.jax.trainer:JaxEpochIterator": (_EPOCHS, {"_get_iterator"}),
}


@pytest.mark.parametrize("by", OVERRIDES)
def test_private_methods_that_are_overridden_exist(by: str) -> None:
    of, names = OVERRIDES[by]
    module, _, name = of.partition(":")
    base = getattr(importlib.import_module(module), name)
    assert names <= {each for each, value in vars(base).items() if inspect.isfunction(value) or _is_property(value)}


def test_private_methods_are_overridden_in_a_list_of_classes_only() -> None:
    listed: dict[str, set[str]] = {}
    for by, (_, names) in OVERRIDES.items():
        listed.setdefault(by.partition(" ")[0], set()).update(names)
    found: dict[str, set[str]] = {}
    for kind in _classes():
        names = {name for name, value in vars(kind).items() if inspect.isfunction(value) or _is_property(value)}
        foreign = [base for base in kind.__mro__ if base.__module__.partition(".")[0] in LIBRARIES]
        private = {name for base in foreign for name in names & vars(base).keys() if _is_private(name)}
        if private:
            found[f"{kind.__module__}:{kind.__qualname__}"] = private
    assert found == listed


def _is_property(value: object) -> bool:
    return isinstance(value, property)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _classes() -> Iterator[type]:
    """Every class of the packages."""
    for package in (ipu_tf, keras_ipu):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            # The native kernels, where they are built, are no Python module: they are loaded for XLA.
            if not module.name.endswith(("__main__", "._kernels")) and not lacks_keras_2(module.name):
                values = vars(importlib.import_module(module.name)).values()
                yield from (each for each in values if inspect.isclass(each) and each.__module__ == module.name)


def test_a_write_moves_a_variable_to_other_memory_while_its_tensor_is_held() -> None:
    """`Residency` recognises a host's write by this."""
    from ipu_tf.lowering.tensorflow.variables import TensorFlowVariable

    for value in (1.0, [1.0, 2.0], np.int64(3), tf.constant(1.0, tf.bfloat16)):
        variable = tf.Variable(value)
        host = TensorFlowVariable(variable)
        view, anchor = TensorFlowVariable.snapshots([host])[0]
        again, _ = TensorFlowVariable.snapshots([host])[0]
        assert view.ctypes.data == again.ctypes.data
        for write in (variable.assign, variable.assign_add):
            write(tf.ones_like(variable))
            after, newer = TensorFlowVariable.snapshots([host])[0]
            assert after.ctypes.data != view.ctypes.data
            view, anchor = after, newer
        assert anchor is not None


def test_a_function_whose_variables_are_made_outside_of_its_trace_is_traced_once() -> None:
    from ipu_tf.lowering.tensorflow.tf_private import variables_outside_trace

    made: list[tf.Variable] = []

    @tf.function
    def step(value: tf.Tensor) -> tf.Tensor:
        traces.append(1)
        if not made:
            with variables_outside_trace():
                made.append(tf.Variable(lambda: tf.constant(2.0)))
        return made[0].assign_add(value)

    traces: list[int] = []
    assert [float(step(tf.constant(1.0))) for _ in range(2)] == [3.0, 4.0]
    assert traces == [1]


def test_tensorflow_notes_that_autograph_has_rewritten_what_runs() -> None:
    from ipu_tf.lowering.tensorflow.tf_stacks import _in_rewritten_function

    found = {}
    for rewritten in (False, True):

        def function() -> None:
            found[rewritten] = _in_rewritten_function()  # noqa: B023 - called at once

        tf.function(function, autograph=rewritten).get_concrete_function()
    assert found == {False: False, True: True}, "`tf_stack` has changed: see `ipu_tf/lowering/tensorflow/tf_stacks.py`"


def test_variables_read_together_are_those_read_one_by_one() -> None:
    from ipu_tf.lowering.tensorflow import tf_values
    from ipu_tf.lowering.tensorflow.variables import TensorFlowVariable

    values = (1.0, [1.0, 2.0], np.int64(3), tf.constant(1.0, tf.bfloat16), [True])
    hosts = [TensorFlowVariable(tf.Variable(value)) for value in values]
    with tf.Graph().as_default(), tf.device("/device:IPU:7"):
        together = [view for view, _ in TensorFlowVariable.snapshots(hosts)]
    for host, view in zip(hosts, together, strict=True):
        tensor = host.variable.read_value()
        alone = tf_values.tensor_memory(tensor)
        assert (view.ctypes.data, view.dtype) == (alone.ctypes.data, alone.dtype)
        np.testing.assert_array_equal(view, alone)
    assert TensorFlowVariable.snapshots([]) == []


def test_elements_read_without_next_are_those_of_next() -> None:
    from ipu_tf.lowering.tensorflow import tf_values

    none = tf.experimental.Optional.empty(tf.TensorSpec([]))
    numbers = tf.data.Dataset.range(3).map(lambda i: {"b": (tf.cast(i, tf.float32), none), "a": tf.fill([i, 2], i)})
    read = tf_values.element_reader(tf_values.stock_iterator(numbers))
    assert read is not None
    for element in numbers:
        with tf.Graph().as_default(), tf.device("/device:IPU:7"):
            found = read()
        for one, other in zip(found, (element["a"], element["b"][0]), strict=True):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(StopIteration):
        read()


def test_what_a_dataset_raises_is_raised_where_it_is_read() -> None:
    from ipu_tf.lowering.tensorflow import tf_values

    bad = tf.data.Dataset.range(2).map(lambda i: tf.debugging.check_numerics(1.0 / tf.cast(i, tf.float32), "no number"))
    read = tf_values.element_reader(tf_values.stock_iterator(bad))
    assert read is not None
    with pytest.raises(tf.errors.InvalidArgumentError, match="no number"):
        read()


def test_only_tensors_are_read_without_next() -> None:
    from ipu_tf.lowering.tensorflow import tf_values

    ragged = tf.data.Dataset.from_tensors(tf.ragged.constant([[1], [2, 3]]))
    assert tf_values.element_reader(tf_values.stock_iterator(ragged)) is None
    assert tf_values.element_reader(iter([np.zeros(2)])) is None


def test_a_marker_survives_lowering() -> None:
    from ipu_tf.lowering.stablehlo.module import custom_call_target, walk
    from ipu_tf.lowering.tensorflow import markers
    from ipu_tf.lowering.tensorflow.trace import lower

    def program(x: tf.Tensor) -> None:
        markers.enqueue_marker("queue", [x])

    inner = tf.function(program, autograph=False)
    outer = tf.function(lambda x: inner(x) and None, autograph=False)
    module = lower(outer.get_concrete_function(tf.TensorSpec([2]))).module
    targets = [custom_call_target(operation) for operation in walk(module.main, module.functions)]
    assert targets.count("ipu.outfeed") == 1


def test_state_aliases_are_read() -> None:
    from ipu_tf.lowering.tensorflow.trace import lower

    a, b = tf.Variable(1.0), tf.Variable(2.0)
    function = tf.function(lambda x: (b.assign(a + x), x)[1], autograph=False)
    lowered = lower(function.get_concrete_function(tf.TensorSpec([])))
    [(result, parameter)] = lowered.module.aliases.items()
    assert result == 1 and lowered.captures[parameter - 1] is b


def test_jax_runs_again_after_a_failed_ordered_callback() -> None:
    from jax.experimental import io_callback

    from ipu_tf.device.feeds.jax_effects import reset_ordered_effects, silence_callback_errors

    def fails() -> np.ndarray:
        raise KeyError("broken")

    program = jax.jit(lambda: io_callback(fails, jax.ShapeDtypeStruct((), np.float32), ordered=True))
    with silence_callback_errors(), pytest.raises(Exception, match="broken"):
        jax.block_until_ready(program())
    reset_ordered_effects()
    fine = jax.jit(lambda: io_callback(lambda: np.float32(2), jax.ShapeDtypeStruct((), np.float32), ordered=True))
    assert float(fine()) == 2.0
    jax.effects_barrier()


@pytest.mark.parametrize("ordered", [False, True])
def test_callbacks_are_told_from_other_effects(ordered: bool) -> None:
    from jax.experimental import io_callback

    from ipu_tf.device.feeds.jax_effects import any_calls_host

    def effects(function: Any) -> Any:
        return jax.make_jaxpr(function, axis_env=[("replicas", 2)])(np.float32(1)).jaxpr.effects

    assert effects(summed := lambda x: jax.lax.psum(x, "replicas")) and not any_calls_host(effects(summed))
    assert any_calls_host(effects(lambda x: io_callback(print, None, x, ordered=ordered)))


def test_an_executable_from_elsewhere_takes_the_place_of_compiling() -> None:
    """JAX asks its client to compile, and takes everything else from the lowered function."""
    from ipu_tf.device.cache.jax_compilation import Compilation, compile_through

    codes: list[bytes] = []

    def compiled(compilation: Compilation) -> object:
        executable = compilation.compile()
        codes.append(compilation.code_of(executable))
        assert compilation.options_bytes
        return executable

    def lowered(factor: float) -> jax.stages.Lowered:
        return jax.jit(lambda x: [x * factor]).lower(np.float32(0))

    assert float(compile_through(lowered(2.0), compiled)(np.float32(3))[0]) == 6
    # The code of another program, so that it shows that this was run.
    made = compile_through(lowered(5.0), lambda compilation: compilation.load(codes[0]))
    assert float(made(np.float32(3))[0]) == 6
    with pytest.raises(jax.errors.JaxRuntimeError):
        compile_through(lowered(2.0), lambda compilation: compilation.load(b"none"))


def test_jax_keeps_a_store_of_keys_and_values_for_several_processes() -> None:
    """What `coordination.py` calls; `tests/ipu_tf/device/instances` runs it in two processes."""
    from jax._src import distributed

    client = distributed._jax.DistributedRuntimeClient
    methods = ("key_value_set", "key_value_set_bytes", "key_value_try_get", "blocking_key_value_get_bytes")
    more = ("key_value_delete", "key_value_dir_get", "get_live_nodes")
    assert {name for name in (*methods, *more) if not hasattr(client, name)} == set()
    assert distributed.global_state.client is None
    for name in ("jax_enable_preemption_service", "jax_enable_recoverability"):
        assert hasattr(jax.config, name)
