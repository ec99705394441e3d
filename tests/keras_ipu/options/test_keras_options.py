"""The `set_..._options` methods of IPU models: stored values, refused values, and the models that have them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_ipu
from ipu_tf.emulation import ignored_arguments
from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_tf.ipu_strategy import IPUStrategyV1
from keras_ipu.extensions import FunctionalExtension, ModelExtension, SequentialExtension
from keras_ipu.legacy.engine import KerasExtension, extension_delegate
from keras_ipu.options.model_state import options_of
from keras_ipu.options.options import IPUOptions, ReplicatedMetricReductionMethod
from keras_ipu.pipeline.run_checks import accumulation_count, shard_count
from keras_ipu.training.common.step_split import step_split
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

METHODS = (
    "set_asynchronous_callbacks",
    "set_replication_options",
    "set_gradient_accumulation_options",
    "set_pipelining_options",
    "set_infeed_queue_options",
    "set_outfeed_queue_options",
    "get_pipeline_stage_assignment",
    "set_pipeline_stage_assignment",
    "reset_pipeline_stage_assignment",
    "print_pipeline_stage_assignment_summary",
)


class Subclassed(keras.Model):
    """One dense layer."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.dense(x)


def sequential() -> keras.Model:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


def functional() -> keras.Model:
    inputs = keras.Input((2,))
    return keras.Model(inputs, keras.layers.Dense(1)(inputs))


KINDS = pytest.mark.parametrize(
    ("make", "extension"),
    [(sequential, SequentialExtension), (functional, FunctionalExtension), (Subclassed, ModelExtension)],
)


@KINDS
def test_only_models_of_the_scope_are_extended(strategy: IPUStrategyV1, make: Any, extension: type) -> None:
    with strategy.scope():
        inside = make()
    outside = make()
    for kind in (FunctionalExtension, SequentialExtension, ModelExtension):
        assert isinstance(inside, kind) is (kind is extension)
        assert not isinstance(outside, kind)
    for name in METHODS:
        assert hasattr(inside, name)
        assert not hasattr(outside, name)
        assert not hasattr(keras.Model, name)
    with pytest.raises(AttributeError, match="only models of an `IPUStrategy`'s scope have it"):
        outside.set_pipelining_options()
    assert options_of(outside) == IPUOptions()


def test_without_keras_extensions_models_stay_stock(strategy: IPUStrategyV1) -> None:
    with IPUStrategyV1(enable_keras_extensions=False).scope():
        assert not hasattr(functional(), "set_pipelining_options")


@KINDS
def test_options_are_kept(strategy: IPUStrategyV1, make: Any, extension: type) -> None:
    with strategy.scope():
        model = make()
    assert options_of(model) == IPUOptions()
    model.set_asynchronous_callbacks(True)
    model.set_replication_options("mean")
    model.set_gradient_accumulation_options(4, "mean", use_v2_gradient_accumulation_optimizer=True, dtype="float32")
    model.set_infeed_queue_options(prefetch_depth=2)
    model.set_outfeed_queue_options(buffer_depth=5)
    model.set_pipelining_options(
        8, [1, 0], True, GradientAccumulationReductionMethod.RUNNING_MEAN, offload_weights=True
    )
    assert options_of(model) == IPUOptions(
        asynchronous_callbacks=True,
        replicated_metric_reduction=ReplicatedMetricReductionMethod.MEAN,
        gradient_accumulation_steps=4,
        gradient_accumulation_reduction="RUNNING_MEAN",
        use_v2_gradient_accumulation_optimizer=True,
        gradient_accumulation_kwargs={"dtype": "float32"},
        pipelining_gradient_accumulation_steps=8,
        pipelining_device_mapping=(1, 0),
        pipelining_accumulate_outfeed=True,
        pipelining_kwargs={"gradient_accumulation_for_captured_grads": False, "offload_weights": True},
        infeed_kwargs={"prefetch_depth": 2},
        outfeed_kwargs={"buffer_depth": 5},
    )
    assert model._gradient_accumulation_reduction_method is GradientAccumulationReductionMethod.RUNNING_MEAN
    assert model._pipelining_device_mapping == [1, 0]
    assert model._infeed_kwargs == {"prefetch_depth": 2}
    model.set_pipelining_options()
    assert options_of(model).pipelining_device_mapping == (1, 0)
    assert options_of(model).gradient_accumulation_reduction == "SUM"


def test_the_accumulators_dtype_is_that_of_the_method_that_applies(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.set_gradient_accumulation_options(4, dtype="float16")
    model.set_pipelining_options(4, [0, 0], gradient_accumulation_dtype="float64")
    assert step_split(model, 4).accumulator_dtype(None, 0) == tf.float16
    model.set_pipeline_stage_assignment([0, 1])
    assert step_split(model, 4).accumulator_dtype(None, 0) == tf.float64
    model.set_pipelining_options(4, [0, 0])
    assert step_split(model, 4).accumulator_dtype(None, 0) is None


@pytest.mark.parametrize(
    ("method", "kwargs"),
    [
        ("set_asynchronous_callbacks", {"asynchronous": False}),
        ("set_replication_options", {}),
        ("set_gradient_accumulation_options", {}),
        ("set_pipelining_options", {}),
        ("set_infeed_queue_options", {}),
        ("set_outfeed_queue_options", {}),
        ("set_pipeline_stage_assignment", {"pipeline_stage_assignment": [0]}),
        ("reset_pipeline_stage_assignment", {}),
    ],
)
def test_setting_anything_resets_the_compiled_functions(
    strategy: IPUStrategyV1, method: str, kwargs: dict[str, Any]
) -> None:
    with strategy.scope():
        model = sequential()
        model.compile("sgd", "mse")
        model.make_train_function(), model.make_test_function(), model.make_predict_function()
    assert model.train_function and model.test_function and model.predict_function
    getattr(model, method)(**kwargs)
    assert (model.train_function, model.test_function, model.predict_function) == (None, None, None)


@pytest.mark.parametrize(
    ("method", "kwargs", "error", "text"),
    [
        (
            "set_gradient_accumulation_options",
            {"gradient_accumulation_steps_per_replica": steps},
            ValueError,
            f"Expected `gradient_accumulation_steps_per_replica` to be a positive integer, but got {steps} instead.",
        )
        for steps in (0, -1, 2.0, "2", True)
    ]
    + [
        (
            "set_pipelining_options",
            {"gradient_accumulation_steps_per_replica": -1},
            ValueError,
            "Expected `gradient_accumulation_steps_per_replica` to be a positive integer, but got -1 instead.",
        ),
        (
            "set_gradient_accumulation_options",
            {"opt": None},
            ValueError,
            "Found `opt` key in `gradient_accumulation_optimizer_kwargs`. This is not supported as the optimizer",
        ),
        (
            "set_gradient_accumulation_options",
            {"num_mini_batches": 2},
            ValueError,
            "Found `num_mini_batches` key in `gradient_accumulation_optimizer_kwargs`. Set the "
            "`gradient_accumulation_steps_per_replica` argument to `set_gradient_accumulation_options` instead.",
        ),
        (
            "set_gradient_accumulation_options",
            {"experimental_normalize_gradients": True},
            ValueError,
            "Found `experimental_normalize_gradients` argument to `set_gradient_accumulation_options`.",
        ),
        (
            "set_gradient_accumulation_options",
            {"gradient_accumulation_reduction_method": "median"},
            ValueError,
            "Cannot parse median as one of GradientAccumulationReductionMethod. Valid values are: SUM, MEAN, "
            "RUNNING_MEAN.",
        ),
        (
            "set_replication_options",
            {"replicated_metric_reduction_method": "median"},
            ValueError,
            "Cannot parse median as a ReplicatedMetricReductionMethod. Valid values are: NONE, LIST, SUM, MEAN.",
        ),
        (
            "set_pipelining_options",
            {"experimental_normalize_gradients": True},
            ValueError,
            "Found `experimental_normalize_gradients` argument to `set_pipelining_options`.",
        ),
        (
            "set_pipelining_options",
            {"gradient_accumulation_count": 2},
            ValueError,
            "Found `gradient_accumulation_count` key in `pipelining_kwargs`. Set the "
            "`gradient_accumulation_steps_per_replica` argument to `set_pipelining_options` instead.",
        ),
    ]
    + [
        (
            "set_pipelining_options",
            {"device_mapping": mapping},
            ValueError,
            "Expected `device_mapping` to be a list of integers.",
        )
        for mapping in ([0.0], (0, 1), 3)
    ]
    + [
        (
            "set_pipelining_options",
            {name: None},
            ValueError,
            f"Found `{name}` key in `pipelining_kwargs`. This argument is automatically set by Keras.",
        )
        for name in ("computational_stages", "repeat_count", "inputs", "infeed_queue", "outfeed_queue")
    ]
    + [
        (
            "set_pipelining_options",
            {name: None},
            ValueError,
            f"Found `{name}` key in `pipelining_kwargs`. This argument is not compatible with Keras.",
        )
        for name in ("outfeed_loss", "outfeed_mask", "batch_serialization_iterations")
    ]
    + [
        (
            "set_infeed_queue_options",
            {name: None},
            ValueError,
            f"Found `{name}` key in `kwargs`. This argument is automatically set by Keras.",
        )
        for name in ("dataset", "infeed_spec", "element_spec")
    ]
    + [
        (method, {name: None}, ValueError, f"Found `{name}` key in `kwargs`. This argument is not compatible with")
        for method, name in (
            ("set_infeed_queue_options", "_internal_id"),
            ("set_outfeed_queue_options", "outfeed_mode"),
            ("set_outfeed_queue_options", "device_ordinal"),
        )
    ]
    + [
        (method, {"depth": 3}, TypeError, rf"{method}\(\) got an unexpected keyword argument 'depth'")
        for method in ("set_infeed_queue_options", "set_outfeed_queue_options")
    ],
)
def test_wrong_options_are_refused(
    strategy: IPUStrategyV1, method: str, kwargs: dict[str, Any], error: type[Exception], text: str
) -> None:
    with strategy.scope():
        model = sequential()
    with pytest.raises(error, match=text):
        getattr(model, method)(**kwargs)
    assert options_of(model) == IPUOptions()


def test_options_without_effect_are_listed(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        model = sequential()
    model.set_infeed_queue_options(prefetch_depth=7)
    model.set_pipelining_options(offload_activations=True)
    model.set_gradient_accumulation_options(2, use_v2_gradient_accumulation_optimizer=True)
    found = {item.name: item.value for item in ignored_arguments()}
    assert found["set_infeed_queue_options.prefetch_depth"] == "7"
    assert found["set_pipelining_options.offload_activations"] == "True"
    assert found["set_gradient_accumulation_options.use_v2_gradient_accumulation_optimizer"] == "True"


@pytest.mark.parametrize("doing", ["fit", "evaluate", "predict"])
def test_an_overridden_make_function_is_refused(strategy: IPUStrategyV1, doing: str) -> None:
    class Own(Subclassed):
        def make_train_function(self, force: bool = False) -> Any:
            return super().make_train_function(force)

        def make_test_function(self, force: bool = False) -> Any:
            return super().make_test_function(force)

        def make_predict_function(self, force: bool = False) -> Any:
            return super().make_predict_function(force)

    made = {"fit": "make_train_function", "evaluate": "make_test_function", "predict": "make_predict_function"}
    with strategy.scope():
        model = Own()
        model.compile("sgd", "mse")
        with pytest.raises(RuntimeError, match=f"The function `{made[doing]}` for the model .* has been overridden."):
            _run(model, doing)


def test_an_overridden_train_step_runs_on_the_device_unless_gradients_are_accumulated(strategy: IPUStrategyV1) -> None:
    class Own(Subclassed):
        def train_step(self, data: Any) -> Any:
            return {**super().train_step(data), "mine": keras.ops.ones(())}

    with strategy.scope():
        model = Own()
        model.compile("sgd", "mse")
        with device_work() as measured:
            logs = model.fit(np.ones((4, 2)), np.ones((4, 1)), batch_size=1, verbose=0).history
        assert measured.counts.steps == 4
        assert logs["mine"] == [1.0]
        model.set_gradient_accumulation_options(2)
        with pytest.raises(RuntimeError, match="The function `train_step` for the model .* has been overridden"):
            _run(model, "fit")


@pytest.mark.parametrize(
    ("doing", "step", "text"),
    [
        ("fit", "train_step", "not supported when using Keras within an IPUStrategy"),
        ("evaluate", "test_step", "not supported for pipelined Keras models"),
        ("predict", "predict_step", "not supported for pipelined Keras models"),
        ("predict", "call", "not supported for pipelined Keras Sequential models"),
    ],
)
def test_a_pipelined_model_with_a_step_of_its_own_is_refused(
    strategy: IPUStrategyV1, doing: str, step: str, text: str
) -> None:
    own = type("Own", (keras.Sequential,), {step: lambda self, *args: None})
    with strategy.scope():
        model = own([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.set_pipeline_stage_assignment([0])
        with pytest.raises(RuntimeError, match=f"The function `{step}` for the model .* has been overridden. .*{text}"):
            _run(model, doing)


def test_a_subclassed_model_needs_a_call(strategy: IPUStrategyV1) -> None:
    class Nothing(keras.Model):
        pass

    with strategy.scope():
        model = Nothing()
        model.compile("sgd", "mse")
        with pytest.raises(NotImplementedError, match="The function `call` for the model .* has not been implemented"):
            _run(model, "fit")


def test_steps_of_gradient_accumulation(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        model = sequential()
    assert accumulation_count(model, 3) == 1
    model.set_gradient_accumulation_options(2)
    assert accumulation_count(model, 4) == 2
    with pytest.raises(
        RuntimeError, match=r"The model has been configured .* \(set to 3\) is not divisible by .*\(2\)"
    ):
        accumulation_count(model, 3)
    model.set_pipeline_stage_assignment([0])
    with pytest.raises(ValueError, match="has not been set through `set_pipelining_options\\(\\)`"):
        accumulation_count(model, 4)
    model.set_pipelining_options(4)
    assert accumulation_count(model, 4) == 4
    with pytest.raises(RuntimeError, match="The pipelined model has been configured"):
        accumulation_count(model, 2)


def test_ipus_of_a_replica(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1) for _ in range(3)])
    assert shard_count(model) == 1
    model.set_pipeline_stage_assignment([0, 1, 2])
    assert shard_count(model) == 3
    model.set_pipelining_options(device_mapping=[0, 1, 0])
    assert shard_count(model) == 2


def test_a_layer_of_ones_own_may_be_extended(strategy: IPUStrategyV1) -> None:
    class Doubled(keras.layers.Layer):
        @extension_delegate
        def call(self, x: Any) -> Any:
            return x + x

        @classmethod
        @extension_delegate
        def label(cls) -> str:
            return cls.__name__

    class Extension(KerasExtension):
        def _call_supported(self, x: Any) -> bool:
            return bool(x.shape == (2,))

        def _call_delegate(self: Any, x: Any) -> Any:
            return 10 * self.call(x, __extension_delegate=False)

        @classmethod
        def _label_supported(cls) -> bool:
            return True

        @classmethod
        def _label_delegate(cls: Any) -> str:
            return "extended " + cls.label(__extension_delegate=False)

    layer = Doubled()
    strategy._register_keras_extension(Doubled, KerasExtension, Extension)
    with strategy.scope():
        np.testing.assert_array_equal(layer(np.ones(2)), [20, 20])
        np.testing.assert_array_equal(layer(np.ones(1)), [2])
        assert Doubled.label() == "extended Doubled"
    np.testing.assert_array_equal(layer(np.ones(2)), [2, 2])
    strategy._delete_keras_extension(Doubled, KerasExtension)
    with strategy.scope():
        assert Doubled.label() == "Doubled"
        with pytest.raises(ValueError, match="Expected an extension that is a KerasExtension. Received"):
            strategy._register_keras_extension(Doubled, KerasExtension, int)


def test_a_number_is_a_shape_within_the_scope(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        assert keras.Input(3).shape == (None, 3)
        assert keras.Input((3, 4)).shape == (None, 3, 4)
    with pytest.raises(ValueError, match="Cannot convert '3' to a shape"):
        keras.Input(3)


def test_graphcores_names_lie_in_the_package() -> None:
    assert keras_ipu.__ipu__built__ == "1"
    assert keras_ipu.ReplicatedMetricReductionMethod.parse(ReplicatedMetricReductionMethod.SUM).name == "SUM"
    assert keras_ipu.PipelineStage.__name__ == "PipelineStage"


def _run(model: keras.Model, doing: str) -> None:
    x, y = np.ones((4, 2)), np.ones((4, 1))
    if doing == "predict":
        model.predict(x, batch_size=1, verbose=0)
    else:
        getattr(model, doing)(x, y, batch_size=1, verbose=0)


MISSPELT = [
    ("set_pipelining_options", "offload_activation", "offload_activations"),
    ("set_pipelining_options", "pipeline_shedule", "pipeline_schedule"),
    ("set_gradient_accumulation_options", "dtyp", "dtype"),
    ("set_infeed_queue_options", "prefetch_dept", "prefetch_depth"),
    ("set_outfeed_queue_options", "bufer_depth", "buffer_depth"),
]


@pytest.mark.parametrize(("method", "given", "meant"), MISSPELT)
def test_a_misspelt_argument_is_refused_with_what_was_meant(
    strategy: IPUStrategyV1, method: str, given: str, meant: str
) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1)])
    before = options_of(model)
    with pytest.raises(TypeError, match=rf"{method}\(\) .* '{given}'. Did you mean '{meant}'\? It takes: .*{meant}"):
        getattr(model, method)(**{given: 1})
    assert options_of(model) == before


@pytest.mark.parametrize(
    ("method", "options", "error", "text"),
    [
        ("set_pipelining_options", {"device_mapping": [0, -1]}, ValueError, r"from 0 on. Received: \[0, -1\]"),
        ("set_pipelining_options", {"device_mapping": [0, 1.0]}, ValueError, r"list of integers. Received: \[0, 1.0\]"),
        ("set_pipelining_options", {"device_mapping": [0, True]}, ValueError, "list of integers. Received"),
        ("set_infeed_queue_options", {"prefetch_depth": 0}, ValueError, "must be greater than zero, but it is 0"),
        ("set_infeed_queue_options", {"prefetch_depth": 256}, ValueError, "must be less than 256, but it is 256"),
        ("set_infeed_queue_options", {"prefetch_depth": 2.5}, TypeError, "`prefetch_depth` must be an integer"),
        ("set_outfeed_queue_options", {"buffer_depth": -1}, ValueError, "cannot be less than 1. Received: -1"),
        ("set_outfeed_queue_options", {"buffer_depth": None}, TypeError, "`buffer_depth` must be an integer"),
    ],
)
def test_an_option_out_of_range_is_refused_when_it_is_set(
    strategy: IPUStrategyV1, method: str, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1)])
    before = options_of(model)
    with pytest.raises(error, match=text):
        getattr(model, method)(**options)
    assert options_of(model) == before
