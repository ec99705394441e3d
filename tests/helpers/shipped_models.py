"""Models of the presets that configurations are shipped for, with random weights: small ones with equal shares of work.

A part of the preset's widths and vocabulary, such as an eighth, leaves the shares of the operations as they are: of 128
tokens, they have those of 1024 in the preset. Models of images have the preset's sizes.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import keras

_WIDTHS = ("hidden_dim", "intermediate_dim", "head_dim", "num_mels")
_MELS, _FRAMES, _PLACES = 80, 3000, 448


@dataclasses.dataclass(frozen=True)
class Shipped:
    """How a preset's model is made.

    Attributes:
        backbone: makes the backbone with a part of the preset's sizes: 1 for all of them, 8 for an eighth.
        task: makes the model of the backbone.
    """

    backbone: Callable[[int], Any]
    task: Callable[[Any], keras.Model]

    def model(self) -> keras.Model:
        """Makes the model whose operations are counted."""
        return self.task(self.backbone(8))

    def parameters(self) -> int:
        """Counts the parameters of the backbone in full size, by the shapes of variables that get no values."""
        with keras.StatelessScope(initialize_variables=False):
            backbone = self.backbone(1)
            return sum(math.prod(weight.shape) for weight in backbone.weights)


def _hub() -> Any:
    return importlib.import_module("keras_hub").models


def _heads(layers: int, width: int, inner: int, heads: int, **others: Any) -> dict[str, Any]:
    return {"num_layers": layers, "hidden_dim": width, "intermediate_dim": inner, "num_heads": heads, **others}


def _queries(layers: int, width: int, inner: int, heads: int, pairs: int, **others: Any) -> dict[str, Any]:
    sizes = _heads(layers, width, inner, heads, num_key_value_heads=pairs, **others)
    return {"num_query_heads": sizes.pop("num_heads"), **sizes}


def _backbone(prefix: str, words: int, sizes: Mapping[str, Any]) -> Callable[[int], Any]:
    def backbone(part: int) -> Any:
        narrow = {name: value // part if name in _WIDTHS else value for name, value in sizes.items()}
        return getattr(_hub(), f"{prefix}Backbone")(words // part, **narrow)

    return backbone


def _classifier(prefix: str, words: int, sizes: Mapping[str, Any]) -> Shipped:
    def task(backbone: Any) -> keras.Model:
        return getattr(_hub(), f"{prefix}TextClassifier")(backbone, num_classes=2, preprocessor=None)

    return Shipped(_backbone(prefix, words, sizes), task)


def _language(prefix: str, kind: str, words: int, sizes: Mapping[str, Any]) -> Shipped:
    def task(backbone: Any) -> keras.Model:
        return getattr(_hub(), f"{prefix}{kind}")(backbone=backbone, preprocessor=None)

    return Shipped(_backbone(prefix, words, sizes), task)


def _whisper(layers: int, width: int, heads: int) -> Shipped:
    """Of 30 seconds of sound and as many tokens as it has places for; the same part of both, as of the widths."""

    def task(backbone: Any) -> keras.Model:
        part, names = _MELS // backbone.num_mels, ("decoder_token_ids", "decoder_padding_mask")
        texts = {name: keras.Input((_PLACES // part,), dtype="int32", name=name) for name in names}
        sound = keras.Input((_FRAMES // part, backbone.num_mels), name="encoder_features")
        inputs = {"encoder_features": sound, **texts}
        hidden = backbone(inputs)["decoder_sequence_output"]
        return keras.Model(inputs, backbone.token_embedding(hidden, reverse=True))

    return Shipped(_backbone("Whisper", 51864, _heads(layers, width, 4 * width, heads, num_mels=_MELS)), task)


def _images(prefix: str, architecture: str) -> Shipped:
    """The sizes are those that KerasHub has for the architecture's weights, whatever the part."""

    def backbone(part: int) -> Any:
        sizes = importlib.import_module(f"keras_hub.src.utils.timm.convert_{prefix.lower()}")
        return getattr(_hub(), f"{prefix}Backbone")(
            **sizes.convert_backbone_config({"architecture": architecture}),
            **{"input_shape" if prefix == "EfficientNet" else "image_shape": (224, 224, 3)},
        )

    def task(backbone: Any) -> keras.Model:
        return getattr(_hub(), f"{prefix}ImageClassifier")(backbone, num_classes=1000, preprocessor=None)

    return Shipped(backbone, task)


def _convnext(name: str) -> Shipped:
    def whole(part: int) -> keras.Model:
        return getattr(keras.applications, name)(weights=None, classifier_activation=None)

    return Shipped(whole, lambda model: model)


_BERT_BASE, _BERT_LARGE = _heads(12, 768, 3072, 12), _heads(24, 1024, 4096, 16)
_PLAIN = {"use_gated_activation": False}

MODELS: Mapping[str, Shipped] = {
    "bert_base_en": _classifier("Bert", 28996, _BERT_BASE),
    "bert_base_en_uncased": _classifier("Bert", 30522, _BERT_BASE),
    "bert_large_en": _classifier("Bert", 28996, _BERT_LARGE),
    "bert_large_en_uncased": _classifier("Bert", 30522, _BERT_LARGE),
    "roberta_base_en": _classifier("Roberta", 50265, _BERT_BASE),
    "roberta_large_en": _classifier("Roberta", 50265, _BERT_LARGE),
    "deberta_v3_base_en": _classifier("DebertaV3", 128100, _BERT_BASE),
    "distil_bert_base_en": _classifier("DistilBert", 28996, _heads(6, 768, 3072, 12)),
    "distil_bert_base_en_uncased": _classifier("DistilBert", 30522, _heads(6, 768, 3072, 12)),
    "gpt2_base_en": _language("GPT2", "CausalLM", 50257, _BERT_BASE),
    "gpt2_medium_en": _language("GPT2", "CausalLM", 50257, _BERT_LARGE),
    "llama3.2_1b": _language("Llama3", "CausalLM", 128256, _queries(16, 2048, 8192, 32, 8)),
    "llama3.2_3b": _language("Llama3", "CausalLM", 128256, _queries(28, 3072, 8192, 24, 8)),
    "gemma_2b_en": _language("Gemma", "CausalLM", 256000, _queries(18, 2048, 32768, 8, 1, head_dim=256)),
    "qwen2.5_0.5b_en": _language("Qwen", "CausalLM", 151936, _queries(24, 896, 4864, 14, 2)),
    "qwen2.5_3b_en": _language("Qwen", "CausalLM", 151936, _queries(36, 2048, 11008, 16, 2)),
    "mistral_7b_en": _language("Mistral", "CausalLM", 32000, _queries(32, 4096, 14336, 32, 8)),
    "bart_base_en": _language("Bart", "Seq2SeqLM", 50265, _heads(6, 768, 3072, 12)),
    "t5_small_multi": _language("T5", "Seq2SeqLM", 32128, _heads(6, 512, 2048, 8, **_PLAIN)),
    "t5_base_multi": _language("T5", "Seq2SeqLM", 32128, _heads(12, 768, 3072, 12, **_PLAIN)),
    "whisper_tiny_en": _whisper(4, 384, 6),
    "whisper_base_en": _whisper(6, 512, 8),
    "whisper_small_en": _whisper(12, 768, 12),
    "resnet_50_imagenet": _images("ResNet", "resnet50"),
    "efficientnet_b0_ra_imagenet": _images("EfficientNet", "efficientnet_b0"),
    "mobilenet_v3_large_100_imagenet": _images("MobileNet", "mobilenetv3_large_100"),
    "convnext_tiny": _convnext("ConvNeXtTiny"),
}
"""By preset; of ConvNeXt by the name that `keras.applications` gives the model."""
