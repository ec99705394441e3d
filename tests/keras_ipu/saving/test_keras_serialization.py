"""Options and pipeline stages are saved, loaded and cloned with IPU models, and ignored by stock Keras."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from ipu_tf.ipu_strategy import IPUStrategyV1
from keras_ipu.options.model_state import ModelState, options_of, state_of
from keras_ipu.options.options import IPUOptions
from keras_ipu.pipeline.saved_stages import fill_in_stages, stages_to_save
from keras_ipu.saving.saving import KEY, load_assets
from tests.helpers.keras_parity import numbers
from tests.helpers.one_ipu import strategy
from tests.keras_ipu.pipeline.test_keras_stages import assign

__all__ = ["strategy"]

# Keras 3.15 asks TensorFlow 2.21's tensors for their arrays in a way that numpy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
X = numbers(6, 4)


@keras.saving.register_keras_serializable("ipu_tests")
class Subclassed(keras.Model):
    """Two dense layers and a model."""

    def __init__(self, units: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.first, self.last = layers.Dense(units), layers.Dense(2)
        self.inner = keras.Sequential([layers.Dense(5)])

    def call(self, x: Any) -> Any:
        return self.last(self.inner(self.first(x)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units}


def sequential() -> keras.Model:
    return keras.Sequential(
        [keras.Input((4,)), layers.Dense(3), keras.Sequential([keras.Input((3,)), layers.Dense(2)])]
    )


def functional() -> keras.Model:
    a = keras.Input((4,))
    dense = layers.Dense(4)
    return keras.Model(a, dense(keras.Sequential([keras.Input((4,)), layers.Dense(4)])(dense(a))))


def subclassed() -> keras.Model:
    model = Subclassed()
    model.build((None, 4))
    return model


MAKERS = pytest.mark.parametrize("make", [sequential, functional, subclassed])
GRAPHS = pytest.mark.parametrize("make", [sequential, functional])


def with_options(make: Callable[[], keras.Model]) -> keras.Model:
    """A model with options other than the defaults."""
    model = make()
    assign(model, itertools.count())
    model.set_replication_options("sum")
    model.set_gradient_accumulation_options(4, "mean")
    model.set_pipelining_options(8, [0, 1, 0], True, "running_mean")
    model.set_infeed_queue_options(prefetch_depth=2)
    return model


def stages(model: keras.Model) -> Any:
    """A model's stages."""
    return stages_to_save(model.get_pipeline_stage_assignment())


def assert_same_options(found: keras.Model, wanted: keras.Model) -> None:
    """Asserts the same options, those that are not saved left out, and the same stages."""
    assert stages(found) == stages(wanted)
    assert _saved(options_of(found)) == _saved(options_of(wanted))
    assert found._is_pipelined() == wanted._is_pipelined()


def _saved(options: IPUOptions) -> dict[str, Any]:
    left_out = ("gradient_accumulation_kwargs", "pipelining_kwargs", "use_v2_gradient_accumulation_optimizer")
    return {name: value for name, value in vars(options).items() if name not in left_out}


def saved_and_loaded(model: keras.Model, folder: Path, name: str = "model.keras") -> keras.Model:
    """The model from its file."""
    model.save(folder / name)
    return keras.models.load_model(folder / name)


@MAKERS
@pytest.mark.parametrize("name", ["model.keras", "folder"])
def test_files_have_the_options(
    strategy: IPUStrategyV1, tmp_path: Path, make: Callable[[], keras.Model], name: str
) -> None:
    with strategy.scope():
        model = with_options(make)
        loaded = saved_and_loaded(model, tmp_path, name)
    assert_same_options(loaded, model)
    assert loaded.predict is not None
    np.testing.assert_allclose(loaded(X), model(X))
    loaded.reset_pipeline_stage_assignment()
    assert not loaded._is_pipelined()


@GRAPHS
def test_h5_files_have_the_options(strategy: IPUStrategyV1, tmp_path: Path, make: Callable[[], keras.Model]) -> None:
    with strategy.scope():
        model = with_options(make)
        assert_same_options(saved_and_loaded(model, tmp_path, "model.h5"), model)


@GRAPHS
def test_configs_have_the_options(strategy: IPUStrategyV1, make: Callable[[], keras.Model]) -> None:
    with strategy.scope():
        model = with_options(make)
        config = model.get_config()
        assert config[KEY]["gradient_accumulation_steps"] == 4
        assert_same_options(type(model).from_config(config), model)
        assert_same_options(keras.models.model_from_json(model.to_json()), model)


@MAKERS
def test_copies_have_the_options(strategy: IPUStrategyV1, make: Callable[[], keras.Model]) -> None:
    with strategy.scope():
        model = with_options(make)
        assert_same_options(copy.deepcopy(model), model)
        assert_same_options(pickle.loads(pickle.dumps(model)), model)


@GRAPHS
def test_clones_have_the_options(strategy: IPUStrategyV1, make: Callable[[], keras.Model]) -> None:
    with strategy.scope():
        model = with_options(make)
        clone = keras.models.clone_model(model)
    assert_same_options(clone, model)
    assert options_of(clone) == options_of(model)
    assert options_of(clone).pipelining_kwargs
    clone.set_gradient_accumulation_options(2)
    assert options_of(model).gradient_accumulation_steps == 4


@MAKERS
def test_stock_keras_loads_what_is_saved_here_and_saves_it_again(
    strategy: IPUStrategyV1, tmp_path: Path, make: Callable[[], keras.Model]
) -> None:
    with strategy.scope():
        model = with_options(make)
        model.save(tmp_path / "here.keras")
    stock = keras.models.load_model(tmp_path / "here.keras")
    np.testing.assert_allclose(stock(X), model(X))
    assert state_of(stock) == ModelState()
    assert not hasattr(stock, "set_pipelining_options")
    again = saved_and_loaded(stock, tmp_path, "stock.keras")
    np.testing.assert_allclose(again(X), model(X))
    with strategy.scope():
        loaded = keras.models.load_model(tmp_path / "stock.keras")
    assert options_of(loaded) == IPUOptions()
    assert not loaded._is_pipelined()
    np.testing.assert_allclose(loaded(X), model(X))


@pytest.mark.parametrize("make", [sequential, functional])
def test_models_without_options_have_the_config_of_stock_keras(
    strategy: IPUStrategyV1, make: Callable[[], keras.Model]
) -> None:
    with strategy.scope():
        assert KEY not in make().get_config()
    assert KEY not in make().get_config()


def test_a_functional_model_with_a_constructor_of_its_own_keeps_its_config(strategy: IPUStrategyV1) -> None:
    class Own(keras.Model):
        def __init__(self, units: int, **kwargs: Any) -> None:
            a = keras.Input((4,))
            super().__init__(a, layers.Dense(units)(a), **kwargs)
            self.units = units

        def get_config(self) -> dict[str, Any]:
            return {"units": self.units, "name": self.name}

    with strategy.scope():
        model = Own(3)
        model.set_gradient_accumulation_options(2)
        assert Own.from_config(model.get_config()).output_shape == (None, 3)


def test_stages_of_other_layers_are_refused(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        model = keras.Sequential([layers.Dense(2)])
    with pytest.raises(
        ValueError, match="The saved pipeline stages are of a model with 2 calls of layers, but this one"
    ):
        fill_in_stages(model.get_pipeline_stage_assignment(), [0, 1])


def test_saved_stages_are_checked_as_assigned_ones_are(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(2)])
        assign(model, itertools.count())
        config = model.get_config()
        config[KEY]["pipeline_stages"] = [1, 0]
        loaded = keras.Sequential.from_config(config)
    wrong = "The saved pipeline stages of '.*' do not fit its layers: .*needs to be assigned to the 0th pipeline stage"
    with pytest.raises(ValueError, match=wrong):
        loaded.get_pipeline_stage_assignment()


def test_a_file_without_an_extension_is_still_refused_by_stock_keras(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Invalid filepath extension"):
        sequential().save(tmp_path / "folder")


def test_a_folder_is_written_again_and_files_of_others_in_it_stay(strategy: IPUStrategyV1, tmp_path: Path) -> None:
    with strategy.scope():
        model = sequential()
        for _ in range(2):
            model.save(tmp_path / "folder")
        assert keras.models.load_model(tmp_path / "folder").count_params() == model.count_params()
        other = tmp_path / "other" / "assets" / "picture"
        other.parent.mkdir(parents=True)
        for file in (other, tmp_path / "other" / "config.json"):
            file.write_text("mine")
        with pytest.raises(FileExistsError, match="'assets' of something else"):
            model.save(tmp_path / "other")
    assert other.read_text() == (tmp_path / "other" / "config.json").read_text() == "mine"


def test_a_folder_is_kept_if_the_user_says_so(
    strategy: IPUStrategyV1, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["n", "y"]
    with strategy.scope():
        model = sequential()
    model.save(tmp_path / "folder", overwrite=False)
    words = tmp_path / "folder" / "assets" / "words"
    words.parent.mkdir(exist_ok=True)
    words.write_text("a b c")
    monkeypatch.setattr("builtins.input", lambda text: answers.pop(0))
    model.save(tmp_path / "folder", overwrite=False)
    assert words.read_text() == "a b c" and answers == ["y"]
    model.save(tmp_path / "folder", overwrite=False)
    assert not words.exists() and not answers


def test_what_is_not_saved_is_told(strategy: IPUStrategyV1, caplog: pytest.LogCaptureFixture) -> None:
    with strategy.scope():
        model = sequential()
    model.set_gradient_accumulation_options(2, dtype="float32")
    with caplog.at_level("INFO", logger="ipu_tf"):
        model.get_config()
    assert "`gradient_accumulation_optimizer_kwargs` cannot be serialized" in caplog.text


def test_options_that_nobody_set_are_not_told(strategy: IPUStrategyV1, caplog: pytest.LogCaptureFixture) -> None:
    with strategy.scope():
        model = sequential()
    model.set_gradient_accumulation_options(2)
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    with caplog.at_level("INFO", logger="ipu_tf"):
        model.get_config()
        assert "cannot be serialized" not in caplog.text
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, offload_weights=True)
        model.get_config()
    assert "`pipelining_kwargs` cannot be serialized" in caplog.text


BAD_OPTIONS: dict[str, Any] = {
    "no dictionary": [1],
    "a negative count": {"gradient_accumulation_steps": -2},
    "a text for a count": {"gradient_accumulation_steps": "4"},
    "a truth for a count": {"pipelining_gradient_accumulation_steps": True},
    "an unknown reduction": {"gradient_accumulation_reduction": "median"},
    "a list for a word": {"gradient_accumulation_reduction": ["SUM"]},
    "a fraction for a device": {"pipelining_device_mapping": [0.5]},
    "a number for a truth": {"asynchronous_callbacks": 1},
    "a list of arguments": {"infeed_kwargs": ["prefetch_depth"]},
    "a text for stages": {"pipeline_stages": "01"},
    "a negative stage": {"pipeline_stages": [0, -1]},
    "an unknown method for metrics": {"replicated_metric_reduction": None},
    "a dictionary for a method": {"replicated_metric_reduction": {}},
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_options_of_another_form_are_refused(strategy: IPUStrategyV1, name: str) -> None:
    with strategy.scope():
        model = sequential()
        config = {**model.get_config(), KEY: BAD_OPTIONS[name]}
        with pytest.raises(ValueError, match="saved IPU option"):
            keras.Sequential.from_config(config)


def test_options_that_are_not_known_are_named(strategy: IPUStrategyV1, caplog: pytest.LogCaptureFixture) -> None:
    with strategy.scope():
        model = sequential()
        keras.Sequential.from_config({**model.get_config(), KEY: {"of_a_newer_version": 1}})
    assert "of_a_newer_version" in caplog.text


def test_a_damaged_file_of_options_is_named(strategy: IPUStrategyV1, tmp_path: Path) -> None:
    with strategy.scope():
        model = subclassed()
        for text in (b"{", b"\xff\xfe", b"[1]", b"[" * 100_000):
            (tmp_path / "ipu_options.json").write_bytes(text)
            with pytest.raises(ValueError, match="saved IPU options"):
                load_assets(model, str(tmp_path))


def test_stages_of_another_nesting_are_refused(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        model = sequential()
        assignments = model.get_pipeline_stage_assignment()
    with pytest.raises(ValueError, match="inner models elsewhere"):
        fill_in_stages(list(assignments), [[0]] * len(assignments))
