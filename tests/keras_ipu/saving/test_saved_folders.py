"""Models are saved in folders with their options and all their assets, whatever their constructor and the path."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
from keras import layers

from ipu_tf.ipu_strategy import IPUStrategyV1
from keras_ipu.options.model_state import options_of
from tests.helpers.one_ipu import strategy
from tests.keras_ipu.saving.test_keras_serialization import assert_same_options, subclassed, with_options

__all__ = ["strategy"]

# Keras 3.15 asks TensorFlow 2.21's tensors for their arrays in a way that numpy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


@keras.saving.register_keras_serializable("ipu_tests")
class OwnFunctional(keras.Model):
    """A functional model with a constructor of its own, as KerasHub's are."""

    def __init__(self, units: int = 3, **kwargs: Any) -> None:
        a = keras.Input((4,))
        super().__init__(a, layers.Dense(2)(layers.Dense(units)(a)), **kwargs)
        self.units = units

    def get_config(self) -> dict[str, Any]:
        return {"units": self.units, "name": self.name}


@keras.saving.register_keras_serializable("ipu_tests")
class OwnSequential(keras.Sequential):
    """A `Sequential` with a constructor of its own."""

    def __init__(self, units: int = 3, **kwargs: Any) -> None:
        super().__init__([keras.Input((4,)), layers.Dense(units), layers.Dense(2)], **kwargs)
        self.units = units

    def get_config(self) -> dict[str, Any]:
        return {"units": self.units, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        return cls(**config)


class Unsaved(layers.Layer):
    """A layer that cannot be saved."""

    def call(self, x: Any) -> Any:
        return x

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError("no config")


OWN = pytest.mark.parametrize("make", [OwnFunctional, OwnSequential])


@OWN
@pytest.mark.parametrize("name", ["model.keras", "folder"])
def test_models_with_constructors_of_their_own_keep_their_options(
    strategy: IPUStrategyV1, tmp_path: Path, make: Callable[[], keras.Model], name: str
) -> None:
    with strategy.scope():
        model = with_options(make)
        model.save(tmp_path / name)
        loaded = keras.models.load_model(tmp_path / name)
        assert loaded._is_pipelined() and type(loaded) is make
        for other in (loaded, copy.deepcopy(model)):
            assert_same_options(other, model)
    assert type(keras.models.load_model(tmp_path / name)) is make


def test_a_folder_with_a_relative_path_has_all_assets(
    strategy: IPUStrategyV1, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = layers.StringLookup()
    words.adapt(["a", "b"])
    with strategy.scope():
        model = with_options(subclassed)
        model.save("folder")
        assert_same_options(keras.models.load_model("folder"), model)
        keras.Sequential([keras.Input((), dtype="string"), words]).save("sub/words")
        again = keras.models.load_model("sub/words")
    assert again.layers[0].get_vocabulary() == words.get_vocabulary() == ["[UNK]", "b", "a"]


def test_assets_stay_where_nothing_is_saved(
    strategy: IPUStrategyV1, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    with strategy.scope():
        model = with_options(subclassed)
        model.save(folder)
        files = sorted(folder.rglob("*"))
        monkeypatch.setattr("builtins.input", lambda text: "n")
        model.set_gradient_accumulation_options(2)
        model.save(folder, overwrite=False)
        with pytest.raises(NotImplementedError, match="no config"):
            keras.Sequential([keras.Input((4,)), Unsaved()]).save(folder)
        assert sorted(folder.rglob("*")) == files
        assert options_of(keras.models.load_model(folder)).gradient_accumulation_steps == 4
        monkeypatch.setattr("builtins.input", lambda text: "y")
        model.save(folder, overwrite=False)
        assert sorted(folder.rglob("*")) == files
        assert options_of(keras.models.load_model(folder)).gradient_accumulation_steps == 2
