"""Configurations for KerasHub's presets, by their names; the largest IPU has at most 1.25 times the mean operations.

ConvNeXt's are by the names that `keras.applications` gives its models: KerasHub has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def _config(layers: Sequence[int], micro_batches: int = 32) -> dict[str, Any]:
    return {
        "layers_per_ipu": list(layers),
        "gradient_accumulation_steps": micro_batches,
        "recompute_checkpoint_every_layer": True,
    }


def _with_head(*layers: int) -> dict[str, Any]:
    """A model whose head is its table of tokens: a stage more, so 10 micro-batches fill the pipeline of 4 IPUs.

    GPT-2's head of 50,257 words takes as many operations as 5.4 blocks of the base size, and 4 of the medium one.
    """
    return _config(layers, 40)


_BASE, _LARGE, _HALF = _config([3, 3, 3, 3]), _config([6, 6, 6, 6]), _config([3, 3])

SHIPPED: Mapping[str, Mapping[str, Any]] = {
    "bert_base_en": _BASE,
    "bert_base_en_uncased": _BASE,
    "bert_large_en": _LARGE,
    "bert_large_en_uncased": _LARGE,
    "roberta_base_en": _BASE,
    "roberta_large_en": _LARGE,
    "deberta_v3_base_en": _BASE,
    "distil_bert_base_en": _HALF,
    "distil_bert_base_en_uncased": _HALF,
    "gpt2_base_en": _with_head(0, 4, 4, 4),
    "gpt2_medium_en": _with_head(3, 7, 7, 7),
    "llama3.2_1b": _with_head(1, 5, 5, 5),
    "llama3.2_3b": _with_head(4, 8, 8, 8),
    "gemma_2b_en": _with_head(1, 6, 6, 5),
    "qwen2.5_0.5b_en": _with_head(0, 8, 8, 8),
    "qwen2.5_3b_en": _with_head(6, 10, 10, 10),
    "mistral_7b_en": _config([4] * 8, 72),
    # Blocks of the encoder, then of the decoder, of which each takes 4/3 to 3/2 of the operations.
    "bart_base_en": _with_head(0, 5, 4, 3),
    "t5_small_multi": _with_head(1, 5, 3, 3),
    "t5_base_multi": _with_head(5, 8, 6, 5),
    # Of 30 seconds of sound and 448 tokens. The head is where the decoder's table of tokens is: after the encoder.
    "whisper_tiny_en": _config([3, 5]),
    "whisper_base_en": _with_head(2, 3, 1, 6),
    "whisper_small_en": _with_head(4, 5, 5, 10),
    # Blocks are convolutions, of MobileNet inverted residual blocks, of ConvNeXt dense layers: two in each of its own.
    "resnet_50_imagenet": _config([13, 13, 14, 13]),
    "efficientnet_b0_ra_imagenet": _config([16, 21, 16, 12]),
    "mobilenet_v3_large_100_imagenet": _config([4, 6, 2, 2]),
    "convnext_tiny": _config([8, 9, 10, 10]),
}
"""For classification the encoders' blocks are all there is to balance; a language model's head is on the IPU of its
table of tokens."""
