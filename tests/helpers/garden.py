"""Families of models by tasks, tiny and with random weights: what `test_keras_hub.py` trains and docs/garden.md lists.

The page is written by `python -m tests.helpers.garden > docs/garden.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from examples.garden import task_models
from tests.helpers.keras_parity import integers, numbers

BATCH, BATCHES = 2, 12
SAMPLES = BATCH * BATCHES
WORDS, LENGTH, CLASSES, CHOICES, MASKED, SIDE = 30, 8, 3, 2, 3, 16
TASKS = (
    *("masked LM", "causal LM", "sequence to sequence", "sequence classification", "token classification"),
    *("question answering", "multiple choice", "image classification"),
)
_LAYERS = {"num_layers": 2, "hidden_dim": 8, "intermediate_dim": 16}
_HEADS = {**_LAYERS, "num_heads": 2}
_PLACES = {"max_sequence_length": LENGTH}
_QUERIES = {**_LAYERS, "num_query_heads": 2, "num_key_value_heads": 1}


#: Why a family is not tested at a task.
REASONS: dict[tuple[str, str], str] = {
    ("ConvNeXt", "image classification"): "KerasHub and `keras.applications` have it in full size only",
}
_HEAD = """# Models by tasks

Families of models, tiny and with random weights, that train as in stock Keras: updates of 4 or 6 micro-batches, without
stages and in a pipeline on 2 IPUs. Losses, weights and predictions are within 1e-5 of those of stock Keras, which
accumulates too: of an array's largest value, or within 1e-7 where that is about 0.

- Each cell is a test: `python -m pytest -m "slow or not slow" tests/keras_ipu/training/test_keras_hub.py -k masked`.
- All cells were run with Keras on TensorFlow and on JAX (`KERAS_BACKEND=jax`) on 25 November 2026, and pass.
- *hub*: the task's model is KerasHub's; *garden*: it is in `examples/garden`, on KerasHub's backbone.
- *shared*: the first and the last of three stages share variables, and are on one of the IPUs. Others have two stages.
- An empty cell: neither has such a model.
- This page is written by `python -m tests.helpers.garden`.
"""


@dataclasses.dataclass(frozen=True)
class Data:
    """What a model learns from: inputs and targets of `SAMPLES` samples."""

    x: Any
    y: np.ndarray


@dataclasses.dataclass(frozen=True)
class Cell:
    """A family of models at a task.

    Attributes:
        family: its name.
        task: one of `TASKS`.
        build: makes the model.
        data: makes what it learns from.
        shared: whether a layer of the first stage, that of the tokens, is in the last one too; both are on one IPU.
        source: "hub" or "garden": where the task's model comes from.
    """

    family: str
    task: str
    build: Callable[[], keras.Model]
    data: Callable[[], Data]
    shared: bool = False
    source: str = "hub"

    @property
    def name(self) -> str:
        """Family and task."""
        return f"{self.family}: {self.task}"

    @property
    def stages(self) -> int:
        """Its stages on two IPUs."""
        return 3 if self.shared else 2

    @property
    def micro_batches(self) -> int:
        """Micro-batches of an update: as many as fill its pipeline."""
        return 2 * self.stages


def _hub() -> Any:
    """KerasHub's models; it takes seconds to import."""
    import keras_hub

    return keras_hub.models


def _text(*shape: int, segments: bool = False, prefix: str = "") -> dict[str, np.ndarray]:
    shape = shape or (LENGTH,)
    lengths = integers(LENGTH, SAMPLES, *shape[:-1], 1, seed=2) + 1
    x = {
        f"{prefix}token_ids": integers(WORDS, SAMPLES, *shape),
        f"{prefix}padding_mask": (np.arange(LENGTH) < lengths).astype(np.int32),
    }
    return {**x, "segment_ids": integers(2, SAMPLES, *shape, seed=3)} if segments else x


@dataclasses.dataclass(frozen=True)
class _Encoder:
    """A family of encoders that KerasHub has models of for two tasks, and `examples/garden` for three."""

    family: str
    prefix: str
    sizes: dict[str, Any]
    segments: bool = False

    def backbone(self) -> Any:
        return getattr(_hub(), f"{self.prefix}Backbone")(WORDS, dropout=0.0, **_PLACES, **self.sizes)

    def masked(self) -> keras.Model:
        return getattr(_hub(), f"{self.prefix}MaskedLM")(self.backbone(), preprocessor=None)

    def classifier(self) -> keras.Model:
        kind = getattr(_hub(), f"{self.prefix}TextClassifier")
        return kind(self.backbone(), num_classes=CLASSES, preprocessor=None, dropout=0.0)

    def text(self, *shape: int) -> dict[str, np.ndarray]:
        return _text(*shape, segments=self.segments)

    def masked_text(self) -> Data:
        places = np.sort(np.argsort(numbers(SAMPLES, LENGTH), axis=1)[:, :MASKED]).astype(np.int32)
        return Data({**self.text(), "mask_positions": places}, integers(WORDS, SAMPLES, MASKED, seed=4))

    def cells(self) -> tuple[Cell, ...]:
        ours = "garden"
        each = task_models
        return (
            Cell(self.family, TASKS[0], self.masked, self.masked_text, shared=True),
            Cell(self.family, TASKS[3], self.classifier, lambda: Data(self.text(), integers(CLASSES, SAMPLES, seed=4))),
            Cell(
                *(self.family, TASKS[4], lambda: each.token_classifier(self.backbone(), CLASSES)),
                lambda: Data(self.text(), integers(CLASSES, SAMPLES, LENGTH, seed=4)),
                source=ours,
            ),
            Cell(
                *(self.family, TASKS[5], lambda: each.question_answerer(self.backbone())),
                lambda: Data(self.text(), integers(LENGTH, SAMPLES, 2, seed=4)),
                source=ours,
            ),
            Cell(
                *(self.family, TASKS[6], lambda: each.multiple_choice(self.backbone(), CHOICES, LENGTH)),
                lambda: Data(self.text(CHOICES, LENGTH), integers(CHOICES, SAMPLES, seed=4)),
                source=ours,
            ),
        )


def _causal(family: str, prefix: str, sizes: dict[str, Any]) -> Cell:
    def build() -> keras.Model:
        backbone = getattr(_hub(), f"{prefix}Backbone")(WORDS, **sizes)
        return getattr(_hub(), f"{prefix}CausalLM")(backbone=backbone, preprocessor=None)

    def data() -> Data:
        x = _text()
        return Data(x, np.roll(x["token_ids"], -1, axis=1))

    return Cell(family, TASKS[1], build, data, shared=True)


def _pairs() -> Data:
    x = {**_text(prefix="encoder_"), **_text(prefix="decoder_")}
    return Data(x, np.roll(x["decoder_token_ids"], -1, axis=1))


def _sounds() -> Data:
    x = {**_text(prefix="decoder_"), "encoder_features": numbers(SAMPLES, 2 * LENGTH, 4)}
    return Data(x, np.roll(x["decoder_token_ids"], -1, axis=1))


def _bart() -> keras.Model:
    return _hub().BartSeq2SeqLM(_hub().BartBackbone(WORDS, dropout=0.0, **_PLACES, **_HEADS), preprocessor=None)


def _t5() -> keras.Model:
    return _hub().T5Seq2SeqLM(_hub().T5Backbone(WORDS, dropout=0.0, **_HEADS), preprocessor=None)


def _whisper() -> keras.Model:
    places = {"max_encoder_sequence_length": 2 * LENGTH, "max_decoder_sequence_length": LENGTH}
    return task_models.sequence_to_sequence(_hub().WhisperBackbone(WORDS, num_mels=4, **places, **_HEADS))


def _images() -> Data:
    return Data(numbers(SAMPLES, SIDE, SIDE, 3), integers(CLASSES, SAMPLES, seed=4))


def _vit() -> keras.Model:
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "mlp_dim": 16}
    backbone = _hub().ViTBackbone(image_shape=(SIDE, SIDE, 3), patch_size=(8, 8), **sizes)
    return _hub().ViTImageClassifier(backbone, num_classes=CLASSES, preprocessor=None)


def _resnet() -> keras.Model:
    sizes = {"stackwise_num_filters": [64, 8], "stackwise_num_blocks": [1, 1], "stackwise_num_strides": [1, 2]}
    first = {"input_conv_filters": [64], "input_conv_kernel_sizes": [3]}
    backbone = _hub().ResNetBackbone(**first, **sizes, block_type="basic_block", image_shape=(SIDE, SIDE, 3))
    return _hub().ResNetImageClassifier(backbone, num_classes=CLASSES, preprocessor=None)


def _efficientnet() -> keras.Model:
    backbone = _hub().EfficientNetBackbone(
        stackwise_kernel_sizes=[3, 3],
        stackwise_num_repeats=[1, 1],
        stackwise_input_filters=[8, 8],
        stackwise_output_filters=[8, 16],
        stackwise_expansion_ratios=[1, 4],
        stackwise_squeeze_and_excite_ratios=[0.0, 0.25],
        stackwise_strides=[1, 2],
        stackwise_block_types=["fused", "unfused"],
        width_coefficient=1.0,
        depth_coefficient=1.0,
        dropout=0.0,
        num_features=16,
        input_shape=(SIDE, SIDE, 3),
    )
    return _hub().EfficientNetImageClassifier(backbone, num_classes=CLASSES, preprocessor=None)


def _mobilenet() -> keras.Model:
    backbone = _hub().MobileNetBackbone(
        stackwise_expansion=[[8], [16]],
        stackwise_num_blocks=[1, 1],
        stackwise_num_filters=[[8], [8]],
        stackwise_kernel_size=[[3], [3]],
        stackwise_num_strides=[[1], [2]],
        stackwise_se_ratio=[[None], [0.25]],
        stackwise_activation=[["relu"], ["hard_swish"]],
        stackwise_padding=[[1], [1]],
        input_num_filters=8,
        output_num_filters=16,
        depthwise_filters=8,
        depthwise_stride=1,
        depthwise_residual=False,
        last_layer_filter=16,
        image_shape=(SIDE, SIDE, 3),
    )
    return _hub().MobileNetImageClassifier(backbone, num_classes=CLASSES, num_features=16, preprocessor=None)


CELLS: tuple[Cell, ...] = (
    *_Encoder("BERT", "Bert", _HEADS, segments=True).cells(),
    *_Encoder("RoBERTa", "Roberta", _HEADS).cells(),
    *_Encoder("DeBERTa-v3", "DebertaV3", {**_HEADS, "bucket_size": 4}).cells(),
    _causal("GPT-2", "GPT2", {**_HEADS, **_PLACES, "dropout": 0.0}),
    _causal("Llama 3", "Llama3", _QUERIES),
    _causal("Gemma", "Gemma", {**_QUERIES, "head_dim": 4}),
    _causal("Qwen", "Qwen", _QUERIES),
    _causal("Mistral", "Mistral", _QUERIES),
    Cell("BART", TASKS[2], _bart, _pairs, shared=True),
    Cell("T5", TASKS[2], _t5, _pairs, shared=True),
    Cell("Whisper", TASKS[2], _whisper, _sounds, True, "garden"),
    Cell("ViT", TASKS[7], _vit, _images),
    Cell("ResNet", TASKS[7], _resnet, _images),
    Cell("EfficientNet", TASKS[7], _efficientnet, _images),
    Cell("MobileNet", TASKS[7], _mobilenet, _images),
)


def page() -> str:
    """The text of docs/garden.md."""
    cells = {(cell.family, cell.task): cell for cell in CELLS}
    families = dict.fromkeys(family for family, _ in (*cells, *REASONS))
    rows = [f"| | {' | '.join(TASKS)} |", "|---" * (len(TASKS) + 1) + "|"]
    for family in families:
        found = [cells.get((family, task)) for task in TASKS]
        why = ["not tested" if (family, task) in REASONS else "" for task in TASKS]
        rows.append(f"| {family} | {' | '.join(_text_of(each) or no for each, no in zip(found, why, strict=True))} |")
    reasons = [f"- {family}, {task}: {why}." for (family, task), why in REASONS.items()]
    return "\n".join([_HEAD, *rows, "", f"{len(CELLS)} cells. Not tested:", "", *reasons, ""])


def _text_of(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return cell.source + (", shared" if cell.shared else "")


if __name__ == "__main__":
    print(page(), end="")
