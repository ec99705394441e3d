"""Small random files and tables in the places where examples of keras.io look for those that they fetch."""

from __future__ import annotations

import contextlib
import importlib
import pathlib
import zipfile
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

WORDS = "the quick brown fox jumps over the lazy dog and other animals of the wood cat sat on mat like this"
ADULT = {"workclass": " Private| State-gov", "education": " HS-grad| Bachelors", "marital_status": " Divorced| Married"}
ADULT |= {"occupation": " Sales| Tech", "relationship": " Wife| Husband", "race": " White| Black"}
ADULT |= {"gender": " Male| Female", "native_country": " Cuba| India", "income_bracket": " <=50K| >50K"}
HEART = "age sex cp trestbps chol fbs restecg thalach exang oldpeak slope ca"
WEATHER = (
    "p (mbar)|T (degC)|Tpot (K)|Tdew (degC)|rh (%)|VPmax (mbar)|VPact (mbar)|VPdef (mbar)|sh (g/kg)|H2OC (mmol/mol)"
)
WEATHER += "|rho (g/m**3)|wv (m/s)|max. wv (m/s)|wd (deg)"
EEG_UNUSED = "indra_time|Unnamed: 0|browser_latency|reading_time|attention_esense|meditation_esense|updatedAt|createdAt"


def _numbers(count: int, *names: str, high: int = 50) -> dict[str, Any]:
    rng = np.random.default_rng(count)
    return {name: rng.integers(0, high, count) for name in names}


def _choices(count: int, values: str) -> list[str]:
    options = values.split("|")
    return [options[i * 7 % 5 % len(options)] for i in range(count)]


def _minutes(count: int) -> np.ndarray:
    return np.datetime64("2014-04-01", "ns") + np.arange(count) * np.timedelta64(5, "m")


def _series(count: int) -> dict[str, Any]:
    return {"timestamp": _minutes(count), "value": np.random.default_rng(count).normal(size=count)}


def _incomes() -> dict[str, Any]:
    numbers = _numbers(40, "age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week")
    return numbers | {name: _choices(40, values) for name, values in ADULT.items()}


def _patients() -> dict[str, Any]:
    numbers = _numbers(60, *HEART.split(), high=4)
    return numbers | {"thal": _choices(60, "fixed|normal|reversible"), "target": np.arange(60) % 2}


def _brainwaves() -> dict[str, Any]:
    raw = np.random.default_rng(0).integers(-99, 99, (60, 512))
    unused = _numbers(60, *EEG_UNUSED.split("|"))
    labels = _choices(60, "blink1|math1|relax|unlabeled|video-ver1")
    return unused | {"label": labels, "signal_quality": np.zeros(60), "raw_values": [str(row.tolist()) for row in raw]}


def _stations(rows: int) -> dict[str, Any]:
    return {
        str(column): values for column, values in enumerate(np.random.default_rng(rows).uniform(0, 80, (228, rows)))
    }


TABLES: dict[str, Callable[[], dict[str, Any]]] = {
    "art_daily_small_noise.csv": lambda: _series(60),
    "art_daily_jumpsup.csv": lambda: {"timestamp": _minutes(59), "value": np.linspace(0, 40, 59)},
    "jena_climate_2009_2016.csv": lambda: (
        {"Date Time": [f"row {i}" for i in range(400)]} | _numbers(400, *WEATHER.split("|"))
    ),
    "ratings.csv": lambda: _numbers(160, "userId", "movieId", high=20) | {"rating": np.arange(160) % 10 / 2},
    "movies.csv": lambda: {
        "movieId": np.arange(30),
        "title": [f"film {i}" for i in range(30)],
        "genres": ["Drama"] * 30,
    },
    "adult.data": _incomes,
    "adult.test": _incomes,
    "heart.csv": _patients,
    "eeg-data.csv": _brainwaves,
    "PeMSD7_W_228.csv": lambda: _stations(228),
    "PeMSD7_V_228.csv": lambda: _stations(200),
    "users.dat": lambda: (
        _numbers(20, "user_id", "age_group", "occupation", high=4)
        | {"user_id": np.arange(20), "sex": _choices(20, "F|M"), "zip_code": np.arange(20)}
    ),
    "ratings.dat": lambda: (
        _numbers(160, "user_id", "movie_id", high=20)
        | {"rating": np.arange(160) % 5 + 1, "unix_timestamp": np.arange(160)}
    ),
    "movies.dat": lambda: {
        "movie_id": np.arange(20),
        "title": ["film"] * 20,
        "genres": _choices(20, "Drama|Comedy|Action"),
    },
}


def sentence(number: int, words: int = 12) -> str:
    """A sentence of few words, the same one each time for a number."""
    return " ".join(np.random.default_rng(number).choice(WORDS.split(), words))


def _texts(folder: str, count: int, words: int = 60, suffix: str = ".txt", first: int = 0) -> None:
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        text = "\n".join(sentence(100 * len(folder) + i, words) for _ in range(12 if suffix == "" else 1))
        pathlib.Path(folder, f"{first + i}{suffix}").write_text(text + "\n", encoding="utf-8")


def pictures(folder: str, count: int, side: int = 48, suffix: str = ".jpg", high: int = 256) -> None:
    """Writes random pictures into a folder."""
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        values = np.random.default_rng([len(folder), i]).integers(
            high < 256, high, (side, side, 1 if high < 256 else 3)
        )
        encode = tf.io.encode_png if suffix == ".png" else tf.io.encode_jpeg
        tf.io.write_file(f"{folder}/{i}{suffix}", encode(tf.constant(values, tf.uint8)))


def _pets() -> None:
    pictures("PetImages/Cat", 20)
    pictures("PetImages/Dog", 20)
    pictures("images", 24, suffix=".jpg")
    pictures("annotations/trimaps", 24, suffix=".png", high=4)


def _reviews() -> None:
    for part in ("train/pos", "train/neg", "test/pos", "test/neg"):
        _texts(f"aclImdb/{part}", 16)
    pathlib.Path("aclImdb/train/unsup").mkdir()


def _translations() -> None:
    lines = "".join(f"{sentence(i, 5)}\t{sentence(i + 500, 6)}\n" for i in range(60))
    pathlib.Path("spa-eng").mkdir()
    pathlib.Path("spa-eng/spa.txt").write_text(lines, encoding="utf-8")
    short = "".join(f"{sentence(i, 2)}\t{sentence(i + 500, 2)}\tby x\n" for i in range(40))
    pathlib.Path("fra.txt").write_text(short, encoding="utf-8")


def _newsgroups() -> None:
    for group in ("comp.graphics", "rec.autos", "sci.space"):
        _texts(f"20_newsgroup/{group}", 14, words=20, suffix="", first=38980)
    vectors = np.random.default_rng(0).normal(size=(len(WORDS.split()), 100))
    rows = (f"{word} {' '.join(map(str, vector))}\n" for word, vector in zip(WORDS.split(), vectors, strict=True))
    pathlib.Path("glove.6B.100d.txt").write_text("".join(rows), encoding="utf-8")


def _captchas() -> None:
    pictures("captcha_images_v2", 40, side=50, suffix=".png")
    for i, path in enumerate(sorted(pathlib.Path("captcha_images_v2").iterdir())):
        path.rename(path.with_name("".join(np.random.default_rng(i).choice([*"2345bcdefg"], 5)) + ".png"))


def _dark_pictures() -> None:
    for part in ("our485", "eval15"):
        pictures(f"lol_dataset/{part}/low", 40, suffix=".png")


def _faces() -> None:
    pictures("faces", 40, side=32)
    pathlib.Path("celeba_gan").mkdir()
    with zipfile.ZipFile("celeba_gan/data.zip", "w") as archive:
        for path in pathlib.Path("faces").iterdir():
            archive.write(path)
    pathlib.Path("celeba_gan/data.zip").rename("faces.zip")
    pathlib.Path("celeba_gan").rmdir()


def _transactions() -> None:
    rows = ["header\n"]
    for i, values in enumerate(np.random.default_rng(0).normal(size=(60, 30))):
        rows.append(",".join(map(str, values)) + f',"{int(i % 5 == 0)}"\n')
    pathlib.Path("creditcard.csv").write_text("".join(rows), encoding="utf-8")


def _balls() -> None:
    values = np.random.default_rng(0).integers(0, 256, (20, 12, 16, 16)).astype(np.uint8)
    with pathlib.Path("moving_mnist.npy").open("wb") as file:
        np.save(file, values)


FILES: dict[str, Callable[[], None]] = {
    "vision/image_classification_from_scratch": _pets,
    "tensorflow/vision/image_classification_from_scratch": _pets,
    "vision/oxford_pets_image_segmentation": _pets,
    "vision/super_resolution_sub_pixel": lambda: pictures("BSR/BSDS500/data/images/test", 40, side=60),
    "vision/conv_lstm": _balls,
    "tensorflow/vision/captcha_ocr": _captchas,
    "tensorflow/vision/zero_dce": _dark_pictures,
    "tensorflow/generative/dcgan_overriding_train_step": _faces,
    "nlp/lstm_seq2seq": _translations,
    "nlp/neural_machine_translation_with_transformer": _translations,
    "nlp/neural_machine_translation_with_keras_nlp": _translations,
    "generative/text_generation_with_miniature_gpt": _reviews,
    "tensorflow/nlp/text_classification_from_scratch": _reviews,
    "tensorflow/nlp/end_to_end_mlm_with_bert": _reviews,
    "tensorflow/nlp/pretrained_word_embeddings": _newsgroups,
    "tensorflow/structured_data/imbalanced_classification": _transactions,
}


def _read_ucr(stock: Callable[..., Any]) -> Callable[..., Any]:
    def loadtxt(name: Any, *args: Any, **kwargs: Any) -> Any:
        if not str(name).endswith(".tsv"):
            return stock(name, *args, **kwargs)
        values = np.random.default_rng(0).normal(size=(40, 41))
        values[:, 0] = np.where(np.arange(40) % 3 == 0, -1, 1)
        return values

    return loadtxt


def _read_table(pandas: Any, stock: Callable[..., Any]) -> Callable[..., Any]:
    def read_csv(path: Any, *args: Any, **kwargs: Any) -> Any:
        name = pathlib.Path(str(path)).name
        if name not in TABLES:
            return stock(path, *args, **kwargs)
        table = pandas.DataFrame(TABLES[name]())
        if kwargs.get("names") is not None:
            table = table[[*kwargs["names"]]]
        return table.set_index(kwargs["index_col"]) if kwargs.get("index_col") else table

    return read_csv


@contextlib.contextmanager
def files(name: str) -> Iterator[None]:
    """Context in which an example finds its files in the working folder, and small tables where it reads others."""
    FILES.get(name, lambda: None)()
    pandas = importlib.import_module("pandas")  # not among the packages of the tests
    with (
        mock.patch.object(np, "loadtxt", _read_ucr(np.loadtxt)),
        mock.patch.object(pandas, "read_csv", _read_table(pandas, pandas.read_csv)),
    ):
        yield
