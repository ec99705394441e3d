"""Patches to TensorFlow's private API: sessions, eager ops, gradient tapes, iterators, control flow.

Each is in the table `ipu_tf._patches.table` and can be taken off. If TensorFlow moves one of these,
`tests/project/test_private_api.py` names it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe as _pywrap_tfe
from tensorflow.python.client import session as _session
from tensorflow.python.compiler.xla import xla as _xla
from tensorflow.python.data.ops import dataset_ops as _dataset_ops
from tensorflow.python.data.ops import iterator_ops as _iterator_ops
from tensorflow.python.eager import backprop as _backprop
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import core as _core
from tensorflow.python.eager import execute as _execute
from tensorflow.python.eager.polymorphic_function import atomic_function as _atomic_function
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops import control_flow_util as _control_flow_util
from tensorflow.python.ops import gen_candidate_sampling_ops as _gen_candidate_sampling_ops
from tensorflow.python.ops import variable_scope as _variable_scope

from ipu_tf._patches.installation import is_installed, record, replace_in
from ipu_tf.device.run.forks import check_not_forked
from ipu_tf.lowering.tensorflow.op_lines import place_of
from ipu_tf.lowering.tensorflow.tf_graphs import scope_attribute
from ipu_tf.lowering.tensorflow.tf_values import current_device

_local = threading.local()
#: What TensorFlow computes the gradients of eager ops with: registered in C++, so no attribute can be replaced.
_GRADIENTS = "tensorflow.python.pywrap_tfe:TFE_Py_RegisterGradientFunction"

#: An attribute of graphs in which an op runs a program on the device.
RUNS_PROGRAMS = "_ipu_tf_runs_programs"

#: From a device, an op's type, its inputs and its attributes (names and values in turn) to its outputs.
RunEagerOp = Callable[[str, str, Sequence[tf.Tensor], Sequence[Any]], Sequence[tf.Tensor] | None]


@contextlib.contextmanager
def dataset_iterators(make: Callable[[tf.data.Dataset], Any] | None) -> Iterator[None]:
    """Context manager: in this thread, `iter(dataset)` returns `make(dataset)`, or TensorFlow's iterator for None."""
    _patch_dataset_iter()
    with _in_this_thread("make_iterator", make):
        yield


@contextlib.contextmanager
def elements_in_programs(take: Callable[[Any], Any]) -> Iterator[None]:
    """Context manager: in this thread, in graphs, the next element of TensorFlow's iterators is `take`'s result."""
    _patch_next_element()
    with _in_this_thread("take_element", take):
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


def _patch_next_element() -> None:
    def patched(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def element(self: Any) -> Any:
            take = None if _context.executing_eagerly() else getattr(_local, "take_element", None)
            return stock(self) if take is None else take(self)

        return element

    replace_in(_iterator_ops.OwnedIterator, "_next_internal", patched)


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


def patch_session_errors(original: Callable[[BaseException], BaseException | None]) -> None:
    """Patches `Session.run` to raise the original exception of a Python function in the graph, if `original` has it."""

    def patched(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return stock(self, *args, **kwargs)
            except tf.errors.OpError as error:
                known = original(error)
                if known is None:
                    raise
                # Not from `error`, which repeats it within stacks of TensorFlow's own.
                raise known from known.__cause__

        return run

    replace_in(_session.BaseSession, "run", patched)


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


#: From what a session is to run (tensors to fetch, ops, names of fed tensors) to what it runs instead, or to None.
RewriteRun = Callable[
    [Any, Sequence[tf.Tensor], Sequence[tf.Operation], frozenset[str]],
    tuple[Sequence[tf.Tensor], Sequence[tf.Operation]] | None,
]


def patch_session_runs(rewrite: RewriteRun) -> None:
    """Patches sessions to run what `rewrite` returns, with ops of unknown devices on the host.

    `rewrite` is called with the session, which knows by `requires_strict_placement` what its maker asked for. A second
    call changes nothing.
    """
    cls = _session.BaseSession
    replace_in(cls, "__init__", _session_with_soft_placement)
    replace_in(cls, "_do_run", lambda stock: _rewritten_run(stock, rewrite), key="programs")
    replace_in(cls, "make_callable", _callable_through_run)
    replace_in(cls, "_make_callable_from_options", lambda stock: _checked_callable(stock, rewrite))


def _session_with_soft_placement(stock_init: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock_init)
    def init(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
        config = _context.context().config if config is None else config
        if isinstance(config, tf.compat.v1.ConfigProto):
            self._ipu_tf_strict = not config.allow_soft_placement
            config = tf.compat.v1.ConfigProto.FromString(config.SerializeToString())
            config.allow_soft_placement = True
            # What became a program has perhaps no kernel for the host.
            config.graph_options.place_pruned_graph = True
        stock_init(self, target, graph, config)

    return init


def _rewritten_run(stock_run: Callable[..., Any], rewrite: RewriteRun) -> Callable[..., Any]:
    @functools.wraps(stock_run)
    def do_run(
        self: Any, handle: Any, target_list: Any, fetch_list: Any, feed_dict: Any, options: Any, run_metadata: Any
    ) -> Any:
        fed = frozenset(reference.deref().name for reference in feed_dict)
        found = rewrite(self, fetch_list, target_list, fed)
        if found is not None:
            _check_whole_run(handle is None, "partial_run")
            fetch_list, target_list = found
        if found is not None or getattr(self.graph, RUNS_PROGRAMS, False):
            check_not_forked()  # the session's own threads are not there either
        return stock_run(self, handle, list(target_list), list(fetch_list), feed_dict, options, run_metadata)

    return do_run


def _callable_through_run(stock_callable: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock_callable)
    def make_callable(self: Any, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Any:
        # With a list of feeds, even an empty one, TensorFlow's callable goes through `run`.
        return stock_callable(self, fetches, [] if feed_list is None else feed_list, accept_options)

    return make_callable


def _checked_callable(stock_from_options: Callable[..., Any], rewrite: RewriteRun) -> Callable[..., Any]:
    @functools.wraps(stock_from_options)
    def make_callable_from_options(self: Any, options: Any) -> Any:
        fetches = [self.graph.get_tensor_by_name(name) for name in options.fetch]
        targets = [self.graph.get_operation_by_name(name) for name in options.target]
        found = rewrite(self, fetches, targets, frozenset(options.feed))
        _check_whole_run(found is None, "_make_callable_from_options")
        return stock_from_options(self, options)

    return make_callable_from_options


def requires_strict_placement(session: Any) -> bool:
    """Returns whether a session was configured to refuse ops on unknown devices."""
    return bool(getattr(session, "_ipu_tf_strict", False))


def _check_whole_run(whole: bool, name: str) -> None:
    if not whole:
        raise NotImplementedError(
            f"Session.{name} would run ops that are placed on an IPU. They run as one program: use Session.run."
        )


def patch_eager_devices(
    is_ours: Callable[[str], bool], computes_there: Callable[[tf.Operation], bool], run: RunEagerOp
) -> None:
    """Patches eager execution so that ops placed on an IPU device run there. A second call changes nothing.

    TensorFlow would silently run them on the host. A function with ops placed there is an error.

    Args:
        is_ours: whether a device is one of ours, by its name.
        computes_there: whether an op is placed on such a device and does more than move data.
        run: runs an op; gives its outputs, or None for what is the host's.
    """

    def entering(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def enter(self: Any) -> None:
            stock(self)
            if _follow_device(self._ctx, is_ours):
                _patch_eager_ops(is_ours, run)

        return enter

    def leaving(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def leave(self: Any, *error: Any) -> None:
            stock(self, *error)
            _follow_device(self._ctx, is_ours)

        return leave

    def calling(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def call_flat(self: Any, *args: Any) -> Any:
            if _context.executing_eagerly():
                _check_places(self, computes_there)
            return stock(self, *args)

        return call_flat

    replace_in(_context._EagerDeviceContext, "__enter__", entering)
    replace_in(_context._EagerDeviceContext, "__exit__", leaving)
    replace_in(_atomic_function.AtomicFunction, "call_flat", calling)


def patch_eager_calls(seen: Callable[[str, tf.Graph], None]) -> None:
    """Calls `seen(name, graph)` for each `tf.function` before its first call from eager code. Installed once."""

    def looking(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def call_flat(self: Any, *args: Any) -> Any:
            if not hasattr(self, "_ipu_tf_looked_at") and _context.executing_eagerly():
                self._ipu_tf_looked_at = True
                seen(self.name.decode(), self.graph)
            return stock(self, *args)

        return call_flat

    replace_in(_atomic_function.AtomicFunction, "call_flat", looking, key="calls from eager code")


def _follow_device(context: Any, is_ours: Callable[[str], bool]) -> bool:
    """Returns whether the current device is an IPU; lets numbers become tensors on the host there."""
    ours = bool(context.device_name) and is_ours(context.device_name)
    before = getattr(_local, "soft_placement", None)
    if ours and before is None:
        _local.soft_placement = context.soft_device_placement
        context.soft_device_placement = True
    elif not ours and before is not None:
        context.soft_device_placement = before
        _local.soft_placement = None
    return ours


def _patch_eager_ops(is_ours: Callable[[str], bool], run: RunEagerOp) -> None:
    """Passes eager ops placed on IPU devices to `run`. No cost for programs that never enter such a device."""

    def without_ours(stock: Callable[..., Any]) -> Callable[..., Any]:
        def fast(context: Any, *args: Any) -> Any:
            if context.device_name and is_ours(context.device_name):
                # TensorFlow then prepares the op in Python and comes to `execute`.
                raise _core._FallbackException("this device's ops do not take the fast path")
            return stock(context, *args)

        return fast

    def with_ours(stock: Callable[..., Any]) -> Callable[..., Any]:
        def execute(handle: Any, device: str, op_name: Any, inputs: Any, attrs: Any, *rest: Any) -> Any:
            if device and is_ours(device):
                outputs = run(device, tf.compat.as_str(op_name), inputs, attrs or ())
                if outputs is not None:
                    return outputs
            return stock(handle, device, op_name, inputs, attrs, *rest)

        return execute

    replace_in(_pywrap_tfe, "TFE_Py_FastPathExecute", without_ours)
    replace_in(_pywrap_tfe, "TFE_Py_Execute", with_ours)


def _check_places(function: Any, computes_there: Callable[[tf.Operation], bool]) -> None:
    """Raises an error for a function run on the host that has ops placed on an IPU device."""
    found = getattr(function, "_ipu_tf_place", None)
    if found is None:
        operations = function.graph.get_operations()
        found = next(((o.device, place_of(o)) for o in operations if o.device and computes_there(o)), ())
        function._ipu_tf_place = found
    if found:
        device, place = found
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            f"The function `{function.name.decode()}` places ops on an IPU ({place.name} on {device}), and it is "
            "called as a function of the host. Run it on the device: by IPUStrategy.run, or by ipu_compiler.compile "
            f"within it.\n{place}",
        )


def patch_control_flow(is_ours: Callable[[str], bool]) -> None:
    """Patches loops and branches on an IPU to TensorFlow 2's control flow, which can be lowered.

    A second call changes nothing.

    Args:
        is_ours: whether a device is one of ours, by its name.
    """

    def patched(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def enabled(graph: Any) -> bool:
            return bool(stock(graph)) or is_ours(current_device())

        return enabled

    replace_in(_control_flow_util, "EnableControlFlowV2", patched)


def patch_xla_compile(replacement: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replaces `xla.compile`, under each of its names, by `replacement(stock)`."""
    compile = functools.wraps(_xla.compile)(replacement(_xla.compile))
    for module in (_xla, tf.xla.experimental, tf.compat.v1.xla.experimental, tf.compat.v2.xla.experimental):
        replace_in(module, "compile", lambda stock: compile)


def patch_candidate_samplers(replacement: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replaces the raw ops behind TensorFlow's samplers of classes. A second call changes nothing.

    Args:
        replacement: from a sampler's name and TensorFlow's own raw op to what stands in its place.
    """
    for name in ("uniform_candidate_sampler", "log_uniform_candidate_sampler"):
        wrapped = functools.partial(_sampler, name, replacement)
        replace_in(_gen_candidate_sampling_ops, name, wrapped)


def _sampler(name: str, replacement: Callable[..., Any], stock: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(stock)(replacement(name, stock))
