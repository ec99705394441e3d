"""Patches to TensorFlow's private API: iterators, seeds, gradient tapes, control flow, raw ops.

Each is in the table `ipu_tf._patches.table` and can be taken off. If TensorFlow moves one of these,
`tests/project/test_private_api.py` names it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.function.trace_type.default_types import Weakref as _Weakref
from tensorflow.python import pywrap_tfe as _pywrap_tfe
from tensorflow.python.compiler.xla import xla as _xla
from tensorflow.python.data.ops import dataset_ops as _dataset_ops
from tensorflow.python.data.ops import iterator_ops as _iterator_ops
from tensorflow.python.eager import backprop as _backprop
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import execute as _execute
from tensorflow.python.eager.polymorphic_function import function_context as _function_context
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops import control_flow_util as _control_flow_util
from tensorflow.python.ops import gen_array_ops as _gen_array_ops
from tensorflow.python.ops import gen_candidate_sampling_ops as _gen_candidate_sampling_ops
from tensorflow.python.ops import gen_image_ops as _gen_image_ops
from tensorflow.python.ops import gen_math_ops as _gen_math_ops
from tensorflow.python.ops import gen_nn_ops as _gen_nn_ops
from tensorflow.python.ops import gen_random_ops as _gen_random_ops
from tensorflow.python.ops import gen_stateless_random_ops as _gen_stateless_random_ops
from tensorflow.python.ops import gen_stateless_random_ops_v2 as _gen_stateless_random_ops_v2
from tensorflow.python.ops import variable_scope as _variable_scope

from ipu_tf._patches.installation import is_installed, record, replace_in
from ipu_tf.lowering.tensorflow.tf_graphs import function_traces_of, is_tracing_for_device, scope_attribute
from ipu_tf.lowering.tensorflow.tf_values import current_device

_local = threading.local()
#: What TensorFlow computes the gradients of eager ops with: registered in C++, so no attribute can be replaced.
_GRADIENTS = "tensorflow.python.pywrap_tfe:TFE_Py_RegisterGradientFunction"


@contextlib.contextmanager
def dataset_iterators(make: Callable[[tf.data.Dataset], Any] | None) -> Iterator[None]:
    """Context manager: in this thread, `iter(dataset)` returns `make(dataset)`, or TensorFlow's iterator for None."""
    _patch_dataset_iter()
    with _in_this_thread("make_iterator", make):
        yield


@contextlib.contextmanager
def sources_in_programs(source: Callable[[Any], Any]) -> Iterator[None]:
    """Context manager: in this thread, in graphs, elements of TensorFlow's iterators come from what `source` gives.

    Args:
        source: from TensorFlow's iterator to a Python iterator, which functions that are called there are given, too.
    """
    _patch_next_element()
    _patch_types_of_iterators()
    with _in_this_thread("source_in_programs", source):
        yield


@contextlib.contextmanager
def _in_this_thread(name: str, function: Callable[..., Any] | None) -> Iterator[None]:
    """Context in which this thread's patched methods find `function` under a name."""
    outer = getattr(_local, name, None)
    setattr(_local, name, function)
    try:
        yield
    finally:
        setattr(_local, name, outer)


def is_stock_iterator(iterator: Any) -> bool:
    """Returns whether an object is TensorFlow's own eager iterator over a dataset."""
    return type(iterator) is _iterator_ops.OwnedIterator and isinstance(iterator._iterator_resource, _ops.EagerTensor)


def _source_in_programs() -> Callable[[Any], Any] | None:
    return None if _context.executing_eagerly() else getattr(_local, "source_in_programs", None)


def _patch_next_element() -> None:
    def patched(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def element(self: Any) -> Any:
            source = _source_in_programs()
            return stock(self) if source is None else next(source(self))

        return element

    replace_in(_iterator_ops.OwnedIterator, "_next_internal", patched)


class _SourceType(_Weakref):
    """The type, for `tf.function`, of an iterator that another one stands for: a function is traced for each."""

    def cast(self, value: Any, _: Any) -> Any:
        """Returns the other iterator."""
        return self._ref()


def _patch_types_of_iterators() -> None:
    def patched(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def tracing_type(self: Any, context: Any) -> Any:
            source = _source_in_programs() if is_stock_iterator(self) else None
            return stock(self, context) if source is None else _SourceType(weakref.ref(source(self)))

        return tracing_type

    replace_in(_iterator_ops.OwnedIterator, "__tf_tracing_type__", patched)


def _patch_dataset_iter() -> None:
    def patched(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def iterate(self: Any) -> Any:
            make = getattr(_local, "make_iterator", None)
            return make(self) if make is not None else stock(self)

        return iterate

    replace_in(_dataset_ops.DatasetV2, "__iter__", patched)


def patch_graph_resets(keeps: Callable[[], bool]) -> None:
    """Patches resets of the default graph, of `clear_session` of Keras, to stay in a strategy's scope. Installed once.

    In eager mode the default graph holds nothing but the scopes that code is in.

    Args:
        keeps: whether code is in a scope to stay in.
    """

    def patched(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def reset(self: Any) -> None:
            before = self._global_default_graph if _context.executing_eagerly() and keeps() else None
            stock(self)
            if before is not None:
                _share_scopes(before, _ops.get_default_graph())

        return reset

    replace_in(_ops._DefaultGraphStack, "reset", patched)


def patch_global_seed(ours: Callable[[int | None], None]) -> None:
    """Patches `tf.random.set_seed` to call `ours(seed)` too, once; at once for a seed that was set before."""

    def patched(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def set_global_seed(self: Any, seed: Any) -> None:
            stock(self, seed)
            ours(None if seed is None else int(seed))

        return set_global_seed

    if not is_installed("tensorflow.python.eager.context:Context._set_global_seed"):
        before = _context.global_seed()
        if before is not None:
            ours(int(before))
    replace_in(_context.Context, "_set_global_seed", patched)


def _share_scopes(old: tf.Graph, new: tf.Graph) -> None:
    """Copies a graph's strategies, variable creators and variable scopes to a new graph.

    They are left, each at the end of its `with`, in the graph that they were entered in: both share one stack.
    """
    new._thread_local = old._thread_local
    new.get_collection_ref(_variable_scope._VARSCOPESTORE_KEY).extend(
        old.get_collection_ref(_variable_scope._VARSCOPESTORE_KEY)
    )


def patch_gradient_tapes(attribute: str, within: Callable[[Any], Any]) -> None:
    """Patches gradient tapes to compute the gradients of an op within a context manager that depends on it.

    Args:
        attribute: only ops of graphs that are made where `attribute_scope` has set this attribute are concerned.
        within: from the attribute's value to the context manager. It stays in force; a second call changes nothing.
    """

    def recorded(stock: Callable[..., Any]) -> Callable[..., Any]:
        def record_gradient(op_name: str, inputs: Any, attrs: Any, *rest: Any) -> Any:
            value = None if _context.executing_eagerly() else scope_attribute(attribute)
            if value is not None:
                attrs = (*(attrs or ()), attribute, value)
            return stock(op_name, inputs, attrs, *rest)

        return record_gradient

    def gradient(op_name: str, attrs: Any, *rest: Any) -> Any:
        if not attrs or attrs[-2:-1] != (attribute,):
            return _backprop._gradient_function(op_name, attrs, *rest)
        with within(attrs[-1]):
            return _backprop._gradient_function(op_name, attrs[:-2], *rest)

    replace_in(_execute, "record_gradient", recorded)
    if not is_installed(_GRADIENTS):
        register = _pywrap_tfe.TFE_Py_RegisterGradientFunction
        register(gradient)
        record(_GRADIENTS, lambda: register(_backprop._gradient_function))


def patch_control_flow(is_ours: Callable[[str], bool]) -> None:
    """Patches loops and branches on an IPU to TensorFlow 2's control flow, and their gradients to ops for XLA.

    TensorFlow asks whether the graph of a loop lies in one for XLA. Once the program that a `tf.function` was traced in
    is made, its graph does not any more: in the gradients that another program takes of it then, lengths came from
    stacks, where XLA needs constants. A second call changes nothing.

    Args:
        is_ours: whether a device is one of ours, by its name.
    """

    def patched(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def enabled(graph: Any) -> bool:
            return bool(stock(graph)) or is_ours(current_device())

        return enabled

    def of_programs(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def in_xla_context(graph: Any) -> bool:
            return bool(stock(graph)) or is_tracing_for_device() and any(map(stock, _ops._default_graph_stack.stack))

        return in_xla_context

    replace_in(_control_flow_util, "EnableControlFlowV2", patched)
    replace_in(_control_flow_util, "GraphOrParentsInXlaContext", of_programs)


def patch_function_traces(for_device: Callable[[], bool]) -> None:
    """Patches `tf.function` to keep its traces for the device apart from those for the host. Installed once.

    Args:
        for_device: whether a function that is called now becomes part of a program.
    """

    def patched(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def context_of_trace(scope_type: Any = None) -> Any:
            return stock(("ipu", function_traces_of(), scope_type) if for_device() else scope_type)

        return context_of_trace

    replace_in(_function_context, "make_function_context", patched)


def patch_xla_compile(replacement: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replaces `xla.compile`, under each of its names, by `replacement(stock)`."""
    compile = functools.wraps(_xla.compile)(replacement(_xla.compile))
    for module in (_xla, tf.xla.experimental, tf.compat.v1.xla.experimental, tf.compat.v2.xla.experimental):
        replace_in(module, "compile", lambda stock: compile)


_OP_MODULES = (
    tf.raw_ops,
    _gen_array_ops,
    _gen_candidate_sampling_ops,
    _gen_image_ops,
    _gen_math_ops,
    _gen_nn_ops,
    _gen_random_ops,
    _gen_stateless_random_ops,
    _gen_stateless_random_ops_v2,
)


def patch_op_functions(replacements: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]]) -> None:
    """Replaces functions that add an op to a graph. A second call changes nothing.

    Args:
        replacements: by the function's name, from TensorFlow's own to what stands in its place.
    """
    for name, replacement in replacements.items():
        module = next(module for module in _OP_MODULES if hasattr(module, name))
        replace_in(module, name, replacement)
