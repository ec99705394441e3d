"""`ExactResume`: a run that was stopped anywhere ends with the bits of one that was not, on both back ends."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.helpers.device_counts import device_work
from tests.helpers.resumed_runs import DATA, OPTIMIZERS, PARTS, Setting, fitted

# At the end of each epoch over the dataset of unknown length.
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")

SHORT = [
    (Setting(), (15,)),
    (Setting("endless dataset", steps=2), (5,)),
    (Setting("dataset of unknown length"), (24,)),  # at the beginning of the third epoch: those before had 12 each
]
LONG = [
    (Setting(), (2, 29)),
    (Setting(accumulation=2, steps=2), (6, 7)),
    (Setting("arrays in order", own_accumulation=True), (3, 11)),
    (Setting("arrays in order", replicas=2), (4, 7)),
    (Setting("arrays in order", accumulation=4, stages=2, steps=4), (4,)),
    (Setting("dataset"), (17,)),
    (Setting("endless dataset", steps=2), (2,)),
    (Setting("generator"), (10,)),
    (Setting("dataset of unknown length", steps=2), (5, 14)),
    (Setting("PyDataset"), (4, 13)),
    (Setting(parts="augmented", optimizer="average"), (9,)),
    (Setting("dataset", parts="rounded", optimizer="loss scale", replicas=2), (7,)),
    (Setting(parts="recurrent", optimizer="schedule"), (18,)),
]
CASES = [
    pytest.param(setting, stop, id=f"{setting.data}, {name} {number}, {stop}", marks=marks)
    for name, settings, marks in (("short", SHORT, []), ("long", LONG, [pytest.mark.slow]))
    for number, (setting, stops) in enumerate(settings)
    for stop in stops
]


@pytest.mark.parametrize(("setting", "stop"), CASES)
def test_a_stopped_run_ends_with_the_same_bits(tmp_path: Path, setting: Setting, stop: int) -> None:
    with device_work() as did:
        wanted = fitted(None, setting)
    assert did.counts.executions > 0
    by_signal = setting.data == "endless dataset"
    assert fitted(tmp_path, setting, stop, by_signal=by_signal) is None
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert fitted(tmp_path, setting) == wanted


SETTINGS = st.builds(
    Setting,
    data=st.sampled_from(sorted(DATA)),
    parts=st.sampled_from(sorted(PARTS)),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    replicas=st.sampled_from([1, 2]),
    accumulation=st.sampled_from([1, 2]),
    steps=st.sampled_from([1, 2]),
    own_accumulation=st.booleans(),
)


@pytest.mark.slow
@hypothesis.given(setting=SETTINGS, stop=st.integers(1, 14), by_signal=st.booleans())
@hypothesis.settings(max_examples=40, deadline=None, derandomize=True, database=None)
def test_whatever_is_trained_and_wherever_it_stops(setting: Setting, stop: int, by_signal: bool) -> None:
    hypothesis.assume(setting.accumulation <= setting.steps)
    hypothesis.assume(not (setting.accumulation > 1 and setting.own_accumulation))
    wanted = fitted(None, setting)
    with tempfile.TemporaryDirectory() as folder:
        first = fitted(Path(folder), setting, stop, by_signal=by_signal)  # None where it was stopped before its end
        assert (first or fitted(Path(folder), setting)) == wanted
