"""The table of options of Keras models: it is that of the methods, and decides what they take."""

from __future__ import annotations

import inspect
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipu_tf.emulation import ignored_arguments
from ipu_tf.ipu_strategy import IPUStrategyV1
from keras_ipu.options.checks import INCOMPATIBLE_PIPELINING
from keras_ipu.options.methods import OptionMethods
from keras_ipu.options.model_state import options_of
from keras_ipu.options.option_table import METHODS
from keras_ipu.training.common.step_split import StepSplit
from tests.helpers.argument_values import REFUSALS, taken, values
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

ROWS = [(table.function, each) for table in METHODS.values() for each in table.arguments]


@pytest.mark.parametrize("method", METHODS)
def test_the_table_has_the_parameters_of_the_methods(method: str) -> None:
    signature = inspect.signature(getattr(OptionMethods, method))
    named = {name: each for name, each in signature.parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD}
    for name in set(named) - {"self"}:
        assert METHODS[method][name].default == named[name].default
    further = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    assert further or set(METHODS[method].names) == set(named) - {"self"}


@settings(derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_methods_take_what_the_table_says(strategy: IPUStrategyV1, data: st.DataObject) -> None:
    method, argument = data.draw(st.sampled_from(ROWS), "argument")
    value = data.draw(values(), "value")
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1)])
    before = options_of(model)
    if taken(argument, value):
        getattr(model, method)(**{argument.name: value})
        return
    with pytest.raises(REFUSALS):
        getattr(model, method)(**{argument.name: value})
    assert options_of(model) == before


@pytest.mark.parametrize(
    ("method", "options", "text"),
    [
        ("set_asynchronous_callbacks", {"asynchronous": "False"}, "`asynchronous` must be of type bool. Rec.*'False'"),
        ("set_gradient_accumulation_options", {"use_v2_gradient_accumulation_optimizer": "no"}, "must be of type bool"),
        ("set_gradient_accumulation_options", {"dtype": "float33"}, "`dtype` must be of type dtype"),
        ("set_pipelining_options", {"accumulate_outfeed": "False"}, "`accumulate_outfeed` must be of type bool"),
        ("set_pipelining_options", {"pipeline_schedule": "Grouped"}, "not a member of the PipelineSchedule"),
        ("set_pipelining_options", {"weight_update_poplar_options": {}}, "to be of type PipelineStageOptions"),
        ("set_infeed_queue_options", {"optimise_latency": "no"}, "`optimise_latency` must be of type bool"),
    ],
)
def test_a_value_of_another_type_is_refused_when_it_is_set(
    strategy: IPUStrategyV1, method: str, options: dict[str, Any], text: str
) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(TypeError, match=text):
        getattr(model, method)(**options)


def test_the_reduction_method_has_one_argument(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="Set the `gradient_accumulation_reduction_method` argument to"):
        model.set_pipelining_options(reduction_method="MEAN")
    assert "reduction_method" not in METHODS["set_pipelining_options"].names
    assert not set(INCOMPATIBLE_PIPELINING) & set(METHODS["set_pipelining_options"].names)


def test_what_steps_do_not_read_is_listed(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1)])
    model.set_pipelining_options(gradient_accumulation_for_captured_grads=True, accumulate_outfeed_dtype="float16")
    model.set_gradient_accumulation_options(name="mine")
    found = {item.name for item in ignored_arguments()}
    assert "set_pipelining_options.gradient_accumulation_for_captured_grads" in found
    assert "set_pipelining_options.accumulate_outfeed_dtype" in found
    assert "set_gradient_accumulation_options.name" in found


@pytest.mark.parametrize("dtype", ["float16", np.float16, np.dtype("float16"), lambda variable: np.float16])
def test_a_dtype_of_accumulators_may_be_numpys(dtype: Any) -> None:
    assert StepSplit(accumulation_count=2, dtype=dtype).accumulator_dtype([1.0], 0) == "float16"
