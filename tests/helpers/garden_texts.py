"""Families of models of texts, tiny and with random weights, for docs/garden.md."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np

from examples.garden import task_models
from tests.helpers.garden_cells import (
    CLASSES,
    HEADS,
    LAYERS,
    LENGTH,
    PLACES,
    SAMPLES,
    TASKS,
    WORDS,
    Cell,
    Data,
    hub,
    text,
)
from tests.helpers.keras_parity import integers, numbers

CHOICES, MASKED = 2, 3
_QUERIES = {**LAYERS, "num_query_heads": 2, "num_key_value_heads": 1}


def _classes(*shape: int) -> np.ndarray:
    return integers(CLASSES, SAMPLES, *shape, seed=4)


@dataclasses.dataclass(frozen=True)
class _Encoder:
    """A family of encoders: KerasHub's own models for two tasks, those of `examples/garden` for the others.

    Attributes:
        family: its name.
        prefix: of KerasHub's classes.
        sizes: of the backbone.
        segments: whether it takes segments.
    """

    family: str
    prefix: str
    sizes: dict[str, Any]
    segments: bool = False

    def backbone(self) -> Any:
        return getattr(hub(), f"{self.prefix}Backbone")(WORDS, dropout=0.0, **PLACES, **self.sizes)

    def masked(self) -> keras.Model:
        return getattr(hub(), f"{self.prefix}MaskedLM")(self.backbone(), preprocessor=None)

    def classifier(self) -> keras.Model:
        kind = getattr(hub(), f"{self.prefix}TextClassifier")
        return kind(self.backbone(), num_classes=CLASSES, preprocessor=None, dropout=0.0)

    def text(self, *shape: int) -> dict[str, np.ndarray]:
        return text(*shape, segments=self.segments)

    def masked_text(self) -> Data:
        places = np.sort(np.argsort(numbers(SAMPLES, LENGTH), axis=1)[:, :MASKED]).astype(np.int32)
        return Data({**self.text(), "mask_positions": places}, integers(WORDS, SAMPLES, MASKED, seed=4))

    def tokens(self) -> keras.Model:
        return task_models.token_classifier(self.backbone(), CLASSES)

    def answers(self) -> keras.Model:
        return task_models.question_answerer(self.backbone())

    def choice(self) -> keras.Model:
        return task_models.multiple_choice(self.backbone(), CHOICES, LENGTH)

    def choices(self) -> Data:
        return Data(self.text(CHOICES, LENGTH), integers(CHOICES, SAMPLES, seed=4))

    def cells(self) -> tuple[Cell, ...]:
        makers: dict[str, tuple[Any, ...]] = {
            TASKS[0]: (self.masked, self.masked_text, True),
            TASKS[3]: (self.classifier, lambda: Data(self.text(), _classes())),
            TASKS[4]: (self.tokens, lambda: Data(self.text(), _classes(LENGTH)), False, "garden"),
            TASKS[5]: (
                *(self.answers, lambda: Data(self.text(), integers(LENGTH, SAMPLES, 2, seed=4))),
                *(False, "garden"),
            ),
            TASKS[6]: (self.choice, self.choices, False, "garden"),
        }
        return tuple(Cell(self.family, task, *given) for task, given in makers.items())


def _causal(family: str, prefix: str, sizes: dict[str, Any]) -> Cell:
    def build() -> keras.Model:
        backbone = getattr(hub(), f"{prefix}Backbone")(WORDS, **sizes)
        return getattr(hub(), f"{prefix}CausalLM")(backbone=backbone, preprocessor=None)

    def data() -> Data:
        x = text()
        return Data(x, np.roll(x["token_ids"], -1, axis=1))

    return Cell(family, TASKS[1], build, data, shared=True)


_GPT2 = {**HEADS, **PLACES, "dropout": 0.0}


def _gpt2_backbone() -> Any:
    return hub().GPT2Backbone(WORDS, **_GPT2)


def _pairs() -> dict[str, np.ndarray]:
    return {**text(prefix="encoder_"), **text(prefix="decoder_")}


def _next_words() -> Data:
    x = _pairs()
    return Data(x, np.roll(x["decoder_token_ids"], -1, axis=1))


def _sounds() -> Data:
    x = {**text(prefix="decoder_"), "encoder_features": numbers(SAMPLES, 2 * LENGTH, 4)}
    return Data(x, np.roll(x["decoder_token_ids"], -1, axis=1))


def _bart_backbone() -> Any:
    return hub().BartBackbone(WORDS, dropout=0.0, **PLACES, **HEADS)


def _t5() -> keras.Model:
    return hub().T5Seq2SeqLM(hub().T5Backbone(WORDS, dropout=0.0, **HEADS), preprocessor=None)


def _whisper() -> keras.Model:
    places = {"max_encoder_sequence_length": 2 * LENGTH, "max_decoder_sequence_length": LENGTH}
    return task_models.sequence_to_sequence(hub().WhisperBackbone(WORDS, num_mels=4, **places, **HEADS))


def _last_token(family: str, backbone: Any, data: Any) -> Cell:
    """A decoder, or an encoder with one, that classifies texts by its last token."""

    def build() -> keras.Model:
        return task_models.sequence_classifier(backbone(), CLASSES)

    return Cell(family, TASKS[3], build, lambda: Data(data(), _classes()), source="garden")


TEXTS: tuple[Cell, ...] = (
    *_Encoder("BERT", "Bert", HEADS, segments=True).cells(),
    *_Encoder("RoBERTa", "Roberta", HEADS).cells(),
    *_Encoder("DeBERTa-v3", "DebertaV3", {**HEADS, "bucket_size": 4}).cells(),
    *_Encoder("DistilBERT", "DistilBert", HEADS).cells(),
    _causal("GPT-2", "GPT2", _GPT2),
    _last_token("GPT-2", _gpt2_backbone, text),
    Cell(
        *("GPT-2", TASKS[4], lambda: task_models.token_classifier(_gpt2_backbone(), CLASSES)),
        *(lambda: Data(text(), _classes(LENGTH)), False, "garden"),
    ),
    _causal("Llama 3", "Llama3", _QUERIES),
    _causal("Gemma", "Gemma", {**_QUERIES, "head_dim": 4}),
    _causal("Qwen", "Qwen", _QUERIES),
    _causal("Mistral", "Mistral", _QUERIES),
    Cell("BART", TASKS[2], lambda: hub().BartSeq2SeqLM(_bart_backbone(), preprocessor=None), _next_words, shared=True),
    _last_token("BART", _bart_backbone, _pairs),
    Cell("T5", TASKS[2], _t5, _next_words, shared=True),
    Cell("Whisper", TASKS[2], _whisper, _sounds, True, "garden"),
)
