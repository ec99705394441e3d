"""The emulated devices and the table of `select_ipus`."""

from __future__ import annotations

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from ipu_tf._config.devices import IPUDevice, auto_selected_devices, check_cpu_device, multi_ipu_sizes, selected_devices

pytestmark = pytest.mark.filterwarnings("error")


def test_the_table_of_sixteen() -> None:
    expected = [1] * 16 + [2] * 8 + [4] * 4 + [8] * 2 + [16]
    assert list(multi_ipu_sizes(16)) == expected
    assert len(expected) - 1 == 30


@given(st.integers(1, 300))
def test_the_table_has_every_aligned_power_of_two(available: int) -> None:
    sizes = multi_ipu_sizes(available)
    assert sizes[:available] == (1,) * available
    assert list(sizes) == sorted(sizes)
    for size in {1 << power for power in range(10)}:
        assert sizes.count(size) == available // size
    assert sum(1 for size in sizes if size & (size - 1)) == 0


def test_devices_are_named_by_their_place() -> None:
    devices = auto_selected_devices([2, 4])
    assert devices == (IPUDevice(0, 2), IPUDevice(1, 4))
    assert [device.name for device in devices] == ["/device:IPU:0", "/device:IPU:1"]
    assert str(devices[1]) == "/device:IPU:1 with 4 emulated IPUs"
    assert str(IPUDevice(0, 1)) == "/device:IPU:0 with 1 emulated IPU"


@pytest.mark.parametrize(("numbers", "on_model"), [(st.sampled_from([1, 2, 4, 8, 16]), False), (st.integers(1), True)])
def test_numbers_that_a_machine_has(numbers: st.SearchStrategy[int], on_model: bool) -> None:
    given(st.lists(numbers, max_size=20))(lambda counts: check_devices(counts, on_model))()


def check_devices(counts: list[int], on_model: bool) -> None:
    """Fails unless there are devices of these numbers of IPUs, in this order."""
    devices = auto_selected_devices(counts, on_model)
    assert [device.num_ipus for device in devices] == counts
    assert [device.ordinal for device in devices] == list(range(len(counts)))


@pytest.mark.parametrize("count", [0, -1, 3, 6, 12, 17, 32, 1000])
def test_other_numbers_are_refused(count: int) -> None:
    with pytest.raises(tf.errors.FailedPreconditionError) as caught:
        auto_selected_devices([1, count])
    assert caught.value.message.startswith(
        f"Unsupported number of IPUs requested - could not find an IPU device with {count} IPUs for the "
        "TensorFlow virtual device /device:IPU:1. Use `gc-info -l` to view the available device "
        "configurations."
    )
    assert "`auto_select_ipus` to 1, 2, 4, 8 or 16, or set TF_IPU_COUNT for more IPUs" in caught.value.message


def test_the_model_has_no_device_without_ipus() -> None:
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"each number in `auto_select_ipus` to at least 1\.\)"):
        auto_selected_devices([0], on_model=True)


def test_the_environment_sets_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_IPU_COUNT", "32")
    assert auto_selected_devices([32])[0].num_ipus == 32
    assert selected_devices([62])[0].num_ipus == 32
    monkeypatch.setenv("TF_IPU_COUNT", "3")
    with pytest.raises(tf.errors.FailedPreconditionError, match="to 1 or 2, or set"):
        auto_selected_devices([4])
    assert [device.num_ipus for device in selected_devices([3, 0])] == [2, 1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="id 4; the emulated machine has ids"):
        selected_devices([4])


@given(st.lists(st.integers(0, 30), max_size=8))
def test_ids_stand_for_their_sizes(ids: list[int]) -> None:
    sizes = multi_ipu_sizes(16)
    assert [device.num_ipus for device in selected_devices(ids)] == [sizes[index] for index in ids]


@pytest.mark.parametrize("index", [31, -1])
def test_unknown_ids_are_refused(index: int) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        selected_devices([0, 1, index])
    assert caught.value.message == (
        "No device matches the requested configuration for TensorFlow virtual device /device:IPU:2. "
        f"`select_ipus` asks for id {index}; the emulated machine has ids 0-15 (1 IPU each), "
        "16-23 (2 IPUs each), 24-27 (4 IPUs each), 28-29 (8 IPUs each), 30 (16 IPUs). "
        "Set one of these, or set TF_IPU_COUNT for another number of IPUs."
    )


@pytest.mark.parametrize(
    "device",
    ["cpu", "CPU", "cpu:0", "/cpu:0", "/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:0"],
)
def test_cpu_devices(device: str) -> None:
    check_cpu_device(device)


@pytest.mark.parametrize("device", ["/device:IPU:0", "gpu", "", "cpu:x", "xcpu", None, 0])
def test_other_devices_are_refused(device: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_cpu_device(device)
    assert str(caught.value) == (
        "`device` must name the CPU that is local to the IPUs, for example 'cpu' or '/device:CPU:0'. "
        f"Received: {device!r}."
    )
