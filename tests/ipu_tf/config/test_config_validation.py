"""Validation of whole configurations, with the error texts of the interface."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ipu_tf._config.state import configured_devices
from ipu_tf._config.validation import as_numbers, validate
from ipu_tf.config import DeviceConnectionType, IPUConfig, configure_ipu_system, get_ipu_config

pytestmark = pytest.mark.filterwarnings("error")

GROUP_SIZE = "norms.experimental.distributed_batch_norm_replica_group_size"
DISTRIBUTION = "experimental.multi_replica_distribution"
WITHOUT_DEVICE = [DeviceConnectionType.NEVER, DeviceConnectionType.PRE_COMPILE]


@pytest.fixture
def cfg() -> IPUConfig:
    """A configuration at its defaults."""
    return IPUConfig()


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The IPU model is asked for."""
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")


def assert_refused(cfg: IPUConfig, text: str, error: type[Exception] = ValueError) -> None:
    """Every way to use the configuration raises the error, and nothing becomes configured."""
    uses: list[Callable[[], object]] = [
        lambda: validate(cfg),
        cfg._create_protobuf,
        cfg.configure_ipu_system,
        lambda: configure_ipu_system(cfg),
    ]
    for use in uses:
        with pytest.raises(error) as caught:
            use()
        assert str(caught.value) == text
    assert configured_devices() == ()
    with pytest.raises(RuntimeError, match="No IPU devices configured."):
        get_ipu_config()


def test_the_defaults_are_valid(cfg: IPUConfig) -> None:
    validate(cfg)


@pytest.mark.usefixtures("model")
def test_the_defaults_are_valid_on_the_model(cfg: IPUConfig) -> None:
    validate(cfg)


@pytest.mark.parametrize("auto", [0, 1, [1], (1, 2)])
@pytest.mark.parametrize("chosen", [0, 3, [0], (1, 2)])
def test_one_way_of_selection(cfg: IPUConfig, auto: int | list[int], chosen: int | list[int]) -> None:
    cfg.auto_select_ipus = auto
    cfg.select_ipus = chosen
    assert_refused(cfg, "Only one of `auto_select_ipus` and `select_ipus` can be set.")


@pytest.mark.parametrize("ids", [[1, 1], (0, 2, 0)])
def test_ids_are_unique(cfg: IPUConfig, ids: list[int]) -> None:
    cfg.select_ipus = ids
    assert_refused(cfg, "All MultiIPU indices in `select_ipus` must be unique.")


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("ids", [0, 1, [1, 2], (3,)])
def test_the_model_has_no_ids(cfg: IPUConfig, ids: int | list[int]) -> None:
    cfg.select_ipus = ids
    assert_refused(
        cfg,
        "When using the IPUModel, the devices to attach to can only be specified with `auto_select_ipus`.",
    )


def test_ops_on_io_tiles_need_io_tiles(cfg: IPUConfig) -> None:
    cfg.io_tiles.place_ops_on_io_tiles = True
    assert_refused(cfg, "Cannot place ops on I/O tiles when io_tiles.num_io_tiles == 0")
    cfg.io_tiles.num_io_tiles = 1
    validate(cfg)


def test_batch_norm_groups_exclude_io_tiles(cfg: IPUConfig) -> None:
    cfg.norms.experimental.distributed_batch_norm_replica_group_size = 2
    cfg.io_tiles.num_io_tiles = 10
    assert_refused(cfg, f"{GROUP_SIZE} is not supported with I/O tiles.")
    cfg.norms.experimental.distributed_batch_norm_replica_group_size = 1
    validate(cfg)


@pytest.mark.parametrize("size", [0, -1])
def test_batch_norm_groups_have_a_replica(cfg: IPUConfig, size: int) -> None:
    cfg.norms.experimental.distributed_batch_norm_replica_group_size = size
    assert_refused(cfg, f"{GROUP_SIZE} must be at least 1.")


@pytest.mark.parametrize("kind", DeviceConnectionType)
def test_a_version_replaces_the_device(cfg: IPUConfig, kind: DeviceConnectionType) -> None:
    cfg.device_connection.type = kind
    if kind in WITHOUT_DEVICE:
        assert_refused(
            cfg,
            "device_connection.version must be set when device_connection.type is "
            "DeviceConnectionType.NEVER or DeviceConnectionType.PRE_COMPILE",
        )
    else:
        validate(cfg)
    cfg.device_connection.version = "ipu2"
    validate(cfg)


@pytest.mark.parametrize(("index", "count", "fits"), [(0, 1, 1), (1, 2, 1), (5, 1, 0), (-1, 1, 0), (7, 0, 1)])
def test_the_process_is_one_of_those_there_are(cfg: IPUConfig, index: int, count: int, fits: bool) -> None:
    cfg.experimental.multi_replica_distribution.process_index = index
    cfg.experimental.multi_replica_distribution.process_count = count
    if fits:
        validate(cfg)
    else:
        text = f"{DISTRIBUTION}.process_index must be in the range [0, {DISTRIBUTION}.process_count)."
        assert_refused(cfg, text)


@pytest.mark.usefixtures("model")
def test_the_model_has_one_process(cfg: IPUConfig) -> None:
    cfg.experimental.multi_replica_distribution.process_count = 2
    assert_refused(cfg, "Multi-replica distribution is not supported on the IPU model.")


def test_the_model_needs_a_version(cfg: IPUConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg.ipu_model.version = ""
    validate(cfg)
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    assert_refused(cfg, "ipu_model.version must be set when using the IPUModel.")


def test_changes_in_place_are_checked(cfg: IPUConfig) -> None:
    cfg.auto_select_ipus = [1]
    cfg.auto_select_ipus.append(True)
    kind = cfg.get_attribute_metadata("auto_select_ipus").type
    text = f"Trying to set auto_select_ipus to [1, True], but it must be of type {kind}"
    assert_refused(cfg, text, TypeError)


@pytest.mark.parametrize(("key", "value"), [("a", 0.3), ("a", None), (1, "b"), ("a", True)])
def test_poplar_options_are_strings(cfg: IPUConfig, key: str, value: str) -> None:
    cfg.matmuls.poplar_options[key] = value
    text = (
        "matmuls.poplar_options must map option names to strings, for example "
        f"{{'availableMemoryProportion': '0.3'}}. Received: {key!r}: {value!r}."
    )
    assert_refused(cfg, text, TypeError)


@pytest.mark.parametrize(
    ("value", "numbers"), [(0, (0,)), (3, (3,)), ([], ()), ([1, 2], (1, 2)), ((4,), (4,)), ((), ())]
)
def test_as_numbers(value: int | list[int] | tuple[int, ...], numbers: tuple[int, ...]) -> None:
    assert as_numbers(value) == numbers


def test_a_check_does_not_change_the_configuration(cfg: IPUConfig) -> None:
    cfg.auto_select_ipus = 2
    validate(cfg)
    assert cfg.auto_select_ipus == 2
