"""Runs ops that `tf.device` places on an IPU in TensorFlow 1 sessions.

In a graph of TensorFlow 1, `Session.run` turns what is placed on `/device:IPU:<n>` into programs, without
`ipu_compiler.compile`. What TensorFlow executes eagerly there runs on the device as well, op by op.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._sessions import candidate_samplers, eager_ops
from ipu_tf._sessions.xla_compile import on_devices
from ipu_tf.lowering.tensorflow import tf_hooks
from ipu_tf.lowering.tensorflow.host_op import raise_original_errors
from ipu_tf.lowering.tensorflow.session_graph import computes_on_ipu, is_ipu


def install() -> None:
    """Patches TensorFlow's sessions and device scopes to handle IPUs. Calling it again changes nothing."""
    raise_original_errors()
    tf_hooks.hook_session_runs(_rewrite)
    tf_hooks.hook_eager_devices(is_ipu, computes_on_ipu, eager_ops.run)
    tf_hooks.hook_control_flow(is_ipu)
    tf_hooks.hook_xla_compile(on_devices)
    tf_hooks.hook_candidate_samplers(candidate_samplers.on_devices)


def _rewrite(
    session: Any, fetches: Sequence[tf.Tensor], targets: Sequence[tf.Operation], fed: frozenset[str]
) -> tuple[Sequence[tf.Tensor], Sequence[tf.Operation]] | None:
    """See `tf_hooks.RewriteRun`."""
    # Only now: this module is imported together with TensorFlow, which is slow enough.
    from ipu_tf._training.replication import target
    from ipu_tf.lowering.programs import session_clusters

    if tf_hooks.requires_strict_placement(session):
        session_clusters.check_devices(session, fetches, targets, fed)
    found = session_clusters.rewritten(session_clusters.Run(tuple(fetches), tuple(targets)), fed, target)
    return None if found is None else (found.fetches, found.targets)
