"""Scopes: device placement, sharding, frontend attributes, stochastic rounding, partials type."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf.device.schedule.pipeline_shape import ALL_DEVICES
from ipu_tf.lowering.tensorflow import tf_graphs
from ipu_tf.sharding import shard_scope

#: The attribute of an op that holds its frontend attributes, as a serialized message of strings by name.
FRONTEND_ATTRIBUTES_NAME = "_XlaFrontendAttributes"
#: The attribute of an op made in an `outside_compilation_scope`: the name of the scope.
OUTSIDE_COMPILATION_NAME = "_xla_outside_compilation"

_PARTIALS = {"float16": "F16", "float32": "F32"}


@contextlib.contextmanager
def ipu_scope(device: str) -> Iterator[None]:
    """Ops made within it belong to an emulated IPU: compile them with `ipu_compiler.compile`.

    An op that is run eagerly within the scope without being compiled is a program of its own on the device.

    Args:
        device: e.g. `/device:IPU:0`.

    Raises:
        tf.errors.InvalidArgumentError: where an op is run eagerly within the scope that the device cannot run alone.

    Example:
        >>> from ipu_tf.scopes import ipu_scope
        >>> with ipu_scope("/device:IPU:0"):
        ...     pass
    """
    with tf.device(device):
        yield


@contextlib.contextmanager
def ipu_jit_scope(ipu_scope: Any) -> Iterator[None]:
    """Ops made within it are compiled together.

    It has no effect here: one program is what `ipu_compiler.compile` or `IPUStrategy.run` is given.

    Args:
        ipu_scope: what tells the scope from others; recorded, see `emulation.ignored_arguments()`.
    """
    record_ignored(
        "ipu_jit_scope.ipu_scope", ipu_scope, "a program is what ipu_compiler.compile or IPUStrategy.run is given"
    )
    yield


@contextlib.contextmanager
def outside_compilation_scope(name: str = "outside") -> Iterator[None]:
    """Ops made within it, in a program, would run on the host of an IPU.

    Here the host and the emulated IPU are one machine, and the ops run with the rest of the program: their values are
    the same. An op that only the host's TensorFlow knows (strings, say) is refused like anywhere in a program.

    Args:
        name: a name for the scope.

    Raises:
        ValueError: outside of a program, or within another such scope.
    """
    graph = tf.compat.v1.get_default_graph()
    if not tf_graphs.in_program(graph):
        raise ValueError("outside_compilation_scope is only allowed in XLA context")
    if tf_graphs.scope_attribute(OUTSIDE_COMPILATION_NAME) is not None:
        raise ValueError("Illegal nesting of outside_compilation_scope")
    record_ignored("outside_compilation_scope.name", name, "the ops run with the program, on the one machine there is")
    unique = graph.unique_name(name)
    value = tf.compat.v1.AttrValue(s=unique.encode())
    with tf.name_scope(unique + "/"), tf_graphs.attribute_scope(OUTSIDE_COMPILATION_NAME, value):
        yield


@contextlib.contextmanager
def ipu_shard(index: int | Iterable[int]) -> Iterator[None]:
    """Ops made within it, and their gradients wherever these are computed, are on one IPU of a device, or on some.

    Values do not depend on it. A program takes as many IPUs of its device as its highest index asks for, rounded up
    to a power of two; `sharding.get_sharding` reads an op's indices back.

    Args:
        index: the index of the IPU within the device, from 0; several; or -1 for all of them, which asks for none.

    Raises:
        ValueError: for an index below zero.

    Example:
        >>> import tensorflow as tf
        >>> from ipu_tf.scopes import ipu_shard
        >>> from ipu_tf.sharding import get_sharding
        >>> with tf.Graph().as_default(), ipu_shard(1):
        ...     get_sharding(tf.constant(2.0).op)
        [1]
    """
    shards = [int(one) for one in (index if isinstance(index, Iterable) else [index])]
    if shards == [ALL_DEVICES]:
        yield
        return
    if any(shard < 0 for shard in shards):
        raise ValueError(f"An index of an IPU within its device must be at least 0. Received: {index}.")
    with shard_scope(shards):
        yield


@contextlib.contextmanager
def frontend_attribute(attribute_name: str, attribute_value: str, restore_to: str | None = None) -> Iterator[None]:
    """Ops made within it in the current graph carry a named string down to the compiler.

    Args:
        attribute_name: the name.
        attribute_value: the string.
        restore_to: what later ops of the graph carry under the name, if they carried nothing before the scope. By
            default they carry nothing.
    """
    before = _frontend_attributes()
    with tf_graphs.attribute_scope(FRONTEND_ATTRIBUTES_NAME, _packed(before | {attribute_name: attribute_value})):
        yield
    if restore_to is not None and attribute_name not in before:
        tf_graphs.set_scope_attribute(FRONTEND_ATTRIBUTES_NAME, _packed(before | {attribute_name: restore_to}))


@contextlib.contextmanager
def stochastic_rounding(override: bool) -> Iterator[None]:
    """Context manager: sets stochastic rounding to float16 for ops of the current graph, over the configuration.

    Args:
        override: whether they do.
    """
    value = "THREESTATE_ON" if override else "THREESTATE_OFF"
    with frontend_attribute("STOCHASTIC_ROUNDING", value, "THREESTATE_UNDEFINED"):
        yield


@contextlib.contextmanager
def partials_type(override_type: Any) -> Iterator[None]:
    """Matrix products and convolutions made within it would sum up in this type.

    Ops only carry the wish: partial sums are kept as the JAX backend keeps them.

    Args:
        override_type: float16 or float32, as numpy or TensorFlow has it.

    Raises:
        ValueError: for another type.
    """
    dtype = np.dtype(override_type.as_numpy_dtype if isinstance(override_type, tf.DType) else override_type)
    if dtype.name not in _PARTIALS:
        raise ValueError(f"Only support float16, float32, provided {dtype}")
    record_ignored("partials_type.override_type", dtype.name, "partial sums are kept as the JAX backend keeps them")
    with frontend_attribute("PARTIALS_TYPE", _PARTIALS[dtype.name], "PRIMITIVE_TYPE_INVALID"):
        yield


def _frontend_attributes() -> dict[str, str]:
    """Returns the attributes that the current scopes set on ops, by name."""
    value = tf_graphs.scope_attribute(FRONTEND_ATTRIBUTES_NAME)
    return {} if value is None else tf_graphs.string_map(value.s)


def _packed(attributes: dict[str, str]) -> Any:
    return tf.compat.v1.AttrValue(s=tf_graphs.serialized_map(attributes))
