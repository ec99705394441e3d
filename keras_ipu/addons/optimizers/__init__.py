"""Adam, LAMB and SGD with configurable dtypes of state and arithmetic.

Enters: gradients. Leaves: changed weights. Start with `ipu_optimizer_base`.
"""

from keras_ipu.addons.optimizers.adam_optimizer import AdamIpuOptimizer
from keras_ipu.addons.optimizers.ipu_optimizer_base import IpuOptimizerBase
from keras_ipu.addons.optimizers.lamb_optimizer import LAMBIpuOptimizer
from keras_ipu.addons.optimizers.sgd_optimizer import SGDIpuOptimizer

__all__ = ["AdamIpuOptimizer", "IpuOptimizerBase", "LAMBIpuOptimizer", "SGDIpuOptimizer"]
