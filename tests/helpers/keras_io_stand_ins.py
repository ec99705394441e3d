"""Small random data in place of what examples of keras.io fetch, and sizes that make them quick."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import pathlib
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from tests.helpers.keras_io_files import files

TEXT = "the quick brown fox jumps over the lazy dog and other animals of the wood. "

SIZES: dict[str, dict[str, Any]] = {
    "": {
        **dict.fromkeys(
            (
                "epochs",
                "EPOCHS",
                "num_epochs",
                "NUM_EPOCHS",
                "MAX_EPOCHS",
                "warmup_epochs",
            ),
            1,
        ),
        **dict.fromkeys(("batch_size", "BATCH_SIZE"), 16),
        **dict.fromkeys(
            (
                "transformer_layers",
                "NUM_LAYERS",
                "num_transformer_blocks",
                "NUM_TRANSFORMER_BLOCKS",
            ),
            1,
        ),
        **dict.fromkeys(("num_blocks", "num_residual_blocks"), 1),
    },
    "nlp/addition_rnn": {"TRAINING_SIZE": 100, "epochs": 2},
    "vision/image_classification_with_vision_transformer": {
        "image_size": 24,
        "mlp_head_units": [64, 32],
    },
    "vision/mlp_image_classification": {"image_size": 24, "embedding_dim": 32},
    "tensorflow/vision/perceiver_image_classification": {
        "image_size": 16,
        "latent_dim": 16,
        "projection_dim": 16,
    },
    "vision/token_learner": {"PROJECTION_DIM": 32, "NUM_HEADS": 2},
    "vision/eanet": {"num_transformer_blocks": 1},
    "tensorflow/generative/ddim": {
        "image_size": 16,
        "widths": [8, 16],
        "block_depth": 1,
        "kid_image_size": 75,
    },
    "tensorflow/generative/ddpm": {
        "img_size": 16,
        "first_conv_channels": 8,
        "channel_multiplier": [1, 2],
        "norm_groups": 4,
    },
    "tensorflow/vision/mobilevit": {"image_size": 64},
    "timeseries/timeseries_anomaly_detection": {"TIME_STEPS": 24},
    "timeseries/timeseries_weather_forecasting": {"past": 24, "future": 12},
    "tensorflow/structured_data/imbalanced_classification": {"fname": "creditcard.csv"},
    "vision/image_classification_from_scratch": {"image_size": (48, 48)},
    "tensorflow/vision/image_classification_from_scratch": {"image_size": (48, 48)},
    "vision/oxford_pets_image_segmentation": {"img_size": (32, 32), "batch_size": 4, "val_samples": 8},
    "vision/super_resolution_sub_pixel": {"crop_size": 30, "batch_size": 4},
    "tensorflow/vision/zero_dce": {"IMAGE_SIZE": 48, "MAX_TRAIN_IMAGES": 32, "BATCH_SIZE": 8},
    "tensorflow/vision/captcha_ocr": {"img_width": 100, "img_height": 40},
    "nlp/lstm_seq2seq": {"latent_dim": 16},
    "nlp/neural_machine_translation_with_transformer": {
        "vocab_size": 60,
        "sequence_length": 10,
        "embed_dim": 16,
        "latent_dim": 32,
        "num_heads": 2,
    },
    "nlp/neural_machine_translation_with_keras_nlp": {
        "MAX_SEQUENCE_LENGTH": 10,
        "ENG_VOCAB_SIZE": 60,
        "SPA_VOCAB_SIZE": 60,
        "EMBED_DIM": 16,
        "INTERMEDIATE_DIM": 32,
        "NUM_HEADS": 2,
    },
    "generative/text_generation_with_miniature_gpt": {"vocab_size": 60, "maxlen": 12, "embed_dim": 16},
    "tensorflow/nlp/text_classification_from_scratch": {"max_features": 60, "sequence_length": 60},
    "nlp/bidirectional_lstm_imdb": {"maxlen": 12},
    "tensorflow/generative/lstm_character_level_text_generation": {"maxlen": 10},
    "tensorflow/vision/semantic_image_clustering": {
        "target_size": 32,
        "representation_dim": 16,
        "num_clusters": 4,
    },
}

UNUSED_MODULES = ("IPython", "IPython.display", "seaborn", "imageio", "ipywidgets", "gdown", "tensorflow_docs.vis")


def random(*shape: int, high: int = 256, dtype: str = "uint8") -> np.ndarray:
    """Random whole numbers, the same ones each time for a shape."""
    return np.random.default_rng(shape).integers(0, high, shape).astype(dtype)


def _labels(count: int, classes: int) -> np.ndarray:
    return (np.arange(count) * 7 % classes).astype(np.uint8)


def _images(shape: tuple[int, ...], classes: int, columns: bool) -> Callable[..., Any]:
    def load_data(*args: Any, **kwargs: Any) -> Any:
        def part(count: int) -> Any:
            labels = _labels(count, classes)
            return random(count, *shape), labels[:, None] if columns else labels

        return part(40), part(20)

    return load_data


def _sequences(*args: Any, **kwargs: Any) -> Any:
    words = kwargs.get("num_words") or 1000

    def part(count: int) -> Any:
        rows = np.empty(count, object)
        rows[:] = [random(5 + i % 20, high=words, dtype="int64").tolist() for i in range(count)]
        return rows, _labels(count, 2).astype(np.int64)

    return part(40), part(20)


def _houses(*args: Any, **kwargs: Any) -> Any:
    return tuple((random(count, 13).astype(np.float64), random(count).astype(np.float64)) for count in (40, 20))


DATASETS: dict[str, Callable[..., Any]] = {
    "mnist": _images((28, 28), 10, columns=False),
    "fashion_mnist": _images((28, 28), 10, columns=False),
    "cifar10": _images((32, 32, 3), 10, columns=True),
    "cifar100": _images((32, 32, 3), 100, columns=True),
    "imdb": _sequences,
    "boston_housing": _houses,
}


def _catalog_load(
    name: str,
    split: Any = None,
    as_supervised: bool = False,
    with_info: bool = False,
    **_: Any,
) -> Any:
    """In place of `tensorflow_datasets.load`: 40 images, with labels if they are supervised."""
    side, channels = (105, 3) if name == "omniglot" else (48, 3)
    images, labels = random(40, side, side, channels), _labels(40, 2).astype(np.int64)
    columns: Any = (images, labels) if as_supervised else {"image": images, "label": labels}
    dataset = tf.data.Dataset.from_tensor_slices(columns)
    parts = [dataset for _ in split] if isinstance(split, list | tuple) else dataset
    if split is None:
        parts = {
            "train": dataset,
            "test": dataset,
            "trainA": dataset,
            "trainB": dataset,
        }
    feature = types.SimpleNamespace(num_classes=2)
    info = types.SimpleNamespace(
        features={"label": feature},
        splits={"train": types.SimpleNamespace(num_examples=40)},
    )
    return (parts, info) if with_info else parts


def _get_file(fname: Any = None, origin: str = "", **_: Any) -> str:
    name = pathlib.Path(str(fname or origin)).name
    if not pathlib.Path(name).exists() and name.endswith(".zip"):
        zipfile.ZipFile(name, "w").close()  # its files are there
    elif not pathlib.Path(name).exists():
        pathlib.Path(name).write_text(TEXT * 20, encoding="utf-8")
    return str(pathlib.Path(name).resolve())


def _downloaded(url: str, output: str, **_: Any) -> None:
    """In place of `gdown.download`: a file that lies in the working folder."""
    pathlib.Path("faces.zip").rename(output)


@contextlib.contextmanager
def stand_ins(name: str) -> Iterator[None]:
    """Context in which an example finds small data where it fetches some, and draws no plots."""
    modules: dict[str, Any] = {"tensorflow_datasets": types.ModuleType("tensorflow_datasets")}
    modules |= {name: mock.MagicMock() for name in UNUSED_MODULES}
    modules["IPython"].version_info, modules["IPython"].get_ipython = (9, 0), lambda: None  # matplotlib asks
    modules["gdown"].download = _downloaded
    modules["tqdm"] = types.SimpleNamespace(tqdm=lambda values, **_: values)
    if importlib.util.find_spec("keras_hub"):
        modules["keras_nlp"] = importlib.import_module("keras_hub")  # its new name
    modules["tensorflow_datasets"].__dict__.update(
        load=_catalog_load,
        disable_progress_bar=lambda: None,
        image_classification=mock.MagicMock(),
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(_plots_closed())
        stack.enter_context(files(name))
        stack.callback(lambda: [sys.modules.pop(module) for module in modules])
        sys.modules.update(modules)
        for module, load in DATASETS.items():
            stack.enter_context(mock.patch.object(getattr(keras.datasets, module), "load_data", load))
        stack.enter_context(mock.patch.object(keras.utils, "get_file", _get_file))
        stack.enter_context(mock.patch.object(keras.utils, "plot_model", mock.MagicMock()))
        yield


@contextlib.contextmanager
def _plots_closed() -> Iterator[None]:
    pyplot = importlib.import_module("matplotlib.pyplot")  # not among the packages of the tests

    pyplot.switch_backend("agg")
    with mock.patch.object(pyplot, "show", lambda *args, **kwargs: pyplot.close("all")):
        yield
    pyplot.close("all")
