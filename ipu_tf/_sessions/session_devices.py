"""Runs ops that `tf.device` places on an IPU in TensorFlow 1 sessions.

In a graph of TensorFlow 1, `Session.run` turns what is placed on `/device:IPU:<n>` into programs, without
`ipu_compiler.compile`. What TensorFlow executes eagerly there runs on the device as well, op by op;
a training step that is debugged does so within `eager_step`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._sessions import eager_ops, program_ops
from ipu_tf._state.context import context_value
from ipu_tf.device.memory.seed import reset_all_seeds
from ipu_tf.lowering.tensorflow import tf_eager_patches, tf_patches, tf_session_patches, tf_values
from ipu_tf.lowering.tensorflow.host_op import raise_original_errors
from ipu_tf.lowering.tensorflow.session_graph import computes_on_ipu, is_ipu


def install() -> None:
    """Patches TensorFlow's sessions and device scopes to handle IPUs. Calling it again changes nothing."""
    raise_original_errors()
    tf_session_patches.patch_session_runs(_rewrite)
    tf_eager_patches.patch_eager_devices(is_ipu, computes_on_ipu, eager_ops.run)
    tf_patches.patch_control_flow(is_ipu)
    tf_patches.patch_xla_compile(xla_compile_on_devices)
    program_ops.install()
    tf_patches.patch_global_seed(reset_all_seeds)


@contextlib.contextmanager
def eager_step(device: str) -> Iterator[None]:
    """Context in which each eager op is a program on a device, for debugging; functions run by their ops.

    Variables have their values on the host meanwhile: what reads them or writes them computes on the device.

    Args:
        device: the device, `/device:IPU:<n>`.
    """
    install()
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        with context_value(eager_ops.variables_on_host, True), tf.device(device):
            yield
    finally:
        tf.config.run_functions_eagerly(before)


def _rewrite(
    session: Any, fetches: Sequence[tf.Tensor], targets: Sequence[tf.Operation], fed: frozenset[str]
) -> tuple[Sequence[tf.Tensor], Sequence[tf.Operation]] | None:
    """See `tf_session_patches.RewriteRun`."""
    # Only now: this module is imported together with TensorFlow, which is slow enough.
    from ipu_tf._training.replication import target
    from ipu_tf.lowering.programs import session_clusters

    if tf_session_patches.requires_strict_placement(session):
        session_clusters.check_devices(session, fetches, targets, fed)
    found = session_clusters.rewritten(session_clusters.SessionRun(tuple(fetches), tuple(targets)), fed, target)
    return None if found is None else (found.fetches, found.targets)


def xla_compile_on_devices(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `xla.compile`: within a device scope of an IPU it compiles for the device.

    Args:
        stock: TensorFlow's own, which serves every other device.
    """

    def compile(computation: Callable[..., Any], inputs: Sequence[Any] | None = None) -> Any:
        if not is_ipu(tf_values.current_device()):
            return stock(computation, inputs)
        # Only now: this module is imported together with TensorFlow, which is slow enough.
        from ipu_tf import ipu_compiler

        return ipu_compiler.compile(computation, inputs)

    return compile
