"""Optimizers that wrap `tf.compat.v1.train.Optimizer`."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "CrossReplicaGradientAccumulationOptimizer": "gradient_accumulation_optimizer",
    "CrossReplicaGradientAccumulationOptimizerV2": "gradient_accumulation_optimizer",
    "CrossReplicaOptimizer": "cross_replica_optimizer",
    "GradientAccumulationOptimizer": "gradient_accumulation_optimizer",
    "GradientAccumulationOptimizerV2": "gradient_accumulation_optimizer",
    "GradientAccumulationReductionMethod": "gradient_accumulation_optimizer",
    "IpuOptimizer": "ipu_optimizer",
    "MapGradientOptimizer": "map_gradient_optimizer",
    "ShardedOptimizer": "sharded_optimizer",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name in _HOMES.values():
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
