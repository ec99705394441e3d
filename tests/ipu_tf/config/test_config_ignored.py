"""Configuration attributes without effect: they are listed, and warned of where an IPU would differ."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from ipu_tf._config.base import settings_of
from ipu_tf._config.ignored_options import ignored_in
from ipu_tf._config.state import configured_devices
from ipu_tf._config.treatment import Effect
from ipu_tf.config import (
    DeviceConnectionType,
    EmulationWarning,
    IgnoredOption,
    IPUConfig,
    SelectionOrder,
    StochasticRoundingBehaviour,
    configure_ipu_system,
    ignored_options,
    reset_ipu_configuration,
)
from ipu_tf.emulation import clear_session

pytestmark = pytest.mark.filterwarnings("error", "ignore:.*enable_fast_math:DeprecationWarning")

WARNED: dict[str, Any] = {
    "convolutions.poplar_options": {"partialsType": "half"},
    "experimental.multi_replica_distribution.process_count": 2,
    "matmuls.poplar_options": {"partialsType": "half", "availableMemoryProportion": "0.3"},
    "norms.use_stable_statistics": True,
    "norms.experimental.distributed_batch_norm_replica_group_size": 2,
}
QUIET: dict[str, Any] = {
    "allow_recompute": True,
    "selection_order": SelectionOrder.HOOF,
    "device_connection.type": DeviceConnectionType.ON_DEMAND,
    "convolutions.poplar_options": {"partialsType": "float"},
    "matmuls.poplar_options": {"availableMemoryProportion": "0.3"},
    "slices.poplar_options": {"availableMemoryProportion": "0.3"},
    "experimental.multi_replica_distribution.process_count": 1,
    "optimizations.enable_fast_math": True,
    "scheduling.maximum_scheduler_lookahead_depth": 6,
}
MODELLED: dict[str, Any] = {
    "serialization_output_folder": "/tmp/x",
    "compilation_poplar_options": {"autoReport.all": "false"},
    "auto_select_ipus": [2, 4],
    "select_ipus": [2, 3],
    "device_connection.type": DeviceConnectionType.NEVER,
    "experimental.enable_prng_stability": True,
    "floating_point_behaviour.inv": True,
    "floating_point_behaviour.div0": True,
    "floating_point_behaviour.oflo": True,
    "floating_point_behaviour.esr": StochasticRoundingBehaviour.ON,
    "floating_point_behaviour.nanoo": True,
    "floating_point_behaviour.set_all": True,
    "graphcore_rules": True,
}
HALF_PARTIALS = {"partialsType": "half"}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing is configured and nothing was warned of."""
    clear_session()
    yield
    clear_session()


def with_value(name: str, value: object) -> IPUConfig:
    """A configuration with one attribute set."""
    cfg = IPUConfig()
    cfg.device_connection.version = "ipu2"
    *parents, last = name.split(".")
    owner: Any = cfg
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, last, value)
    return cfg


def ignored_names(cfg: IPUConfig) -> list[str]:
    """Options that the configuration ignores, but for the version that `with_value` sets."""
    return [item.name for item in ignored_in(cfg) if item.name != "device_connection.version"]


def test_warnings_are_for_exactly_these_attributes() -> None:
    effects = {item.metadata.name: item.metadata.effect for item in settings_of(IPUConfig())}
    assert {name for name, effect in effects.items() if effect is Effect.WARNS} == set(WARNED)
    assert {name for name, effect in effects.items() if effect is Effect.MODELLED} == set(MODELLED)


def test_the_defaults_ignore_nothing() -> None:
    assert ignored_options() == ()
    IPUConfig().configure_ipu_system()
    assert ignored_options() == ()


@pytest.mark.parametrize("name", WARNED)
def test_what_an_ipu_would_do_differently_warns_once(name: str) -> None:
    cfg = with_value(name, WARNED[name])
    with pytest.warns(EmulationWarning) as caught:
        configure_ipu_system(cfg)
    assert len(caught) == 1
    assert str(caught[0].message).startswith(f"{name} = {WARNED[name]} is not emulated. ")
    assert caught[0].filename == __file__
    assert ignored_names(cfg) == [name]
    configure_ipu_system(cfg)
    reset_ipu_configuration()
    configure_ipu_system(cfg)


@pytest.mark.parametrize("name", QUIET)
def test_what_changes_no_results_is_only_listed(name: str) -> None:
    cfg = with_value(name, QUIET[name])
    cfg.configure_ipu_system()
    found = [item for item in ignored_options() if item.name == name]
    assert [(item.name, item.value) for item in found] == [(name, QUIET[name])]
    assert found[0].reason.endswith(".")


@pytest.mark.parametrize("name", MODELLED)
def test_what_is_modelled_is_not_listed(name: str) -> None:
    with_value(name, MODELLED[name]).configure_ipu_system()
    assert [item.name for item in ignored_options()] == ["device_connection.version"]


def test_another_value_warns_again() -> None:
    for value in (HALF_PARTIALS, HALF_PARTIALS | {"availableMemoryProportion": "0.3"}):
        with pytest.warns(EmulationWarning, match=re.escape(f"matmuls.poplar_options = {value} is not emulated")):
            with_value("matmuls.poplar_options", value).configure_ipu_system()


def test_the_method_warns_at_the_users_line() -> None:
    with pytest.warns(EmulationWarning) as caught:
        with_value("convolutions.poplar_options", HALF_PARTIALS).configure_ipu_system()
    assert caught[0].filename == __file__


def test_each_attribute_warns_on_its_own() -> None:
    cfg = IPUConfig()
    cfg.matmuls.poplar_options = HALF_PARTIALS
    cfg.convolutions.poplar_options = HALF_PARTIALS
    with pytest.warns(EmulationWarning) as caught:
        cfg.configure_ipu_system()
    assert [str(item.message).split(" ")[0] for item in caught] == [
        "convolutions.poplar_options",
        "matmuls.poplar_options",
    ]


def test_a_warning_made_an_error_leaves_nothing_configured() -> None:
    cfg = with_value("convolutions.poplar_options", HALF_PARTIALS)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error", EmulationWarning)
            with pytest.raises(EmulationWarning):
                cfg.configure_ipu_system()
        assert configured_devices() == ()


def test_a_refused_configuration_does_not_warn() -> None:
    cfg = with_value("convolutions.poplar_options", HALF_PARTIALS)
    cfg.auto_select_ipus = 99
    with pytest.raises(tf.errors.FailedPreconditionError):
        cfg.configure_ipu_system()


def test_the_list_is_that_of_what_was_configured() -> None:
    cfg = with_value("slices.poplar_options", {"availableMemoryProportion": "0.3"})
    cfg.configure_ipu_system()
    before = ignored_options()
    cfg.slices.poplar_options["c"] = "d"
    assert ignored_options() == before
    assert [item.value for item in before if item.name == "slices.poplar_options"] == [
        {"availableMemoryProportion": "0.3"}
    ]
    next(item for item in before if item.name == "slices.poplar_options").value["x"] = "y"
    assert ignored_options() != before
    reset_ipu_configuration()
    assert ignored_options() == ()


def test_an_ignored_option_is_a_frozen_record() -> None:
    option = IgnoredOption("a", 1, "because.")
    with pytest.raises(AttributeError):
        option.name = "b"  # type: ignore[misc]
