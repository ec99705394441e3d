"""Elements of any structure pass through the feeds unchanged, or are refused with an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import ipu_tf as ipu
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

DTYPES = ["float32", "float16", "int32", "uint8", "bool", "int8", "float64", "int64", "complex64", "str"]
REFUSALS = (tf.errors.OpError, TypeError, ValueError, RuntimeError, NotImplementedError)
SUPPORTED = {"float32", "float16", "int32", "uint8", "bool", "int8", "complex64"}


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 0] if draw(st.integers(0, 9)) == 0 else [1, 2, 3]), max_size=3))
    dtype = draw(st.sampled_from(DTYPES if draw(st.integers(0, 4)) == 0 else sorted(SUPPORTED)))
    return (np.arange(np.prod([3, *shape])) % 5).reshape(3, *shape).astype(dtype)


names = st.sampled_from(["x", "y", "label", "a b"])
structures = st.recursive(
    arrays(),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(tuple), st.dictionaries(names, inner, min_size=1, max_size=3)
    ),
    max_leaves=4,
)


@given(structures, st.sampled_from(list(ipu.ipu_outfeed_queue.IPUOutfeedMode)))
@settings(max_examples=8, deadline=None, derandomize=True)
def test_any_structure_comes_back_or_is_refused(structure: Any, mode: Any) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    leaves = tf.nest.flatten(structure)
    fits = all(leaf.dtype.name in SUPPORTED and leaf.size for leaf in leaves)
    parts = structure.values() if isinstance(structure, dict) else structure
    nested = not isinstance(structure, np.ndarray) and not all(isinstance(part, np.ndarray) for part in parts)
    try:
        with device_work() if fits else tf.name_scope("refused"):
            elements = sent_through(structure, mode)
    except REFUSALS as error:
        assert str(error)
        assert nested or not fits, error
        return
    assert fits, "What the device has not went through."
    for leaf, element in zip(leaves, tf.nest.flatten(elements), strict=True):
        wanted = leaf if mode is ipu.ipu_outfeed_queue.IPUOutfeedMode.ALL else leaf[-1]
        np.testing.assert_array_equal(element, wanted)


def sent_through(structure: Any, mode: Any) -> Any:
    """Three elements through an infeed and an outfeed, in the structure that came out."""
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(structure))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(mode)

    @tf.function(autograph=False)
    def loop() -> None:
        ipu.loops.repeat(3, lambda *element, **named: outfeed.enqueue(named or list(element)), [], infeed)

    ipu.ipu_strategy.IPUStrategy().run(loop)
    return outfeed.dequeue()


@pytest.mark.parametrize("fed", [False, True])
def test_a_placeholder_with_a_default_in_a_session(fed: bool) -> None:
    tf1 = tf.compat.v1
    with tf.Graph().as_default(), tf1.Session() as session, ipus(1):
        scale = tf1.placeholder_with_default(1.0, [])
        data = tf.data.Dataset.from_tensors(2.0).repeat().map(lambda x: x * scale)
        infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, lambda x: outfeed.enqueue(x), [], infeed))
        dequeued = outfeed.dequeue()
        session.run(infeed.initializer, {scale: 5.0} if fed else {})
        session.run(run)
        np.testing.assert_array_equal(session.run(dequeued), [10.0, 10.0] if fed else [2.0, 2.0])
