"""Tables of arguments of queues and pipelines are those of the functions, and what they say is checked."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import ipu_tf as ipu
from ipu_tf._config.argument_table import REQUIRED, ArgumentTable
from ipu_tf._config.library_options import UnknownOptionWarning
from ipu_tf._config.treatment import Effect
from ipu_tf._pipelining.pipeline_table import PIPELINE
from ipu_tf._tracing.queue_arguments import INFEED, OUTFEED
from ipu_tf.config import IPUConfig
from ipu_tf.emulation import clear_session, ignored_arguments
from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
from ipu_tf.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_tf.ops.pipelining_ops import OptimizerFunctionOutput, PipelineStageOptions, pipeline
from tests.helpers.argument_values import REFUSALS, says, taken, values

FUNCTIONS: list[tuple[ArgumentTable, Any, set[str]]] = [
    (PIPELINE, pipeline, set()),
    (INFEED, IPUInfeedQueue, {"dataset", "kwargs"}),
    (OUTFEED, IPUOutfeedQueue, {"outfeed_mode"}),
]
ROWS = [(table, each) for table, _, _ in FUNCTIONS for each in table.arguments]


@pytest.mark.parametrize(("table", "function", "others"), FUNCTIONS, ids=lambda each: getattr(each, "function", ""))
def test_a_table_has_the_parameters_of_its_function(table: ArgumentTable, function: Any, others: set[str]) -> None:
    parameters = inspect.signature(function).parameters
    assert set(table.names) == set(parameters) - others
    for each in table.arguments:
        default = parameters[each.name].default
        if each.default is not REQUIRED:
            assert each.default == getattr(default, "name", default), each.name


@settings(derandomize=True)
@given(st.data())
def test_what_a_table_says_is_what_is_checked(data: st.DataObject) -> None:
    _, argument = data.draw(st.sampled_from(ROWS), "argument")
    value = data.draw(values(), "value")
    said = says(argument, value)
    assert taken(argument, value) is said or said is None


@settings(derandomize=True)
@given(st.data())
def test_queues_take_what_their_tables_say(data: st.DataObject) -> None:
    dataset = tf.data.Dataset.from_tensors(np.ones(2, np.float32))
    makers: dict[str, Any] = {INFEED.function: lambda **given: IPUInfeedQueue(dataset, **given)}
    makers[OUTFEED.function] = IPUOutfeedQueue
    table = data.draw(st.sampled_from([INFEED, OUTFEED]), "table")
    argument = data.draw(st.sampled_from(table.arguments), "argument")
    value = data.draw(values(), "value")
    if taken(argument, value):
        makers[table.function](**{argument.name: value})
        return
    with pytest.raises(REFUSALS):
        makers[table.function](**{argument.name: value})


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"outfeed_loss": "no"}, TypeError, "`outfeed_loss` must be of type bool. Received: 'no'"),
        ({"accumulate_outfeed_dtype": "float33"}, TypeError, "must be of type dtype, or function.*'float33'"),
        ({"gradient_accumulation_dtype": 3}, TypeError, "`gradient_accumulation_dtype` must be of type dtype"),
        ({"outfeed_queue": []}, TypeError, "outfeed_queue is not an instance of ipu_outfeed_queue"),
        ({"optimizer_function": 3}, TypeError, "`optimizer_function` must be of type callable or None. Received: 3"),
        ({"device_mapping": ["0", "1"]}, TypeError, "device_mapping must have .* Received for stage 0: '0'"),
        ({"device_mapping": [0, 1.5]}, TypeError, "device_mapping must have .* Received for stage 1: 1.5"),
        ({"device_mapping": [0, None]}, TypeError, "Received for stage 1: None"),
        ({"device_mapping": [True, False]}, TypeError, "Received for stage 0: True"),
        ({"device_mapping": [0, -2]}, ValueError, "Received for stage 1: -2"),
        ({"device_mapping": [[0], [1]]}, ValueError, r"one device ID. Received: one function on \[0\]"),
        (
            {"outfeed_mask": ["no"], "optimizer_function": len},
            TypeError,
            "`outfeed_mask` must be of type list of bools",
        ),
        ({"name": 3}, TypeError, "`name` must be of type str or None. Received: 3"),
        ({"computational_stages": [len, None]}, TypeError, "must hold functions. Received for stage 1: None"),
    ],
    ids=repr,
)
def test_a_pipeline_looks_at_its_arguments(options: dict[str, Any], error: type[Exception], text: str) -> None:
    given: dict[str, Any] = {"computational_stages": [len, len], "gradient_accumulation_count": 2, **options}
    with pytest.raises(error, match=text):
        pipeline(**given)


@pytest.mark.parametrize("text", [None, 3, ["{}"]], ids=repr)
def test_a_configuration_is_read_from_text(text: Any) -> None:
    with pytest.raises(TypeError, match="A configuration is read from a JSON object as text. Received: "):
        IPUConfig().from_json(text)


@pytest.mark.parametrize("given", [None, 3, ["a"], {1: 2}], ids=repr)
def test_a_configuration_is_read_from_a_dictionary_of_names(given: Any) -> None:
    with pytest.raises(TypeError, match="A configuration is read from a dict .*Received"):
        IPUConfig().from_dict(given)


def test_a_configuration_of_deep_json_is_refused() -> None:
    with pytest.raises(ValueError, match="Received no JSON"):
        IPUConfig().from_json("[" * 100_000)


@pytest.mark.parametrize("device", ["x", "/device:GPU:0", "/device:IPU:-1", -1, None], ids=repr)
def test_a_strategy_is_of_an_ipu(device: Any) -> None:
    with pytest.raises(ValueError, match="Wanted an IPU device such as '/device:IPU:0'. Received: "):
        ipu.ipu_strategy.IPUStrategy(device)


WRONG: Any = 3


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ipu.ipu_strategy.IPUStrategy().run(tf.function(tf.identity), WRONG), "`args` must be a list or tuple"),
        (
            lambda: ipu.ipu_strategy.IPUStrategy().run(tf.function(tf.identity), (), WRONG),
            "`kwargs` must be a dictionary",
        ),
        (lambda: ipu.ipu_compiler.compile(WRONG), "`computation` must be a function. Received: 3"),
        (lambda: ipu.loops.repeat(2, WRONG, [1.0]), "`body` must be a function. Received: 3"),
        (lambda: ipu.loops.while_loop(WRONG, len, [1.0]), "`condition` must be a function. Received: 3"),
    ],
)
def test_other_values_than_functions_and_lists_are_named(call: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        call()


def test_an_unknown_argument_of_an_infeed_is_warned_of() -> None:
    clear_session()
    dataset = tf.data.Dataset.from_tensors(1.0)
    with pytest.warns(UnknownOptionWarning, match="IPUInfeedQueue has 'feed_nam'.* Did you mean 'feed_name'"):
        IPUInfeedQueue(dataset, feed_nam="a")
    IPUInfeedQueue(dataset, feed_name="a")


def test_queues_take_the_arguments_of_former_sdks() -> None:
    IPUInfeedQueue(tf.data.Dataset.from_tensors(1.0), "infeed", 0)
    modes = ipu.ipu_outfeed_queue.IPUOutfeedMode
    former: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("outfeed",), {"outfeed_mode": modes.LAST}),
        (("outfeed", modes.LAST), {"replication_factor": 2, "outfeed_all": False}),
        ((), {"feed_name": "outfeed", "outfeed_all": False, "io_batch_size": 1}),
    ]
    for positional, named in former:
        queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue(*positional, **named)
        assert queue._mode is modes.LAST  # noqa: SLF001
    assert ipu.ipu_outfeed_queue.IPUOutfeedQueue(outfeed_all=True)._mode is modes.ALL  # noqa: SLF001
    with pytest.raises(TypeError, match="unexpected keyword argument 'feed_nam'"):
        ipu.ipu_outfeed_queue.IPUOutfeedQueue(feed_nam="a")
    recorded = {item.name: item.value for item in ignored_arguments()}
    assert recorded["IPUInfeedQueue.feed_name"] == "'infeed'"
    assert recorded["IPUOutfeedQueue.feed_name"] == "'outfeed'"


@pytest.mark.parametrize(
    ("positional", "named", "error", "text"),
    [
        ((), {"io_batch_size": 2}, ValueError, "`io_batch_size` must be 1.* Received: 2"),
        ((), {"replication_factor": 0}, ValueError, "`replication_factor`.* Received: 0"),
        ((), {"replication_factor": "2"}, TypeError, "`replication_factor` must be a positive integer. Received: '2'"),
        ((), {"feed_name": 1}, TypeError, "`feed_name` must be of type str. Received: 1"),
        (("a",), {"feed_name": "b"}, TypeError, "takes one name. Received: 'a' and feed_name='b'"),
        (("a", None, True), {}, TypeError, "differs among releases.* Received: .True,."),
        ((), {"outfeed_all": "no"}, TypeError, "`outfeed_all` must be of type bool. Received: 'no'"),
        (
            ("a", IPUOutfeedMode.LAST),
            {"outfeed_all": True},
            ValueError,
            "contradict each other.* Received: outfeed_all=True and",
        ),
        ((), {"outfeed_all": True, "outfeed_mode": IPUOutfeedMode.LAST}, ValueError, "contradict each other"),
    ],
)
def test_arguments_of_former_outfeeds_that_would_change_results(
    positional: tuple[Any, ...], named: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ipu.ipu_outfeed_queue.IPUOutfeedQueue(*positional, **named)


@pytest.mark.parametrize(
    ("positional", "named", "error", "text"),
    [
        (("a", 0, 2), {}, TypeError, "differs among releases.* Received: .2,."),
        ((), {"replication_factor": 0}, ValueError, "`replication_factor`.* Received: 0"),
        ((), {"data_to_prefetch": 0}, ValueError, "`data_to_prefetch`.* Received: 0"),
    ],
)
def test_arguments_of_former_infeeds_that_would_change_results(
    positional: tuple[Any, ...], named: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        IPUInfeedQueue(tf.data.Dataset.from_tensors(1.0), *positional, **named)


OTHERS: dict[str, Any] = {
    "prefetch_depth": 9,
    "buffer_depth": 7,
    "weight_update_poplar_options": PipelineStageOptions({"availableMemoryProportion": "0.2"}),
    "forward_propagation_stages_poplar_options": [PipelineStageOptions({"availableMemoryProportion": "0.2"})] * 2,
    "backward_propagation_stages_poplar_options": [PipelineStageOptions({"availableMemoryProportion": "0.2"})] * 2,
}
"""Values that are not the defaults; of flags it is the other one."""


def trained_pipeline(**options: Any) -> None:
    """Builds a pipeline that trains."""
    with tf.Graph().as_default():
        weight = tf.compat.v1.get_variable("w", [], tf.float32, use_resource=True)
        pipeline(
            [lambda: weight * 2.0, lambda x: x * x],
            4,
            outfeed_queue=IPUOutfeedQueue(),
            optimizer_function=lambda loss: OptimizerFunctionOutput(
                tf.compat.v1.train.GradientDescentOptimizer(0.1), loss
            ),
            **options,
        )


@pytest.mark.parametrize(
    ("table", "argument"),
    [(table, row.name) for table, row in ROWS if row.treatment.effect is Effect.NO_EFFECT],
    ids=lambda each: getattr(each, "function", each),
)
def test_what_has_no_effect_is_recorded(table: ArgumentTable, argument: str) -> None:
    makers: dict[str, Any] = {
        "pipeline": trained_pipeline,
        "IPUInfeedQueue": lambda **given: IPUInfeedQueue(tf.data.Dataset.from_tensors(1.0), **given),
        "IPUOutfeedQueue": IPUOutfeedQueue,
    }
    name = f"{table.function}.{argument}"
    clear_session()
    makers[table.function]()
    makers[table.function](**{argument: table[argument].default})
    assert name not in {item.name for item in ignored_arguments()}
    value = OTHERS.get(argument, not table[argument].default)
    makers[table.function](**{argument: value})
    assert {item.name: item.value for item in ignored_arguments()}[name] == repr(value)
