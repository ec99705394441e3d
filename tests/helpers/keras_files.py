"""Saved Keras models for `file_fuzz`: a damaged one loads as stock Keras loads it, or an error names what is wrong.

Stock Keras loads each file first. Where it refuses one, so has the scope to; where it loads one, the scope has to load
the same layers, weights and settings of `compile`, or to say which of its own settings is wrong.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

import ipu_tf as ipu
from ipu_tf.ipu_strategy import IPUStrategyV1
from ipu_tf.ops.pipelining_ops import PipelineSchedule
from keras_ipu.saving.saving import KEY
from tests.helpers.archives import archived, members
from tests.helpers.file_mutations import mutated

OURS = ("saved IPU option", "saved pipeline stages", "`steps_per_execution`")
"""What an error says if settings of this project are wrong."""
_JUNK: tuple[Any, ...] = (None, True, -1, 0, 2.5, 2**40, 1e999, "", "SUM", [], [[0]], {}, {"a": 1})


@keras.saving.register_keras_serializable("ipu_tests")
class SavedModel(keras.Model):
    """A subclassed model, whose options are among its assets."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.last = keras.layers.Dense(2, name="last")

    def call(self, x: Any) -> Any:
        return self.last(x)


@functools.cache
def _strategy() -> IPUStrategyV1:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy()


def files(folder: Path, subclassed: bool = False) -> list[bytes]:
    """Two models with options and, unless they are subclassed, stages."""
    found = []
    for units in (3, 4):
        keras.utils.set_random_seed(units)
        with _strategy().scope():
            model: Any = SavedModel(name="saved") if subclassed else _staged(units)
            model.set_infeed_queue_options(prefetch_depth=units)
            model.set_replication_options(replicated_metric_reduction_method="SUM")
            model.compile("sgd", "mse", steps_per_execution=8)
            model.build((None, 4))
            model.save(folder / f"{units}.keras")
        found.append((folder / f"{units}.keras").read_bytes())
    return found


def _staged(units: int) -> Any:
    inner = keras.Sequential([keras.Input((units,)), keras.layers.Dense(2, name="last")], name="inner")
    layers = [keras.Input((4,), name="x"), keras.layers.Dense(units, name="first"), inner]
    model: Any = keras.Sequential(layers, name="saved")
    model.set_pipelining_options(
        gradient_accumulation_steps_per_replica=units, pipeline_schedule=PipelineSchedule.Sequential
    )
    assignments = model.get_pipeline_stage_assignment()
    assignments[0].pipeline_stage = 0
    assignments[1].pipeline_stage_assignments[0].pipeline_stage = 1
    model.set_pipeline_stage_assignment(assignments)
    return model


def result(data: bytes, path: Path) -> Any:
    """What a file gives in the scope of a strategy.

    Raises:
        ValueError: for a file that stock Keras refuses too, or whose settings for IPUs are wrong.
        AssertionError: if stock Keras does something else with it.
    """
    path = path.with_suffix(".keras")
    path.write_bytes(data)
    try:
        wanted, refused = _contents(_loaded(path)), None
    except Exception as error:  # noqa: BLE001 - of whichever class it is
        wanted, refused = {}, error
    try:
        with _strategy().scope():
            model = _loaded(path)
            options = _options(model)
    except Exception as error:
        if refused is not None:
            raise ValueError(f"stock Keras refuses it too: {refused!r}") from error
        if isinstance(error, ValueError | TypeError) and any(words in str(error) for words in OURS):
            raise ValueError(str(error)) from error
        raise AssertionError(f"stock Keras loads it: {error!r}") from error
    assert refused is None, f"stock Keras refuses it: {refused!r}"
    found = _contents(model)
    assert json.dumps(found) == json.dumps(wanted), f"stock Keras loads {wanted}: {found}"
    return [found, options]


def _loaded(path: Path) -> Any:
    keras.utils.set_random_seed(1)
    keras.backend.clear_session(free_memory=False)  # names of layers that have lost theirs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return keras.saving.load_model(path)


def _contents(model: Any) -> dict[str, Any]:
    """A model's layers, weights and settings of `compile`, as plain data."""
    weights = [(weight.path, str(weight.dtype), keras.ops.convert_to_numpy(weight).tobytes().hex()) for weight in
               model.weights]  # fmt: skip
    return {
        "config": repr(_without_options(model.get_config())),
        "weights": [tuple(map(str, weight)) for weight in weights],
        "compile": repr(model.get_compile_config()),
    }


def _without_options(config: Any) -> Any:
    if isinstance(config, dict):
        return {name: _without_options(value) for name, value in config.items() if name != KEY}
    return [_without_options(value) for value in config] if isinstance(config, list | tuple) else config


def _options(model: Any) -> str:
    """A model's options and stages, asked for as users do."""
    assignments = model.get_pipeline_stage_assignment() if not isinstance(model, SavedModel) else []
    return f"{assignments} {model.get_config().get(KEY)}"


def damaged(data: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """A saved model that is damaged as a whole, or one of its members."""
    return (mutated if generator.random() < 0.25 else damaged_member)(data, other, generator)


def damaged_member(data: bytes, other: bytes, generator: np.random.Generator, only: str = "") -> bytes:
    """A saved model one of whose members is damaged, with checksums that fit: its bytes, or values of its JSON."""
    mine, others = members(data), members(other)
    names = [name for name in mine if name.endswith(only)]
    name = names[int(generator.integers(len(names)))]
    if name.endswith(".json") and generator.random() < 0.7:
        mine[name] = _other_values(mine[name], generator)
    else:
        mine[name] = mutated(mine[name], others.get(name, data), generator)
    return archived(mine)


def _other_values(text: bytes, generator: np.random.Generator) -> bytes:
    """JSON one to three of whose values are others, are missing, or have another name; half of them are options."""
    content = json.loads(text)
    for _ in range(int(generator.integers(1, 4))):
        places = list(_places(content))
        options = [place for place in places if place[2]]
        places = options if options and generator.random() < 0.5 else places
        if not places:
            break
        holder, key, _ = places[int(generator.integers(len(places)))]
        new = (*_JUNK, content)[int(generator.integers(len(_JUNK) + 1))]
        if generator.random() < 0.8:
            holder[key] = json.loads(json.dumps(new))
        elif isinstance(holder, dict) and generator.random() < 0.5:
            holder[f"{key}s"] = holder.pop(key)
        else:
            del holder[key]
    return json.dumps(content).encode()


def _places(content: Any, ours: bool = False) -> Iterator[tuple[Any, Any, bool]]:
    """Each value of some JSON: what holds it, under which key, and whether it is an option of this project."""
    pairs: Sequence[tuple[Any, Any]] = ()
    if isinstance(content, dict):
        pairs = list(content.items())
    elif isinstance(content, list):
        pairs = list(enumerate(content))
    for key, value in pairs:
        within = ours or key == KEY
        yield content, key, within
        yield from _places(value, within)
