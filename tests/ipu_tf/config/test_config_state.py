"""The configured system: configuring, resetting, asking for devices."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import jax
import pytest
import tensorflow as tf

from ipu_tf._config.devices import IPUDevice
from ipu_tf._config.state import configured_devices, current_config, on_reset, require_device
from ipu_tf.config import IPUConfig, configure_ipu_system, get_ipu_config, reset_ipu_configuration, running_on_ipu_model

pytestmark = pytest.mark.filterwarnings("error")

NOT_CONFIGURED = (
    "No device target has been configured. Did you configure the IPU devices by running "
    "`tensorflow.python.ipu.utils.configure_ipu_system(ipu_options)`?\n"
    "Put these lines before the first use of the device (`import ipu_tf as ipu`):\n"
    "    cfg = ipu.config.IPUConfig()\n"
    "    cfg.auto_select_ipus = 1\n"
    "    cfg.configure_ipu_system()"
)
ALREADY = (
    "IPU system configuration has already been set in this process, but it should have been reset "
    "automatically by the call to 'tensorflow.python.ipu.config.configure_ipu_system'."
)
RESETTING = "Resetting existing IPU configuration before applying new configuration"
BACKEND = f"(jax {jax.__version__} on cpu)"


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    """Nothing is configured, before and after."""
    reset_ipu_configuration()
    yield
    reset_ipu_configuration()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The messages of this package's logger."""
    caplog.set_level(logging.INFO, "ipu_tf")
    return caplog


def config(ipus: int | list[int] | tuple[int, ...]) -> IPUConfig:
    """A configuration with the given numbers of IPUs."""
    cfg = IPUConfig()
    cfg.auto_select_ipus = ipus
    return cfg


@pytest.fixture
def resets() -> Iterator[list[str]]:
    """Grows by one entry at every reset."""
    calls: list[str] = []
    unregister = on_reset(lambda: calls.append("reset"))
    yield calls
    unregister()


def test_nothing_is_configured_at_first() -> None:
    assert configured_devices() == ()
    assert current_config() is None
    with pytest.raises(RuntimeError) as caught:
        get_ipu_config()
    assert str(caught.value) == "No IPU devices configured."
    with pytest.raises(tf.errors.FailedPreconditionError) as missing:
        require_device(0)
    assert missing.value.message == NOT_CONFIGURED


@pytest.mark.parametrize(("ipus", "counts"), [(1, [1]), (8, [8]), ([2, 4], [2, 4]), ((16, 1), [16, 1])])
def test_devices_are_those_asked_for(ipus: int | list[int], counts: list[int]) -> None:
    config(ipus).configure_ipu_system()
    assert [device.num_ipus for device in configured_devices()] == counts
    for ordinal, count in enumerate(counts):
        assert require_device(ordinal) == IPUDevice(ordinal, count)
    assert len(get_ipu_config()) == len(counts)


def test_devices_by_id() -> None:
    cfg = IPUConfig()
    cfg.select_ipus = [24, 0]
    cfg.configure_ipu_system()
    assert [device.num_ipus for device in configured_devices()] == [4, 1]
    cfg.select_ipus = 0
    cfg.configure_ipu_system()
    assert [device.num_ipus for device in configured_devices()] == [1]


def test_a_configuration_without_a_choice_has_one_ipu() -> None:
    IPUConfig().configure_ipu_system()
    assert configured_devices() == (IPUDevice(0, 1),)


@pytest.mark.parametrize("ordinal", [2, 9999999, -1])
def test_devices_that_do_not_exist(ordinal: int) -> None:
    config([1, 4]).configure_ipu_system()
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        require_device(ordinal)
    advice = "Use a device that exists"
    if ordinal > 0:
        advice += f", or set `auto_select_ipus` to {ordinal + 1} numbers, one for each device"
    assert caught.value.message == (
        f"There is no /device:IPU:{ordinal}: 2 IPU devices are configured (/device:IPU:0 with 1 emulated "
        f"IPU, /device:IPU:1 with 4 emulated IPUs). {advice}."
    )


def test_the_model_has_a_device_without_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not running_on_ipu_model()
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    assert running_on_ipu_model()
    assert require_device(0) == IPUDevice(0, 1)
    assert configured_devices() == ()
    with pytest.raises(tf.errors.InvalidArgumentError, match="no /device:IPU:1: 1 IPU device is configured"):
        require_device(1)
    config([2, 3]).configure_ipu_system()
    assert require_device(1).num_ipus == 3


def test_the_configuration_is_kept_apart_from_its_object() -> None:
    cfg = config([1, 2])
    cfg.configure_ipu_system()
    cfg.auto_select_ipus = [5]
    first = current_config()
    assert isinstance(first, IPUConfig)
    assert first.auto_select_ipus == [1, 2]
    first.auto_select_ipus = 7
    second = current_config()
    assert second is not None
    assert second.auto_select_ipus == [1, 2]
    assert configured_devices() == (IPUDevice(0, 1), IPUDevice(1, 2))


def test_get_ipu_config_returns_what_was_configured() -> None:
    cfg = config([2, 4])
    cfg.configure_ipu_system()
    options = get_ipu_config(session=object())
    assert options == [cfg._create_protobuf()] * 2
    assert [device.auto_count for device in options[0].device_config] == [2, 4]


def test_a_record_can_be_configured() -> None:
    cfg = config([2, 4])
    cfg.io_tiles.num_io_tiles = 3
    configure_ipu_system(cfg._create_protobuf())
    assert get_ipu_config() == [cfg._create_protobuf()] * 2
    restored = current_config()
    assert restored is not None
    assert restored.to_dict() == cfg.to_dict()


@pytest.mark.parametrize("wrong", [None, 1, {"auto_select_ipus": 1}, IPUConfig, IPUConfig().io_tiles])
def test_other_objects_cannot_be_configured(wrong: IPUConfig) -> None:
    with pytest.raises(TypeError) as caught:
        configure_ipu_system(wrong)
    assert str(caught.value) == "`config` must be an IpuOptions instance."


def test_only_a_cpu_can_configure() -> None:
    for configure in (
        lambda: configure_ipu_system(config(1), "/device:IPU:0"),
        lambda: config(1).configure_ipu_system("gpu"),
    ):
        with pytest.raises(ValueError, match="`device` must name the CPU that is local to the IPUs"):
            configure()
    assert configured_devices() == ()
    config(1).configure_ipu_system(device="/cpu:0")
    assert len(configured_devices()) == 1


def test_the_first_configuration_logs_one_line(log: pytest.LogCaptureFixture, resets: list[str]) -> None:
    config([1, 2]).configure_ipu_system()
    assert log.messages == [
        "ipu_tf: configured /device:IPU:0 with 1 emulated IPU, /device:IPU:1 with 2 emulated IPUs " + BACKEND
    ]
    assert log.records[0].levelno == logging.INFO
    assert resets == []


@pytest.mark.parametrize("again", [1, [1], (1,)])
@pytest.mark.parametrize("reset", [True, False])
def test_the_same_configuration_again_does_nothing(
    again: int | list[int], reset: bool, log: pytest.LogCaptureFixture, resets: list[str]
) -> None:
    config(1).configure_ipu_system()
    log.clear()
    configure_ipu_system(config(again), reset_configuration=reset)
    assert (log.messages, resets) == ([], [])


def test_another_configuration_resets_and_logs_one_line(log: pytest.LogCaptureFixture, resets: list[str]) -> None:
    config(1).configure_ipu_system()
    log.clear()
    config(4).configure_ipu_system()
    assert log.messages == [f"ipu_tf: {RESETTING}; configured /device:IPU:0 with 4 emulated IPUs {BACKEND}"]
    assert resets == ["reset"]
    assert configured_devices() == (IPUDevice(0, 4),)


def test_every_attribute_counts_for_sameness(resets: list[str]) -> None:
    config(1).configure_ipu_system()
    other = config(1)
    other.scheduling.maximum_scheduler_search_space_size = 65
    other.configure_ipu_system()
    assert resets == ["reset"]


def test_another_configuration_without_reset_is_refused(resets: list[str]) -> None:
    config([1, 1]).configure_ipu_system()
    with pytest.raises(tf.errors.FailedPreconditionError) as caught:
        configure_ipu_system(config([1, 2, 1]), reset_configuration=False)
    assert caught.value.message == ALREADY
    assert len(configured_devices()) == 2
    assert resets == []


def test_a_first_configuration_needs_no_reset() -> None:
    configure_ipu_system(config(2), reset_configuration=False)
    assert configured_devices() == (IPUDevice(0, 2),)


def test_a_wrong_configuration_leaves_the_present_one(resets: list[str]) -> None:
    config(2).configure_ipu_system()
    with pytest.raises(tf.errors.FailedPreconditionError):
        config(17).configure_ipu_system()
    assert configured_devices() == (IPUDevice(0, 2),)
    assert resets == []


def test_reset_forgets_everything(resets: list[str], log: pytest.LogCaptureFixture) -> None:
    config(2).configure_ipu_system()
    reset_ipu_configuration()
    assert configured_devices() == ()
    assert current_config() is None
    with pytest.raises(RuntimeError, match="No IPU devices configured."):
        get_ipu_config()
    assert resets == ["reset"]
    log.clear()
    config(2).configure_ipu_system()
    assert log.messages == [f"ipu_tf: configured /device:IPU:0 with 2 emulated IPUs {BACKEND}"]


def test_resetting_nothing_is_fine(resets: list[str]) -> None:
    reset_ipu_configuration()
    reset_ipu_configuration()
    assert resets == []


def test_callbacks_run_in_order_and_see_no_device() -> None:
    seen: list[tuple[str, int]] = []
    unregister = [
        on_reset(lambda name=name: seen.append((name, len(configured_devices()))))  # type: ignore[misc]
        for name in ("first", "second")
    ]
    config(1).configure_ipu_system()
    config(2).configure_ipu_system()
    assert seen == [("first", 0), ("second", 0)]
    unregister[0]()
    unregister[0]()
    reset_ipu_configuration()
    unregister[1]()
    assert seen[2:] == [("second", 0)]


def test_a_callback_registered_twice_is_called_twice() -> None:
    calls: list[int] = []

    def callback() -> None:
        calls.append(1)

    unregister = [on_reset(callback), on_reset(callback)]
    config(1).configure_ipu_system()
    reset_ipu_configuration()
    for remove in unregister:
        remove()
    assert calls == [1, 1]


def test_a_failing_callback_stops_no_other_and_is_heard(resets: list[str]) -> None:
    def fail() -> None:
        raise OSError("cannot drop")

    late: list[str] = []
    unregister = [on_reset(fail), on_reset(lambda: late.append("late"))]
    config(1).configure_ipu_system()
    with pytest.raises(OSError, match="cannot drop"):
        reset_ipu_configuration()
    for remove in unregister:
        remove()
    assert (resets, late) == (["reset"], ["late"])
    assert configured_devices() == ()


def test_a_callback_may_wait_for_a_thread_that_unregisters() -> None:
    remove = on_reset(lambda: None)

    def wait() -> None:
        worker = threading.Thread(target=remove)
        worker.start()
        worker.join(10)
        assert not worker.is_alive()

    remove_wait = on_reset(wait)
    config(1).configure_ipu_system()
    reset_ipu_configuration()
    remove_wait()


def test_threads_that_configure_at_once_configure_once(log: pytest.LogCaptureFixture, resets: list[str]) -> None:
    start = threading.Barrier(8)

    def work() -> None:
        start.wait(10)
        config([1, 2]).configure_ipu_system()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(log.messages) == 1
    assert resets == []
    assert len(configured_devices()) == 2
