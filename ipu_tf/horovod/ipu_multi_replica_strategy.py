"""`IPUMultiReplicaStrategyV1`: name of `PopDistStrategy` before SDK 2.4."""

from __future__ import annotations

from ipu_tf.distributed.popdist_strategy import PopDistStrategy as IPUMultiReplicaStrategyV1

__all__ = ["IPUMultiReplicaStrategy", "IPUMultiReplicaStrategyV1"]

IPUMultiReplicaStrategy = IPUMultiReplicaStrategyV1
