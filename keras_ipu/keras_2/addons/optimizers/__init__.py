"""Optimizers of the addons for Keras 2: Adam, LAMB and SGD with configurable dtypes of slots and arithmetic.

Enters: gradients. Leaves: changed weights. Start with `ipu_optimizer_base`.
"""

from keras_ipu.keras_2.addons.optimizers.ipu_optimizer_base import IpuOptimizerBase, SGDIpuOptimizer
from keras_ipu.keras_2.addons.optimizers.moments import AdamIpuOptimizer, LAMBIpuOptimizer

__all__ = ["AdamIpuOptimizer", "IpuOptimizerBase", "LAMBIpuOptimizer", "SGDIpuOptimizer"]
