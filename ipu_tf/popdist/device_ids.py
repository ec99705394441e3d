"""Ids of groups of IPUs, as `IPUConfig.select_ipus` takes them."""

from __future__ import annotations

from ipu_tf._config.devices import multi_ipu_sizes
from ipu_tf._config.errors import failed_precondition
from ipu_tf._config.schema import ConfigRoot
from ipu_tf._config.validation import as_numbers
from ipu_tf.device.environment import ipu_count


def device_id(config: ConfigRoot | None, ipus: int) -> int:
    """The first id that has so many IPUs; what the configuration selects, if that has them.

    Raises:
        tf.errors.FailedPreconditionError: if none has so many.

    Example:
        >>> device_id(None, 1)
        0
    """
    sizes = multi_ipu_sizes(ipu_count())
    selected = as_numbers(config.select_ipus)[:1] if config is not None else ()
    if selected and sizes[selected[0]] == ipus:
        return selected[0]
    if ipus not in sizes:
        raise failed_precondition(
            f"No id has {ipus} IPUs: the emulated machine has groups of {', '.join(map(str, sorted(set(sizes))))}. "
            "Ask for one of these numbers, or set TF_IPU_COUNT for another number of IPUs."
        )
    return sizes.index(ipus)
