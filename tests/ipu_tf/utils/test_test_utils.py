"""The tools for tests of programs on IPUs."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import pva
from ipu_tf import test_utils as tu
from ipu_tf.emulation import EmulationError
from ipu_tf.poplar.driver.trace_pb2 import IpuTraceEvent
from ipu_tf.poplar.ops import gen_ipu_ops
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

tf1 = tf.compat.v1
Strategy = ipu.ipu_strategy.IPUStrategyV1


def outcome(decorator: Callable[..., Any]) -> unittest.TestResult:
    """Outcome of a test that passes, under `decorator`."""

    class Case(unittest.TestCase):
        @decorator
        def runTest(self) -> None:  # noqa: N802 - unittest's name
            pass

    result = unittest.TestResult()
    Case().run(result)
    return result


def skipped(decorator: Callable[..., Any]) -> bool:
    """Whether a test under `decorator` is skipped; if not, it must pass."""
    result = outcome(decorator)
    assert result.wasSuccessful()
    return bool(result.skipped)


@pytest.mark.parametrize(
    ("count", "needs_two", "may_use_two"),
    [(None, False, False), ("16", False, False), ("1", True, False), ("0", True, False)],
)
def test_ipu_count_decides_what_is_skipped(
    monkeypatch: pytest.MonkeyPatch, count: str | None, needs_two: bool, may_use_two: bool
) -> None:
    monkeypatch.delenv("TF_IPU_COUNT", raising=False)
    if count is not None:
        monkeypatch.setenv("TF_IPU_COUNT", count)
    assert skipped(tu.test_uses_ipus(num_ipus=2)) == needs_two
    assert skipped(lambda test: tu.test_uses_ipus(2, func=test)) == needs_two
    assert skipped(lambda test: tu.test_uses_ipus(2, True, test)) == may_use_two
    assert skipped(tu.test_may_use_ipus_or_model(2)) == may_use_two
    assert not skipped(tu.skip_on_hw), "nothing here is hardware"
    assert tu.has_ci_ipus() == (count != "0")
    assert tu.get_ci_num_ipus() == int(count or 16)


def test_a_wrong_ipu_count_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_IPU_COUNT", "many")
    with pytest.raises(ValueError, match="TF_IPU_COUNT must be a whole number of IPUs. Received: 'many'"):
        tu.has_ci_ipus()


def test_tests_of_ipus_refuse_the_ipu_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    monkeypatch.setenv("TF_IPU_COUNT", "2")
    assert "asks for the IPU model" in outcome(tu.test_uses_ipus(2)).errors[0][1]
    monkeypatch.setenv("TF_IPU_COUNT", "1")
    assert not skipped(tu.test_may_use_ipus_or_model(2))


def test_skip_with_asan(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not skipped(tu.skip_with_asan("slow"))
    monkeypatch.setenv("ASAN_OPTIONS", "")
    assert skipped(tu.skip_with_asan("slow"))
    with pytest.raises(TypeError, match="`reason` must be a string"):
        tu.skip_with_asan(3)  # type: ignore[arg-type]


def test_connection_options() -> None:
    config = ipu.config.IPUConfig()
    tu.add_hw_ci_connection_options(config)
    assert config.device_connection.enable_remote_buffers
    assert config.device_connection.type == ipu.config.DeviceConnectionType.ON_DEMAND


def test_increasing_datasets() -> None:
    first = next(iter(tu.create_multi_increasing_dataset(2)))
    assert [(tuple(t.shape), t.dtype) for t in first] == [((1, 32, 32, 4), tf.float32), ((1, 8), tf.float32)]
    dual = next(iter(tu.create_dual_increasing_dataset(2, [3], [4], np.int32)))
    assert [(tuple(t.shape), t.dtype) for t in dual] == [((3,), tf.int32), ((4,), tf.int32)]
    assert tuple(next(iter(tu.create_single_increasing_dataset(2)))[0].shape) == (1, 32, 32, 4)
    scalars = tu.create_single_increasing_dataset(3, shape=[])
    assert [int(element[0]) for element in scalars.take(5)] == [0, 1, 2, 0, 1]
    once = tu.create_single_increasing_dataset(3, [2], repeat=False)
    assert [element[0].numpy().tolist() for element in once] == [[0, 0], [1, 1], [2, 2]]
    with pytest.raises(ValueError, match="one dtype for each shape. Received 1 shapes and 2 dtypes"):
        tu.create_multi_increasing_dataset(1, shapes=[[1]])


def test_session_runs_what_is_placed_on_an_ipu(strategy: Strategy) -> None:  # noqa: F811
    with tf.Graph().as_default(), tu.ipu_session(["function_optimization"]) as session:
        with tf.device("/device:IPU:0"):
            double = tf.constant(2.0) * 2
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            (compiled,) = ipu.ipu_compiler.compile(lambda x: x + 1, [double])
        tu.move_variable_initialization_to_cpu()
        assert session.run(compiled) == 5
    with pytest.raises(ValueError, match="no graph optimizer 'nothing'. It has: .*function_optimization"):
        tu.ipu_session(["nothing"]).__enter__()


def double_with(scope: Any, variable: tf.Variable) -> Callable[[], Any]:
    """A program that doubles a variable."""

    @tf.function(jit_compile=True)
    def double() -> tf.Tensor:
        return variable.assign(variable * 2)

    return lambda: scope.run(double)


def test_reports_count_compiled_programs(strategy: Strategy) -> None:  # noqa: F811
    helper, case = tu.ReportHelper(), tf.test.TestCase()
    with pytest.raises(RuntimeError, match="Call set_autoreport_options"):
        helper.find_reports()
    helper.set_autoreport_options(ipu.config.IPUConfig(), output_execution_profile=True)
    with strategy.scope():
        run = double_with(strategy, tf.Variable([1.0]))
        run()
        case.assert_num_reports(helper, 1)
        with pytest.raises(FileNotFoundError, match="emulated-program-"):  # its options were not configured
            pva.openReport(helper.find_report())
        helper.clear_reports()
        run()
    case.assert_num_reports(helper, 0)
    with pytest.raises(AssertionError, match="Expected one compiled program. There are 0"):
        helper.find_report()


def test_trace_of_a_program(strategy: Strategy) -> None:  # noqa: F811
    event = IpuTraceEvent
    tu.enable_ipu_events(ipu.config.IPUConfig())
    report = tu.ReportJSON(tf.test.TestCase(), eager_mode=True)
    report.reset()
    report.assert_no_event()
    variable = tf.Variable([1.0])
    with strategy.scope():
        run = double_with(strategy, variable)
        run()
        trace = report.get_event_trace()
        run()
        variable.assign([5.0])
        run()
    assert tu.extract_all_types_from_event_trace(trace) == [
        event.COMPILE_BEGIN,
        event.COMPILE_END,
        event.LOAD_ENGINE,
        event.HOST_TO_DEVICE_TRANSFER,
        event.EXECUTE,
    ]
    assert "Host->Device: 1 variables" in tu.extract_all_strings_from_event_trace(trace)
    assert report.parse_events(trace, assert_len=5)[event.EXECUTE] == 1
    assert report.parse_log() == {event.EXECUTE: 2, event.HOST_TO_DEVICE_TRANSFER: 1}
    report.assert_num_host_to_device_transfer_events(1)
    report.assert_contains_host_to_device_transfer_event()
    with pytest.raises(AssertionError):
        report.assert_num_events(4)
    assert variable.numpy() == [10.0]


def test_trace_in_a_graph(strategy: Strategy) -> None:  # noqa: F811
    tu.enable_ipu_events(ipu.config.IPUConfig())
    with tf.Graph().as_default(), tu.ipu_session() as session:
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            (compiled,) = ipu.ipu_compiler.compile(lambda: tf.constant(1.0) + 1, [])
        report = tu.ReportJSON(tf.test.TestCase(), session)
        report.reset()
        session.run(compiled)
        types, events = report.get_ipu_events()
        assert types[IpuTraceEvent.EXECUTE] == 1 and len(events) == 4
    with tf.Graph().as_default(), pytest.raises(ValueError, match="give a session and call"):
        tu.ReportJSON(tf.test.TestCase()).parse_log()
    with pytest.raises(ValueError, match="In eager mode there is no session"):
        tu.ReportJSON(tf.test.TestCase(), session, eager_mode=True)


def test_reset_of_devices_in_a_graph() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    for eager in (True, False):
        config.configure_ipu_system()
        if eager:
            gen_ipu_ops.ipu_reset_devices()
        else:
            with tf.Graph().as_default(), tf1.Session() as session:
                session.run(gen_ipu_ops.ipu_reset_devices())
        with pytest.raises(RuntimeError, match="No IPU devices configured"):
            ipu.config.get_ipu_config()


POPLAR_ONLY: dict[str, Callable[[], object]] = {
    "assert_total_tile_memory": lambda: tf.test.TestCase().assert_total_tile_memory(None, 3),
    "assert_compute_sets_matches": lambda: tf.test.TestCase().assert_compute_sets_matches(None, "*", 3),
    "ReportJSON.get_tensor_map": lambda: tu.ReportJSON(None, eager_mode=True).get_tensor_map(),
    "ReportJSON.tensor_map": lambda: tu.ReportJSON(None, eager_mode=True).tensor_map,
    "TensorMap": lambda: tu.TensorMap({}),
    "compile_end.tensor_map": lambda: IpuTraceEvent().compile_end.tensor_map,
    "pva.OperationAnalysis": lambda: pva.OperationAnalysis,
}


@pytest.mark.parametrize("name", POPLAR_ONLY)
def test_what_only_poplar_knows_is_refused_by_name(name: str) -> None:
    with pytest.raises(EmulationError, match=name):
        POPLAR_ONLY[name]()


def test_unknown_names_stay_unknown() -> None:
    with pytest.raises(AttributeError, match="no attribute 'assert_nothing'"):
        tu.ReportJSON(None, eager_mode=True).assert_nothing()
    with pytest.raises(AttributeError, match="no field 'cycles'"):
        IpuTraceEvent().execute.cycles  # noqa: B018 - the access is the test
    assert not hasattr(pva, "__wrapped__")
    tf.test.TestCase()._assert_all_in_tolerance([999, 1000], 1000)
    with pytest.raises(AssertionError):
        tf.test.TestCase()._assert_all_in_tolerance([998], 1000)


def test_a_test_for_the_model_alone_runs_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in (None, "--use_on_demand"):
        monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
        if before:
            monkeypatch.setenv("TF_POPLAR_FLAGS", before)
        assert not ipu.utils.running_on_ipu_model()
        assert tu.skip_on_hw(ipu.utils.running_on_ipu_model)()
        assert os.environ.get("TF_POPLAR_FLAGS") == before


_OF_A_USER = """
from ipu_tf.test_utils import *
from ipu_tf.test_utils import test_may_use_ipus_or_model, test_uses_ipus, skip_on_hw, skip_with_asan

@test_uses_ipus(num_ipus=2)
def test_on_two(tmp_path):
    assert tmp_path.exists()

@test_uses_ipus(num_ipus=9)
def test_on_nine():
    raise AssertionError("skipped")

@test_may_use_ipus_or_model(num_ipus=9)
def test_on_either(): pass

@skip_with_asan("slow")
@skip_on_hw
def test_on_the_model(): pass
"""


def test_pytest_collects_the_tests_and_not_their_decorators(tmp_path: Path) -> None:
    (tmp_path / "test_of_a_user.py").write_text(_OF_A_USER)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-W", "error", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "TF_IPU_COUNT": "4", "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "3 passed, 1 skipped" in ran.stdout, ran.stdout + ran.stderr
