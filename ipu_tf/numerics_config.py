"""The floating-point settings of the configured system, as programs take them."""

from __future__ import annotations

from ipu_tf.config_enums import StochasticRoundingBehaviour
from ipu_tf.config_state import configured_system
from ipu_tf.device.exceptions import KINDS
from ipu_tf.lowering.numerics import Numerics, Rounding

_ROUNDING = {
    StochasticRoundingBehaviour.OFF: Rounding.NEAREST,
    StochasticRoundingBehaviour.ON: Rounding.STOCHASTIC,
    StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY: Rounding.REPLICA_IDENTICAL,
}


def configured_numerics() -> Numerics:
    """What `floating_point_behaviour`, `norms` and `experimental.enable_prng_stability` ask for now.

    Without a configuration, the defaults.

    Example:
        >>> from ipu_tf.config import IPUConfig, reset_ipu_configuration
        >>> config = IPUConfig()
        >>> config.floating_point_behaviour.oflo = True
        >>> config.configure_ipu_system()
        >>> sorted(configured_numerics().exceptions)
        ['oflo']
        >>> reset_ipu_configuration()
    """
    system = configured_system()
    if system is None:
        return Numerics()
    wanted, everything = system.config.floating_point_behaviour, system.config.floating_point_behaviour.set_all
    return Numerics(
        nan_on_overflow=everything or wanted.nanoo,
        rounding=Rounding.STOCHASTIC if everything else _ROUNDING[wanted.esr],
        stable_seeds=system.config.experimental.enable_prng_stability,
        exceptions=frozenset(kind for kind in KINDS if everything or getattr(wanted, kind)),
        norm_group=system.config.norms.experimental.distributed_batch_norm_replica_group_size,
    )
