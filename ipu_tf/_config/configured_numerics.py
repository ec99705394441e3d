"""Reads the floating-point options of the configured system, as `Numerics` of a program."""

from __future__ import annotations

import functools

from ipu_tf._config.enums import StochasticRoundingBehaviour
from ipu_tf._config.schema import ConfigRoot
from ipu_tf._config.state import configured_system
from ipu_tf.device.numerics.exceptions import KINDS
from ipu_tf.lowering.importer.numerics import Numerics, Rounding

_ROUNDING = {
    StochasticRoundingBehaviour.OFF: Rounding.NEAREST,
    StochasticRoundingBehaviour.ON: Rounding.STOCHASTIC,
    StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY: Rounding.REPLICA_IDENTICAL,
}


def configured_numerics() -> Numerics:
    """Returns the numerics that `floating_point_behaviour`, `norms` and `experimental.enable_prng_stability` configure.

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
    return Numerics() if system is None else _numerics(system.config)


@functools.lru_cache(maxsize=1)  # read by every execution; the configuration of a system has no other references
def _numerics(config: ConfigRoot) -> Numerics:
    wanted, everything = config.floating_point_behaviour, config.floating_point_behaviour.set_all
    return Numerics(
        nan_on_overflow=everything or wanted.nanoo,
        rounding=Rounding.STOCHASTIC if everything else _ROUNDING[wanted.esr],
        stable_seeds=config.experimental.enable_prng_stability,
        exceptions=frozenset(kind for kind in KINDS if everything or getattr(wanted, kind)),
        norm_group=config.norms.experimental.distributed_batch_norm_replica_group_size,
    )
