"""Every option with a range is checked where it is set, read and configured; options of libraries by their names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ipu_tf as ipu
from ipu_tf._config.base import settings_of
from ipu_tf._config.library_options import KNOWN_OPTIONS, UnknownOptionWarning
from ipu_tf._config.validation import validate
from ipu_tf.config import IPUConfig
from ipu_tf.emulation import clear_session
from ipu_tf.ops.pipelining_ops import PipelineStageOptions

NUMBERS = [item.metadata for item in settings_of(IPUConfig()) if item.metadata.actual_type in (int, float)]
RANGED = [each for each in NUMBERS if each.range]


def option(config: IPUConfig, name: str) -> Any:
    """An option as a configuration holds it."""
    return next(item for item in settings_of(config) if item.metadata.name == name)


def test_every_number_has_a_range_or_a_rule_of_its_own() -> None:
    others = {each.name for each in NUMBERS} - {each.name for each in RANGED}
    assert others == {
        "experimental.multi_replica_distribution.process_index",
        "norms.experimental.distributed_batch_norm_replica_group_size",
    }


@given(st.data())
def test_numbers_out_of_range_are_refused_and_others_kept(data: st.DataObject) -> None:
    """The table of options says what may come; whatever comes, a configuration holds only that."""
    chosen = data.draw(st.sampled_from(RANGED), "option")
    kind: Any = chosen.actual_type
    drawn = st.integers(-(2**40), 2**40) if kind is int else st.floats()
    value = data.draw(st.one_of(drawn, st.integers(-3, 3).map(kind)), "value")
    least, most = chosen.bounds
    config = IPUConfig()
    item = option(config, chosen.name)
    if least <= value <= most:
        setattr(item.owner, item.attribute, value)
        validate(config)
        assert item.value == value
        return
    with pytest.raises(ValueError, match=rf"{chosen.name} must be (at least|from) .*\. Received: "):
        setattr(item.owner, item.attribute, value)
    with pytest.raises(ValueError, match=f"{chosen.name} must be"):
        config.from_dict({chosen.name: value})
    assert item.value == chosen.default


def test_ranges_are_documented() -> None:
    for each in RANGED:
        assert f"Range: {each.range}." in each.to_rst()


@pytest.mark.parametrize(
    ("text", "error"), [("[1]", TypeError), ("3", TypeError), ("null", TypeError), ("{", ValueError)]
)
def test_what_is_no_json_object_is_no_configuration(text: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="A configuration is read from a JSON object. Received"):
        IPUConfig().from_json(text)
    IPUConfig().from_json(json.dumps({}))


@pytest.mark.parametrize("where", [name for name in KNOWN_OPTIONS if name.endswith("poplar_options")])
def test_an_unknown_option_of_a_library_is_warned_of_once(where: str) -> None:
    clear_session()
    known = KNOWN_OPTIONS[where]
    config = IPUConfig()
    options = option(config, where).value
    options.update(dict.fromkeys(known, "0.5"))
    validate(config)
    options[known[0][:-1]] = "0.5"
    with pytest.warns(UnknownOptionWarning, match=f"{where} has .*Did you mean '{known[0]}'. Known are"):
        validate(config)
    validate(config)


def test_an_unknown_option_of_a_stage_is_warned_of() -> None:
    clear_session()
    with pytest.warns(UnknownOptionWarning, match="Options.matmul_options.*mean 'availableMemoryProportion'"):
        PipelineStageOptions(matmul_options={"availableMemoryPortion": "0.1"})
    PipelineStageOptions({"partialsType": "half"}, {"partialsType": "half"}, {"indicesAreSorted": "true"})


@pytest.mark.parametrize("inputs", [3, "ab", {"x": 1.0}], ids=repr)
def test_inputs_of_compile_are_a_list(inputs: Any) -> None:
    with pytest.raises(TypeError, match="`inputs` must be a list or tuple of tensors, or None. Received: "):
        ipu.ipu_compiler.compile(lambda *values: values, inputs=inputs)


@pytest.mark.parametrize("dataset", [None, [1.0], 3], ids=repr)
def test_an_infeed_is_of_a_dataset(dataset: Any) -> None:
    with pytest.raises(TypeError, match="Expected `dataset` argument to be of type `tf.data.Dataset`, but got"):
        ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)


def test_a_loop_takes_an_infeed_queue() -> None:
    with pytest.raises(TypeError, match=r"`infeed_queue` must be an IPUInfeedQueue or None. Received: \[1\.0\]"):
        ipu.loops.repeat(2, lambda x: x, [1.0], [1.0])  # type: ignore[arg-type]
