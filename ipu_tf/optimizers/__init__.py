"""Optimizers that wrap `tf.compat.v1.train.Optimizer`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipu_tf.optimizers import cross_replica_optimizer as cross_replica_optimizer
    from ipu_tf.optimizers import gradient_accumulation_optimizer as gradient_accumulation_optimizer
    from ipu_tf.optimizers import ipu_optimizer as ipu_optimizer
    from ipu_tf.optimizers import map_gradient_optimizer as map_gradient_optimizer
    from ipu_tf.optimizers import sharded_optimizer as sharded_optimizer
    from ipu_tf.optimizers.cross_replica_optimizer import CrossReplicaOptimizer as CrossReplicaOptimizer
    from ipu_tf.optimizers.gradient_accumulation_optimizer import (
        CrossReplicaGradientAccumulationOptimizer as CrossReplicaGradientAccumulationOptimizer,
    )
    from ipu_tf.optimizers.gradient_accumulation_optimizer import (
        CrossReplicaGradientAccumulationOptimizerV2 as CrossReplicaGradientAccumulationOptimizerV2,
    )
    from ipu_tf.optimizers.gradient_accumulation_optimizer import (
        GradientAccumulationOptimizer as GradientAccumulationOptimizer,
    )
    from ipu_tf.optimizers.gradient_accumulation_optimizer import (
        GradientAccumulationOptimizerV2 as GradientAccumulationOptimizerV2,
    )
    from ipu_tf.optimizers.gradient_accumulation_optimizer import (
        GradientAccumulationReductionMethod as GradientAccumulationReductionMethod,
    )
    from ipu_tf.optimizers.ipu_optimizer import IpuOptimizer as IpuOptimizer
    from ipu_tf.optimizers.map_gradient_optimizer import MapGradientOptimizer as MapGradientOptimizer
    from ipu_tf.optimizers.sharded_optimizer import ShardedOptimizer as ShardedOptimizer

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


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        if name in _HOMES.values():
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists the optimizers and their modules, those that are not imported yet included."""
    own = (name for name in globals() if name.startswith("__"))
    return sorted({*own, *_HOMES, *_HOMES.values()})
