"""`ReportHelper` and `ReportJSON`: count compilations and transfers in tests; Poplar's own figures are refused."""

from __future__ import annotations

import collections
import fnmatch
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import tensorflow as tf

from ipu_tf._pipelining.last_device_mapping import last_mapping
from ipu_tf._testing.events import extract_all_events
from ipu_tf.config import IPUConfig
from ipu_tf.device.counters import COUNTERS
from ipu_tf.emulation import EmulationError
from ipu_tf.poplar.driver.trace_pb2 import IpuTraceEvent
from ipu_tf.poplar.ops import gen_ipu_ops


class ReportHelper:
    """Counts compiled programs, and finds the report of each if the configuration with its options was configured.

    Example:
        >>> import ipu_tf
        >>> from ipu_tf.test_utils import ReportHelper
        >>> helper = ReportHelper()
        >>> helper.set_autoreport_options(ipu_tf.config.IPUConfig())
        >>> helper.find_reports()
        []
    """

    def __init__(self) -> None:
        self._first = COUNTERS.read().programs
        self._options_set = False
        self._folder = Path(tempfile.mkdtemp(prefix="tf_report_"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._cleared: frozenset[Path] = frozenset()

    def set_autoreport_options(
        self,
        cfg: IPUConfig,
        *,
        output_graph_profile: bool = True,
        output_execution_profile: bool = False,
        max_execution_reports: int = 1000,
    ) -> None:
        """Sets report options in a configuration: reports go to a folder that is removed with this object.

        Args:
            cfg: the configuration, changed in place.
            output_graph_profile: whether a report describes the program. Either of the two makes all files.
            output_execution_profile: whether it has the times of executions, measured on this machine; no cycles.
            max_execution_reports: of how many executions; no effect.
        """
        self._options_set = True
        cfg.compilation_poplar_options = {
            "autoReport.directory": str(self._folder),
            "autoReport.outputGraphProfile": str(output_graph_profile).lower(),
            "autoReport.outputExecutionProfile": str(output_execution_profile).lower(),
            "autoReport.executionProfileProgramRunCount": str(max_execution_reports),
        }

    def find_reports(self) -> list[str]:
        """A name for each program compiled since this object was made or cleared, oldest first.

        They are those of files, for `pva.openReport`, if each of these programs has a report.

        Raises:
            RuntimeError: if `set_autoreport_options` was not called.
        """
        if not self._options_set:
            raise RuntimeError("Call set_autoreport_options with the configuration before looking for reports.")
        names = [f"emulated-program-{number}.pop" for number in range(self._first, COUNTERS.read().programs)]
        files = sorted(self._files() - self._cleared)
        return [str(path) for path in files] if len(files) == len(names) else names

    def _files(self) -> frozenset[Path]:
        return frozenset(self._folder.glob("tf_report__*/profile.pop"))

    def find_report(self) -> str:
        """The name of the one program compiled, see `find_reports`.

        Raises:
            RuntimeError: if `set_autoreport_options` was not called.
            AssertionError: if there is not exactly one.
        """
        names = self.find_reports()
        if len(names) != 1:
            raise AssertionError(f"Expected one compiled program. There are {len(names)}: {names}.")
        return names[0]

    def clear_reports(self) -> None:
        """Forgets the programs compiled so far."""
        self._first = COUNTERS.read().programs
        self._cleared = self._files()


class ReportJSON:
    """The trace of the device's work, with assertions about it.

    Args:
        test: the test case.
        sess: the session that runs the program, in graph mode.
        eager_mode: whether there is no session.

    Attributes:
        events: events of the last parsed trace, by type.
        num_events: how many there were.

    Raises:
        ValueError: if there is a session in eager mode.
    """

    def __init__(self, test: Any, sess: tf.compat.v1.Session | None = None, eager_mode: bool = False) -> None:
        if eager_mode and sess is not None:
            raise ValueError("In eager mode there is no session. Give either `sess` or `eager_mode=True`.")
        self.test = test
        self.sess = sess
        self.eager_mode = eager_mode
        self.report: tf.Tensor | None = None
        self.events: dict[int, list[IpuTraceEvent]] = {}
        self.num_events = 0
        if sess is not None:
            self.create_ipu_event_trace()

    def create_ipu_event_trace(self) -> None:
        """Adds the op that reads the trace to the current graph; in eager mode, reads it."""
        self.report = gen_ipu_ops.ipu_event_trace()

    def reset(self) -> None:
        """Discards the events so far."""
        self.get_event_trace()

    def get_event_trace(self, session: tf.compat.v1.Session | None = None) -> Any:
        """The serialised events since the last time.

        Args:
            session: to read them with; by default the one of the constructor.

        Raises:
            ValueError: in graph mode, without a session or before `create_ipu_event_trace`.
        """
        if self.eager_mode:
            self.create_ipu_event_trace()
            return self.report
        session = session or self.sess
        if session is None or self.report is None:
            raise ValueError("To read the trace in a graph, give a session and call create_ipu_event_trace() first.")
        return session.run(self.report)

    def parse_log(
        self, assert_len: int | None = None, assert_msg: str = "", session: tf.compat.v1.Session | None = None
    ) -> dict[int, int]:
        """Reads the trace for the assertions of this class.

        Args:
            assert_len: how many events there must be; None for any number.
            assert_msg: what a failure says.
            session: see `get_event_trace`.

        Returns:
            How many events there are of each type.
        """
        return self.parse_events(self.get_event_trace(session), assert_len, assert_msg)

    def parse_events(
        self, events: Iterable[Any], assert_len: int | None = None, assert_msg: str = ""
    ) -> dict[int, int]:
        """As `parse_log`, for serialised events that were read already."""
        types, found = self.get_events_from_log(events)
        self.num_events = len(found)
        if assert_len:
            self.assert_num_events(assert_len, assert_msg)
        self.events = collections.defaultdict(list)
        for event in found:
            self.events[event.type].append(event)
        return types

    def get_ipu_events(self, session: tf.compat.v1.Session | None = None) -> tuple[dict[int, int], list[IpuTraceEvent]]:
        """Returns how many events of each type there were since the last time, and the events."""
        return self.get_events_from_log(self.get_event_trace(session))

    def get_events_from_log(self, log: Iterable[Any]) -> tuple[dict[int, int], list[IpuTraceEvent]]:
        """As `get_ipu_events`, for serialised events that were read already."""
        found = extract_all_events(log)
        return collections.defaultdict(int, collections.Counter(event.type for event in found)), found

    def assert_no_event(self, msg: str = "") -> None:
        """Asserts that the device did nothing since the last time."""
        self.test.assertFalse(self.get_ipu_events()[0], msg)

    def assert_num_events(self, num_expected: int, assert_msg: str = "") -> None:
        """Asserts that the last parsed trace has so many events."""
        self.test.assertEqual(num_expected, self.num_events, assert_msg)

    def assert_contains_host_to_device_transfer_event(self) -> None:
        """Asserts that variables were copied to the device in the last parsed trace."""
        self.test.assertTrue(self.events.get(IpuTraceEvent.HOST_TO_DEVICE_TRANSFER))

    def assert_num_host_to_device_transfer_events(self, num: int) -> None:
        """Asserts before how many executions the last parsed trace copied variables to the device."""
        self.test.assertLen(self.events.get(IpuTraceEvent.HOST_TO_DEVICE_TRANSFER, []), num)

    def assert_pipeline_stages_on_expected_ipu(self, expected_ipus: Sequence[Any], tile_per_ipu: int) -> None:
        """Asserts that the stages of the last pipeline that was built are mapped to these IPUs.

        Args:
            expected_ipus: for each stage its IPU; -1 and lists are not looked at.
            tile_per_ipu: not looked at: there are no tiles.
        """
        mapping = last_mapping() or ()
        self.test.assertLen(mapping, len(expected_ipus), "The number of expected_ipus does not match that of stages")
        for stage, (wanted, found) in enumerate(zip(expected_ipus, mapping, strict=True)):
            if not isinstance(wanted, list) and wanted != -1:
                self.test.assertEqual(wanted, found, f"Stage {stage} is on another IPU.")

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        if name not in _POPLAR_ONLY:
            raise AttributeError(f"ReportJSON has no attribute {name!r}.")
        if not name.startswith(("assert_", "get_")):
            raise _refusal(f"ReportJSON.{name}")
        return lambda *args, **kwargs: _refuse(f"ReportJSON.{name}")


_POPLAR_ONLY = frozenset(
    {
        "assert_contains_device_to_host_transfer_event",
        "assert_device_to_host_event_names",
        "assert_host_to_device_event_names",
        "assert_num_device_to_host_transfer_events",
        "assert_tensor_input_names",
        "assert_tensor_inst_name_mappings",
        "get_device_to_host_event_names",
        "get_host_to_device_event_names",
        "get_instruction_info",
        "get_ml_type_counts",
        "get_tensor_map",
        "instruction_info",
        "tensor_map",
    }
)


class TensorMap:
    """Mapping of tensors to IPU tiles, which an emulated IPU does not have.

    Raises:
        EmulationError: always, when one is made.
    """

    def __init__(self, tensor_map: Any) -> NoReturn:
        raise _refusal("TensorMap")


def missing_whitelist_entries_in_names(names: Iterable[str], whitelist: Sequence[str]) -> list[str]:
    """The patterns that no name contains, each between asterisks.

    Example:
        >>> from ipu_tf.test_utils import missing_whitelist_entries_in_names
        >>> missing_whitelist_entries_in_names(["a/conv", "a/add"], ["conv", "mul"])
        ['*mul*']
    """
    names = list(names)
    patterns = [f"*{entry}*" for entry in whitelist]
    return [pattern for pattern in patterns if not fnmatch.filter(names, pattern)]


def _refusal(name: str) -> EmulationError:
    return EmulationError(
        f"{name} asks for what only Poplar knows: tiles, vertices or names of its tensors. "
        "An emulated IPU has none; test values, device_counts() or the number of events instead."
    )


def _refuse(name: str) -> NoReturn:
    raise _refusal(name)
