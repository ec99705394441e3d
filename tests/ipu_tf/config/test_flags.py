"""TF_POPLAR_FLAGS: every flag, every error, and random texts and configurations."""

from __future__ import annotations

import json
import re
import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ipu_tf as ipu
from ipu_tf._config.base import settings_of
from ipu_tf._config.flag_table import FLAGS, Flag, usage
from ipu_tf._config.flags import FlagsError, ignored, parse
from ipu_tf._config.ipu_options import IpuOptions
from ipu_tf._config.library_options import AUTO_REPORT_OPTIONS, AUTO_REPORT_SWITCHES, UnknownOptionWarning
from ipu_tf._config.treatment import Effect
from ipu_tf.config import (
    DeviceConnectionType,
    EmulationWarning,
    IPUConfig,
    get_ipu_config,
    ignored_options,
    reset_ipu_configuration,
    running_on_ipu_model,
)
from ipu_tf.device.cache import executable_cache
from ipu_tf.device.feeds import synthetic
from ipu_tf.device.feeds.synthetic import TransferKind
from ipu_tf.device.run import interruptible_function
from ipu_tf.emulation import EmulationError, clear_session, ignored_arguments
from ipu_tf.ipu_strategy import IPUStrategy
from ipu_tf.reports.auto import setting

NAMES = [flag.name for flag in FLAGS]
TAKE_A_WORD = [flag.name for flag in FLAGS if not isinstance(flag.default, bool)]
DEPENDENT = ("synthetic_data_categories", "synthetic_data_initializer", "show_progress_bar")
FREE = [flag for flag in FLAGS if flag.name not in DEPENDENT and not flag.refused]


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    """Nothing is configured and nothing of the environment was spoken of, before and after."""
    clear_session()
    yield
    clear_session()


def ipu_flags() -> Any:
    """The module of the flags."""
    from ipu_tf._config import flags

    return flags


def other_value(flag: Flag) -> Any:
    """A value of a flag that is not its default."""
    return {bool: True, int: 7, str: "somewhere"}[type(flag.default)]


def test_without_flags_every_value_is_the_default() -> None:
    parsed = parse("")
    assert dict(parsed.values) == {flag.name: flag.default for flag in FLAGS}
    assert parsed.given() == ()


@pytest.mark.parametrize("flag", FREE, ids=lambda flag: flag.name)
def test_each_flag_is_parsed(flag: Flag) -> None:
    value = other_value(flag)
    forms = [f"--{flag.name}={value}", f" --{flag.name}='{value}' "]
    forms += [f"--{flag.name}", f"-{flag.name}"] if isinstance(value, bool) else [f"--{flag.name} {value}"]
    for text in forms:
        assert parse(text).given() == ((flag, value),)
    if isinstance(value, bool):
        for text in (f"--{flag.name}=false", f"--no{flag.name}"):
            assert parse(text).given() == ()


@pytest.mark.parametrize("text", ["--x", "--x=1", "--use_ipu_model --x", "--undefok=x --x", "--flagfile=/x", "--"])
def test_an_unknown_flag_is_an_error_that_lists_the_known_ones(text: str) -> None:
    with pytest.raises(FlagsError, match="TF_POPLAR_FLAGS has the unknown flag") as caught:
        parse(text)
    for name in NAMES:
        assert f"--{name} " in str(caught.value)


@pytest.mark.parametrize("name", ["dump_text_reports_to_stdio", "add_all_reduce_copies", "force_replicated_mode"])
def test_removed_flags_are_unknown(name: str) -> None:
    with pytest.raises(FlagsError, match=f"unknown flag --{name}"):
        parse(f"--{name}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--max_infeed_threads=many", "a flag without a fitting value: flag --max_infeed_threads=many"),
        ("--max_infeed_threads", "a flag without a fitting value"),
        ("--use_ipu_model=maybe", "a flag without a fitting value: flag --use_ipu_model=maybe"),
        ("use_ipu_model", "words that are no flags: 'use_ipu_model'"),
        ("--use_ipu_model no", "words that are no flags: 'no'"),
        ("--executable_cache_path='/tmp", "cannot be split into flags: No closing quotation"),
        ("--show_progress_bar=yes", "--show_progress_bar in TF_POPLAR_FLAGS takes 'auto', 'true' or 'false'"),
        ("--use_synthetic_data --synthetic_data_initializer=x", "or a whole number. Received: 'x'"),
        (
            "--synthetic_data_categories=infeed,seeds",
            "Using an unknown synthetic data category in: 'infeed,seeds'. Received: 'seeds'. Wanted: a comma-separated "
            "list of seed, infeed, outfeed, hostembedding, parameters.",
        ),
        (
            "--synthetic_data_initializer=1",
            'The flag "synthetic_data_initializer" can only be used in combination with "use_synthetic_data" or '
            '"synthetic_data_categories".',
        ),
    ],
)
def test_wrong_values(text: str, message: str) -> None:
    with pytest.raises(FlagsError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_cycles_are_refused() -> None:
    with pytest.raises(EmulationError, match="--log_cycle_count=0. An emulated IPU has no cycles to count"):
        parse("--log_cycle_count=0")
    assert parse("--log_cycle_count=-1").given() == ()


@pytest.mark.parametrize("use", [lambda: IPUConfig().configure_ipu_system(), running_on_ipu_model, ipu_flags().flags])
def test_flags_are_checked_wherever_they_are_read(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--unheard_of")
    with pytest.raises(FlagsError, match="--unheard_of"):
        use()


def test_reading_flags_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--use_synthetic_data --executable_cache_path={tmp_path}")
    assert ipu_flags().flags().synthetic_data.uses(TransferKind.INFEED)
    running_on_ipu_model()
    assert (synthetic.uses(TransferKind.INFEED), executable_cache.directory()) == (False, None)
    IPUConfig().configure_ipu_system()
    assert (synthetic.uses(TransferKind.INFEED), executable_cache.directory()) == (True, tmp_path)
    clear_session()
    assert (synthetic.uses(TransferKind.INFEED), executable_cache.directory()) == (False, None)


def test_help_prints_the_list_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--help")
    IPUConfig().configure_ipu_system()
    reset_ipu_configuration()
    IPUConfig().configure_ipu_system()
    assert capsys.readouterr().out == usage() + "\n"
    assert len(usage().splitlines()) == len(FLAGS) + 1


@pytest.mark.parametrize("flag", FREE, ids=lambda flag: flag.name)
def test_a_flag_is_modelled_recorded_or_warned_of(flag: Flag, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--{flag.name}={other_value(flag)}")
    name = f"TF_POPLAR_FLAGS --{flag.name}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        IPUConfig().configure_ipu_system()
        reset_ipu_configuration()
        IPUConfig().configure_ipu_system()
    recorded = [item.name for item in ignored_arguments()]
    warned = [str(item.message) for item in caught if item.category is EmulationWarning]
    assert (name in recorded) == (flag.treatment.effect is Effect.NO_EFFECT)
    expected = [f"{name}={other_value(flag)} is not emulated. {flag.treatment.reason}"]
    assert warned == (expected if flag.treatment.effect is Effect.WARNS else [])


def test_other_variables_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCDA_OPTIONS", '{"simulateSOCError": 1}')
    with pytest.warns(EmulationWarning) as caught:
        IPUConfig().configure_ipu_system()
    assert [str(item.message).split("=")[0] for item in caught] == ["GCDA_OPTIONS"]


def test_engine_options_of_the_environment_are_recorded_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reports = {"autoReport.all": "true", "autoReport.directory": str(tmp_path), "autoReport.outputArchive": "true"}
    others = {"target.deterministicWorkers": "true", "target.deterministicWorker": "false"}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(reports | others))
    with pytest.warns(UnknownOptionWarning, match="POPLAR_ENGINE_OPTIONS has .*mean 'target.deterministicWorkers'"):
        IPUConfig().configure_ipu_system()
    found = {item.name: item.value for item in ignored_arguments()}
    wanted = {f"POPLAR_ENGINE_OPTIONS {name}": repr(value) for name, value in others.items()}
    assert found == wanted | {"autoReport.outputArchive": "'true'"}


@pytest.mark.parametrize("asked", [False, True])
def test_compiled_operations_have_names_where_debug_information_is_retained(
    asked: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiled: list[str] = []
    note = interruptible_function.note_memory

    def keep(function: Any) -> None:
        compiled.append(function.as_text())
        note(function)

    monkeypatch.setattr(interruptible_function, "note_memory", keep)
    monkeypatch.setenv("IPU_TF_CACHE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where the same program is then kept without names
    for keeps in (not asked, asked):
        reset_ipu_configuration()
        monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps({"debug.retainDebugInformation": str(keeps).lower()}))
        IPUConfig().configure_ipu_system()
        squashed = tf.function(lambda x: tf.tanh(x, name="squashed"))
        assert float(IPUStrategy().run(squashed, args=[tf.constant(0.0)])) == 0.0
    assert [bool(re.search(r'op_name="[^"]*/squashed', text)) for text in compiled] == [not asked, asked]
    assert not any("retainDebugInformation" in item.name for item in ignored_arguments())


@pytest.mark.parametrize("name", AUTO_REPORT_OPTIONS)
def test_an_option_of_reports_writes_them_or_is_recorded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = IPUConfig()
    value = str(tmp_path / "r") if name == "directory" else "true"
    config.compilation_poplar_options = {f"autoReport.{name}": value}
    monkeypatch.chdir(tmp_path)
    config.configure_ipu_system()
    recorded = f"autoReport.{name}" in {item.name for item in ignored_arguments()}
    assert recorded == (setting().directory is None) == (name not in AUTO_REPORT_SWITCHES)


def test_on_demand_overrides_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_on_demand")
    config = IPUConfig()
    config.device_connection.type = DeviceConnectionType.NEVER
    config.device_connection.version = "ipu2"
    config.configure_ipu_system()
    assert get_ipu_config()[0].device_connection_type == DeviceConnectionType.ON_DEMAND.value
    assert config.device_connection.type is DeviceConnectionType.NEVER


def test_the_record_survives_as_bytes() -> None:
    config = IPUConfig()
    config.auto_select_ipus = (2, 4)
    config.matmuls.poplar_options = {"availableMemoryProportion": "0.3"}
    options = config._create_protobuf()
    again = IpuOptions()
    assert again != options
    assert again.ParseFromString(options.SerializeToString()) == len(options.SerializeToString())
    assert again == options
    assert [device.auto_count for device in again.device_config] == [2, 4]
    with pytest.raises(ValueError, match="no IpuOptions of this project"):
        IpuOptions.FromString(b"\x08\x01")


words = st.one_of(
    st.sampled_from([f"--{name}" for name in NAMES]),
    st.tuples(
        st.sampled_from(NAMES),
        st.one_of(st.integers().map(str), st.sampled_from(["true", "false", "infeed", "seed,outfeed", "auto", ""])),
    ).map(lambda pair: f"--{pair[0]}={pair[1]}"),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8),
)


@given(st.lists(words, max_size=6))
@example(["--executable_cache_path", "0", "--executable_cache_path", "--help"])
@example(["--tensor_map_file_path", "0", "--tensor_map_file_path", "--help"])
@settings(max_examples=300)
def test_random_flags_are_understood_or_refused(texts: list[str]) -> None:
    try:
        parsed = parse(" ".join(texts))
    except (FlagsError, EmulationError) as error:
        assert str(error)
        return
    silent = [flag for flag, _ in parsed.given() if flag.treatment.effect is Effect.MODELLED]
    assert {flag for flag, _ in parsed.given()} == {flag for flag, _ in ignored(parsed)} | set(silent)
    values = {str(value) for value in parsed.values.values()}
    split = shlex.split(" ".join(texts))
    # A flag that is given twice has its last value; the first one is the word after it all the same.
    values |= {word for before, word in zip(split, split[1:], strict=False) if before.lstrip("-") in TAKE_A_WORD}
    given = [word for word in split if word not in values]  # a value may have a "=" itself
    given_names = {word.lstrip("-").partition("=")[0].removeprefix("no") for word in given}
    assert all(name in NAMES or name in values or f"no{name}" in NAMES for name in given_names)


attributes = [item.metadata.name for item in settings_of(IPUConfig())]
anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 40),
    st.floats(0, 1),
    st.sampled_from(["", "ipu2", "x"]),
    st.lists(st.integers(-1, 40), max_size=3),
    st.just({"partialsType": "half"}),
    st.sampled_from(list(DeviceConnectionType)),
)


@given(st.lists(st.tuples(st.sampled_from(attributes), anything), max_size=5))
@settings(max_examples=150)
def test_random_configurations_are_applied_or_refused(wanted: list[tuple[str, Any]]) -> None:
    config = IPUConfig()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for name, value in wanted:
                *parents, last = name.split(".")
                owner: Any = config
                for parent in parents:
                    owner = getattr(owner, parent)
                setattr(owner, last, value)
            config.configure_ipu_system()
        except (TypeError, ValueError, EmulationError, ipu_errors()) as error:
            assert str(error)
            return
    spoken_of = {item.name for item in ignored_options()}
    for item in settings_of(config):
        if item.value != item.metadata.default:
            treatment = item.option.treatment_of(item.value)
            assert item.metadata.name in spoken_of or (treatment and treatment.effect is Effect.MODELLED)


def ipu_errors() -> type[Exception]:
    """Names of TensorFlow's errors."""
    import tensorflow as tf

    error: type[Exception] = tf.errors.OpError
    return error


def test_the_emulator_says_that_it_is_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "ipu_tf")
    IPUConfig().configure_ipu_system()
    assert [message for message in caplog.messages if "emulated" in message] == caplog.messages[-1:]
    assert ipu.is_emulated()
