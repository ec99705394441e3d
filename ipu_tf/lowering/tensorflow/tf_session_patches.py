"""Patches to TensorFlow 1's sessions: programs run on the device, Python functions raise their own errors.

Each is in the table `ipu_tf._patches.table` and can be taken off.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.client import session as _session
from tensorflow.python.eager import context as _context

from ipu_tf._patches.installation import replace_in
from ipu_tf._state.numbers import next_number
from ipu_tf.device.run.forks import check_not_forked
from ipu_tf.device.run.interrupts import interruptible
from ipu_tf.lowering.tensorflow import tf_graphs

#: An attribute of graphs in which an op runs a program on the device.
RUNS_PROGRAMS = "_ipu_tf_runs_programs"


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
        arguments = (self, handle, list(target_list), list(fetch_list), feed_dict, options, run_metadata)
        if found is None and not getattr(self.graph, RUNS_PROGRAMS, False):
            return stock_run(*arguments)
        check_not_forked()  # the session's own threads are not there either
        _note_session(self)
        return interruptible(stock_run, *arguments)

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


def _note_session(session: Any) -> None:
    """Notes in its graph that a session runs, by a number of its own."""
    if not hasattr(session, "_ipu_tf_number"):
        session._ipu_tf_number = next_number("session")
    tf_graphs.graph_dict(session.graph, "session")["runs"] = session._ipu_tf_number


def running_session(graph: tf.Graph) -> int:
    """Returns the number of the session that runs a graph, or the graph around it, last; 0 where none does."""
    while getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    number: int = tf_graphs.graph_dict(graph, "session").get("runs", 0)
    return number


def requires_strict_placement(session: Any) -> bool:
    """Returns whether a session was configured to refuse ops on unknown devices."""
    return bool(getattr(session, "_ipu_tf_strict", False))


def _check_whole_run(whole: bool, name: str) -> None:
    if not whole:
        raise NotImplementedError(
            f"Session.{name} would run ops that are placed on an IPU. They run as one program: use Session.run."
        )
