"""Configurations for KerasHub's presets, by their names; the largest IPU has at most 1.25 times the mean operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BASE = {"layers_per_ipu": [3, 3, 3, 3], "gradient_accumulation_steps": 32, "recompute_checkpoint_every_layer": True}
_LARGE = {**_BASE, "layers_per_ipu": [6, 6, 6, 6]}
#: The head is a fifth stage, so 10 micro-batches fill the pipeline. One of 50,257 words takes as many operations as 5.4
#: blocks of the base size, and 4 of the medium one.
_GPT2_BASE = {**_BASE, "layers_per_ipu": [0, 4, 4, 4], "gradient_accumulation_steps": 40}
_GPT2_MEDIUM = {**_GPT2_BASE, "layers_per_ipu": [3, 7, 7, 7]}
#: Six blocks of the encoder, then six of the decoder, of which each takes 4/3 of the operations; the head as GPT-2's.
_BART_BASE = {**_GPT2_BASE, "layers_per_ipu": [0, 5, 4, 3]}

SHIPPED: Mapping[str, Mapping[str, Any]] = {
    "bert_base_en": _BASE,
    "bert_base_en_uncased": _BASE,
    "bert_large_en": _LARGE,
    "bert_large_en_uncased": _LARGE,
    "roberta_base_en": _BASE,
    "roberta_large_en": _LARGE,
    "deberta_v3_base_en": _BASE,
    "gpt2_base_en": _GPT2_BASE,
    "gpt2_medium_en": _GPT2_MEDIUM,
    "bart_base_en": _BART_BASE,
}
"""For classification the encoders' blocks are all there is to balance; a language model's head is on IPU 0."""
