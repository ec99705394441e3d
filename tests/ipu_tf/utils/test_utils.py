"""`ipu.utils`: seeds, devices, values of variables in files, and the functions that configured IPUs up to SDK 2.3."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import utils
from ipu_tf._compat.legacy_config import ARGUMENTS
from ipu_tf.config import (
    DeviceConnectionType,
    EmulationWarning,
    IPUConfig,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    StochasticRoundingBehaviour,
    reset_ipu_configuration,
)
from ipu_tf.emulation import EmulationError


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    """Nothing is configured, before and after."""
    reset_ipu_configuration()
    yield
    reset_ipu_configuration()


def configured(*ipus: int) -> Any:
    """A strategy on the first of devices with so many IPUs."""
    config = IPUConfig()
    config.auto_select_ipus = list(ipus)
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy()


def test_every_name_is_there() -> None:
    for name in utils.__all__:
        assert getattr(utils, name).__doc__
    assert set(ARGUMENTS) <= set(utils.__all__)


def test_ipus_in_a_device() -> None:
    assert utils.get_num_of_ipus_in_device("/device:IPU:0") == 1
    configured(2, 4)
    assert [utils.get_num_of_ipus_in_device(f"/device:IPU:{k}") for k in (0, 1)] == [2, 4]
    with pytest.raises(tf.errors.InvalidArgumentError, match="There is no /device:IPU:2"):
        utils.get_num_of_ipus_in_device("/device:IPU:2")
    with pytest.raises(ValueError, match="Wanted an IPU device"):
        utils.get_num_of_ipus_in_device("/device:CPU:0")


draw = tf.function(lambda: tf.random.normal([4]))


def drawn(strategy: Any, times: int) -> list[list[float]]:
    """Numbers that several executions draw."""
    return [strategy.run(draw).numpy().tolist() for _ in range(times)]


@pytest.mark.parametrize("seed", [0, 7, -1, 2**40, np.int64(3)])
def test_a_seed_starts_the_sequence_again(seed: Any) -> None:
    strategy = configured(1, 1)
    utils.reset_ipu_seed(seed)
    first = drawn(strategy, 3)
    utils.reset_ipu_seed(9, device="/device:IPU:1")
    assert len({tuple(row) for row in first + drawn(strategy, 2)}) == 5
    with tf.Graph().as_default():
        utils.reset_ipu_seed(seed)
    assert drawn(strategy, 3) == first
    utils.reset_ipu_seed(int(seed) + 1)
    assert drawn(strategy, 1) != first[:1]


@pytest.mark.parametrize("identical", [True, False])
def test_replicas_draw_alike_or_not(identical: bool) -> None:
    strategy = configured(4)
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def step() -> None:
        queue.enqueue(tf.random.normal([4]))

    utils.reset_ipu_seed(1, experimental_identical_replicas=identical)
    function = tf.function(step)
    for _ in range(2):
        strategy.run(function)
    rows = queue.dequeue().numpy()
    assert rows.shape == (2, 4, 4)
    assert len({tuple(row) for row in rows[0]}) == (1 if identical else 4)
    assert not np.array_equal(rows[0], rows[1])


def test_seeds_are_whole_numbers() -> None:
    with pytest.raises(TypeError, match="float"):
        utils.reset_ipu_seed(1.5)  # type: ignore[arg-type]


def test_initialisation_is_on_the_host() -> None:
    with tf.Graph().as_default() as graph, ipu.scopes.ipu_scope("/device:IPU:0"):
        tf.compat.v1.get_variable("v", [2], use_resource=True)
        utils.move_variable_initialization_to_cpu()
        utils.move_variable_initialization_to_cpu(graph)
    with pytest.raises(TypeError, match="`graph` must be a tf.Graph or None. Received: 1"):
        utils.move_variable_initialization_to_cpu(1)


class TestSessions:
    """Values of a session's variables."""

    def test_they_survive(self, tmp_path: Path) -> None:
        file, values = tmp_path / "folder" / "weights.bin", {}
        with tf.Graph().as_default() as graph:
            for name, dtype in (("a", tf.float32), ("scope/b", tf.bfloat16), ("c", tf.int64)):
                tf.compat.v1.get_variable(name, initializer=tf.cast([[1, 2]], dtype), use_resource=True)
            with tf.compat.v1.Session() as session:
                session.run(tf.compat.v1.global_variables_initializer())
                values = {v.op.name: session.run(v) for v in tf.compat.v1.global_variables()}
                utils.export_variables_from_live_session(session, file)
            with tf.compat.v1.Session() as session:
                operations = len(graph.get_operations())
                utils.import_data_in_live_session(session, [str(file)])
                assert len(graph.get_operations()) == operations
                for variable in tf.compat.v1.global_variables():
                    assert np.array_equal(session.run(variable), values[variable.op.name])
                utils.import_data_in_live_session(session, file, output_folder=str(tmp_path / "saved"))
        assert {path.name for path in tmp_path.glob("saved*")} >= {"saved.index"}
        assert [path.name for path in file.parent.iterdir()] == ["weights.bin"]

    def test_inputs(self, tmp_path: Path) -> None:
        with tf.Graph().as_default():
            x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
            utils.export_inputs_to_file([x, x + 1], str(tmp_path / "inputs"), {x: [1.0, 2.0]})
        with np.load(tmp_path / "inputs") as file:
            assert file["x:0"].tolist() == [1, 2]
            assert file["add:0"].tolist() == [2, 3]
        with pytest.raises(ValueError, match="one tensor or more. Received: none"):
            utils.export_inputs_to_file([], str(tmp_path / "inputs"), {})


class TestModels:
    """Values of a model's variables."""

    @staticmethod
    def model(units: int = 2) -> Any:
        """A small model; layers have fixed names."""
        layers = [keras.Input((3,)), keras.layers.Dense(units, name="one"), keras.layers.Dense(1, name="two")]
        return keras.Sequential(layers, name="model")

    def test_they_survive(self, tmp_path: Path) -> None:
        first, second = self.model(), self.model()
        utils.export_variables_from_live_model(first, tmp_path / "w")
        utils.import_data_in_live_model(second, tmp_path / "w", output_folder=str(tmp_path / "saved"))
        for one, two in zip(first.get_weights(), second.get_weights(), strict=True):
            assert np.array_equal(one, two)
        assert (tmp_path / "saved" / "saved_model.pb").exists()

    def test_values_that_are_on_the_device_are_saved(self, tmp_path: Path) -> None:
        strategy = configured(1)
        with strategy.scope():
            model = self.model()
            model.compile("sgd", "mse")
            model.fit(np.ones((2, 3), np.float32), np.ones((2, 1), np.float32), batch_size=1, verbose=0)
            utils.export_variables_from_live_model(model, tmp_path / "w")
        with np.load(tmp_path / "w") as file:
            assert np.array_equal(file["model/one/kernel"], model.layers[0].kernel.numpy())

    def test_other_shapes_and_names(self, tmp_path: Path) -> None:
        utils.export_variables_from_live_model(self.model(), tmp_path / "w")
        with pytest.raises(
            ValueError, match=r"'model/one/kernel' has the shape \(3, 5\) and the dtype float32. Received: "
        ):
            utils.import_data_in_live_model(self.model(5), tmp_path / "w")
        other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="other")])
        with pytest.raises(
            ValueError, match=r"None of the variables has a value in these files. Wanted some of \['.*other/kernel'"
        ):
            utils.import_data_in_live_model(other, tmp_path / "w")

    def test_foreign_files_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "w").write_bytes(b"Poplar")
        with pytest.raises(EmulationError, match="is no file of this project"):
            utils.import_data_in_live_model(self.model(), tmp_path / "w")
        with pytest.raises(FileNotFoundError):
            utils.import_data_in_live_model(self.model(), tmp_path / "none")
        with pytest.raises(EmulationError, match="gc_metadata describes a program that Poplar compiled"):
            utils.export_variables_from_live_model(self.model(), tmp_path / "w", gc_metadata="x.json")

    def test_dtypes_that_numpy_lacks(self, tmp_path: Path) -> None:
        module = tf.Module()
        module.v = tf.Variable(np.array([1, 2], ml_dtypes.bfloat16), name="v")
        utils.export_variables_from_live_model(module, tmp_path / "w")
        module.v.assign([3, 4])
        utils.import_data_in_live_model(module, tmp_path / "w")
        assert module.v.numpy().tolist() == [1, 2]


def test_variables_need_names_of_their_own(tmp_path: Path) -> None:
    module = tf.Module()
    module.both = [tf.Variable(1.0, name="v"), tf.Variable(2.0, name="v")]
    with pytest.raises(ValueError, match=r"need different names to be told apart. Received: \['v', 'v'\]"):
        utils.export_variables_from_live_model(module, tmp_path / "w")


def test_datasets(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.range(5).map(lambda i: tf.cast(i, tf.float32))
    utils.export_dataset_to_file(dataset, str(tmp_path / "d"), 3, feed_name="f")
    utils.export_dataset_to_file(ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), str(tmp_path / "q"), 2)
    with np.load(tmp_path / "d") as file:
        assert file["f.0"].tolist() == [0, 1, 2]
    with np.load(tmp_path / "q") as file:
        [name] = [name for name in file.files if name.startswith("infeed_")]
        assert file[name].tolist() == [0, 1]
    with pytest.raises(TypeError, match="Wanted a tf.data.Dataset or an IPUInfeedQueue. Received: 3"):
        utils.export_dataset_to_file(3, "x", 1)


def test_reports_are_refused() -> None:
    for name in ("extract_compile_reports", "extract_execute_reports", "extract_poplar_serialized_graphs"):
        with pytest.raises(EmulationError, match=f"{name} takes what Poplar reports"):
            getattr(utils, name)([])


def attribute(config: IPUConfig, name: str) -> Any:
    """The value of an attribute by its full name."""
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


#: What to give for an argument, and what its attribute then is; by default True and True, or 2 and 2.
GIVEN: dict[str, tuple[Any, Any]] = {
    "scheduler_selection": ("PostOrder", SchedulingAlgorithm.POST_ORDER),
    "selection_order": (utils.SelectionOrder.HOOF, utils.SelectionOrder.HOOF),
    "disable_graph_outlining": (True, False),
    "output_folder": ("/x", "/x"),
    "merge_remote_buffers": (True, MergeRemoteBuffersBehaviour.MERGE),
    "ipu_model_version": (1, "ipu1"),
    "ipu_version": (2, "ipu2"),
    "esr": (False, StochasticRoundingBehaviour.OFF),
    "io_tile_available_memory_proportion": (0.5, 0.5),
    "connection_type": (DeviceConnectionType.ON_DEMAND, DeviceConnectionType.ON_DEMAND),
    "indices": ([3, 1], [3, 1]),
    "num_ipus": ((2, 1), (2, 1)),
}
REPLACED = [(name, item) for name, items in ARGUMENTS.items() for item in items if item.attribute]


@pytest.mark.parametrize(("name", "argument"), REPLACED, ids=lambda value: getattr(value, "name", value))
def test_each_argument_sets_its_attribute(name: str, argument: Any) -> None:
    config = IPUConfig()
    default = attribute(config, argument.attribute)
    simple: Any = (not argument.default) if isinstance(argument.default, bool) else 2
    if isinstance(default, dict):
        simple = {"a": "b"}
    elif isinstance(default, bool) and not isinstance(simple, bool):
        simple = True
    given, expected = GIVEN.get(argument.name, (simple, simple))
    needed = {item.name: 1 for item in ARGUMENTS[name] if item.default is inspect.Parameter.empty}
    function = getattr(utils, name)
    arguments = {**needed, argument.name: given}
    config = function(**arguments) if name == "create_ipu_config" else function(config, **arguments)
    assert attribute(config, argument.attribute) == expected


def test_a_program_of_former_times_configures() -> None:
    opts = utils.create_ipu_config(scheduler_selection="")
    opts = utils.set_compilation_options(opts, {"target.syncMethod": "polling"})
    opts = utils.set_compilation_options(opts, {"prng.seed": "2"})
    opts = utils.set_recomputation_options(opts)
    opts = utils.auto_select_ipus(opts, 4)
    utils.configure_ipu_system(opts)
    assert utils.get_num_of_ipus_in_device("/device:IPU:0") == 4
    assert opts.compilation_poplar_options == {"target.syncMethod": "polling", "prng.seed": "2"}
    assert opts.allow_recompute


REPORTS = [(name, item) for name, items in ARGUMENTS.items() for item in items if not item.attribute]


@pytest.mark.parametrize(("name", "argument"), REPORTS, ids=lambda value: getattr(value, "name", value))
def test_reports_that_nobody_writes_are_warned_of(name: str, argument: Any) -> None:
    function = getattr(utils, name)
    opts = () if name == "create_ipu_config" else (IPUConfig(),)
    with pytest.warns(EmulationWarning, match=rf"{name}\({argument.name}=3\) is not emulated"):
        function(*opts, **{argument.name: 3})
    if argument.default is not inspect.Parameter.empty:
        function(*opts, **{argument.name: argument.default})


def test_former_functions_check_their_arguments() -> None:
    assert str(inspect.signature(utils.auto_select_ipus)) == "(opts, num_ipus)"
    with pytest.raises(TypeError, match="missing a required argument: 'num_ipus'"):
        utils.auto_select_ipus(IPUConfig())
    with pytest.raises(TypeError, match="auto_select_ipus takes an IPUConfig, such as create_ipu_config.* gives"):
        utils.auto_select_ipus({}, 1)
    with pytest.raises(ValueError, match="scheduler_selection must be Clustering, PostOrder, .* Received: 'x'"):
        utils.create_ipu_config(scheduler_selection="x")
    with pytest.raises(TypeError, match="Trying to set auto_select_ipus to 1"):
        utils.auto_select_ipus(IPUConfig(), "1")
