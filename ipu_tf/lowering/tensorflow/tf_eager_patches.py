"""Patches to TensorFlow's eager execution: ops placed on an IPU run there, and first calls of functions are seen.

Each is in the table `ipu_tf._patches.table` and can be taken off.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe as _pywrap_tfe
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import core as _core
from tensorflow.python.eager.polymorphic_function import atomic_function as _atomic_function

from ipu_tf._patches.installation import replace_in
from ipu_tf.device.run.interrupts import interruptible
from ipu_tf.lowering.tensorflow import tf_graphs
from ipu_tf.lowering.tensorflow.op_lines import location_of
from ipu_tf.lowering.tensorflow.tf_session_patches import RUNS_PROGRAMS

_local = threading.local()
#: From a device, an op's type, its inputs and its attributes (names and values in turn) to its outputs.
RunEagerOp = Callable[[str, str, Sequence[tf.Tensor], Sequence[Any]], Sequence[tf.Tensor] | None]


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
            if not _context.executing_eagerly():
                return stock(self, *args)
            return _called_by_host(stock, self, args, computes_there)

        return call_flat

    replace_in(_context._EagerDeviceContext, "__enter__", entering)
    replace_in(_context._EagerDeviceContext, "__exit__", leaving)
    replace_in(_atomic_function.AtomicFunction, "call_flat", calling)


def patch_eager_calls(seen: Callable[[str, tf.Graph, Sequence[Any]], None]) -> None:
    """Calls `seen(name, graph, arguments)` for each `tf.function` before its first call from eager code.

    The arguments are flat, with what the function captures. Installed once.
    """

    def looking(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def call_flat(self: Any, *args: Any) -> Any:
            if not hasattr(self, "_ipu_tf_looked_at") and _context.executing_eagerly():
                self._ipu_tf_looked_at = True
                seen(self.name.decode(), self.graph, args)
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


def _called_by_host(
    stock: Callable[..., Any], function: Any, args: Sequence[Any], computes_there: Callable[[tf.Operation], bool]
) -> Any:
    """Calls a function of the host; Ctrl-C ends programs in it."""
    _check_placements(function, computes_there)
    runs_programs = getattr(function.graph, RUNS_PROGRAMS, False)
    return interruptible(stock, function, *args) if runs_programs else stock(function, *args)


def _check_placements(function: Any, computes_there: Callable[[tf.Operation], bool]) -> None:
    """Raises an error for a function run on the host that has ops placed on an IPU device, in loops and calls too."""
    found = getattr(function, "_ipu_tf_placement", None)
    if found is None:
        operations = tf_graphs.operations_within(function.graph)
        found = next(((o.device, location_of(o)) for o in operations if o.device and computes_there(o)), ())
        function._ipu_tf_placement = found
    if found:
        device, location = found
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            f"The function `{function.name.decode()}` places ops on an IPU ({location.name} on {device}), and it is "
            "called as a function of the host. Run it on the device: by IPUStrategy.run, or by ipu_compiler.compile "
            f"within it.\n{location}",
        )
