"""KerasHub's cache of keys and values is carried in parts: the loop over tokens stacks no layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jax.extend import core

import ipu_tf as ipu
from ipu_tf.device.elementwise import evaluate
from ipu_tf.device.jaxprs.array_regions import JOINS
from ipu_tf.device.jaxprs.flat_equations import inner
from ipu_tf.device.jaxprs.split_carries import with_split_carries
from tests.helpers.generated_tokens import SIZES, gpt2, llama, pair, prompts
from tests.helpers.some_ipus import ipus

pytest.importorskip("keras_hub", reason="KerasHub is not installed: pip install keras-hub")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own imports are older than the packages
CACHE_AXES = 6
"""Batch, layers, keys and values, places, heads, size of a head."""


def caches_in_loops(graph: core.Jaxpr, loops: int = 0) -> Iterator[Any]:
    """Yields what is stacked to a cache in the loop over tokens, which is in the loop over steps."""
    for eqn in graph.eqns:
        made: Any = eqn.outvars[0].aval if eqn.outvars else None
        if loops > 1 and eqn.primitive.name in JOINS and made.ndim == CACHE_AXES:
            yield eqn
        for each in inner(eqn):
            yield from caches_in_loops(each, loops + (eqn.primitive.name == "while"))


@pytest.mark.parametrize("model", [gpt2, llama], ids=["gpt2", "llama"])
def test_the_loop_over_tokens_stacks_no_cache(model: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[tuple[int, int]] = []

    def counted(function: core.ClosedJaxpr) -> core.ClosedJaxpr:
        split = with_split_carries(function)
        before, after = (sum(1 for _ in caches_in_loops(each.jaxpr)) for each in (function, split))
        counts.append((before, after))
        return split

    monkeypatch.setattr(evaluate, "with_split_carries", counted)
    monkeypatch.setitem(SIZES, "num_layers", 2)
    with ipus(1):
        strategy = ipu.ipu_strategy.IPUStrategy()
        _, ours = pair(model, strategy)
        with strategy.scope():
            ours.compile(sampler="greedy")
            ours.generate(prompts(2, 5, 3), stop_token_ids=None)
    stacked = [each for each in counts if each[0]]
    assert stacked, "no loop stacks a cache: look at what KerasHub does now"
    assert not any(after for _, after in stacked), stacked
