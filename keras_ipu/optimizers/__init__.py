"""Keras optimizers for the IPU: gradient accumulation, automatic loss scaling, and wrappers that change gradients.

All are `keras.optimizers.Optimizer`s that hold another one, work in and out of an `IPUStrategy`, and can be saved.

Enters: gradients of a micro-batch. Leaves: the wrapped optimizer's update of the weights.
Start with `ipu_optimizer`.
"""

from keras_ipu.optimizers.als_gradient_accumulation_optimizer import ALSGradientAccumulationOptimizer
from keras_ipu.optimizers.als_optimizer import ALSOptimizer
from keras_ipu.optimizers.als_specialised import ALSOptimizerAdam, ALSOptimizerRMSProp, ALSOptimizerSGD
from keras_ipu.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from keras_ipu.optimizers.gradient_accumulation_optimizer import GradientAccumulationOptimizer
from keras_ipu.optimizers.ipu_optimizer import IpuOptimizer
from keras_ipu.optimizers.map_gradient_optimizer import MapGradientOptimizer, MapGradientOptimizerInvertedChaining

AutomaticLossScalingOptimizer = ALSOptimizer
"""The name of `ALSOptimizer` up to SDK 2.5."""

__all__ = [
    "ALSGradientAccumulationOptimizer",
    "ALSOptimizer",
    "ALSOptimizerAdam",
    "ALSOptimizerRMSProp",
    "ALSOptimizerSGD",
    "AutomaticLossScalingOptimizer",
    "CrossReplicaOptimizer",
    "GradientAccumulationOptimizer",
    "IpuOptimizer",
    "MapGradientOptimizer",
    "MapGradientOptimizerInvertedChaining",
]
