"""`IPUHorovodStrategyV1`: strategy over Horovod, which was removed in SDK 3.1."""

from __future__ import annotations

from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf.distributed.popdist_strategy import PopDistStrategy


class IPUHorovodStrategyV1(PopDistStrategy):
    """As `PopDistStrategy`: with one process, what carries values between processes makes no difference.

    Args:
        ipu_device: the device, e.g. `/device:IPU:0`.
        variables_on_host: whether variables stay on the host; without effect with one process.
        options: what else `PopDistStrategy` takes.

    Raises:
        EmulationError: if the environment says that this process is one of several.
    """

    def __init__(self, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False, **options: bool) -> None:
        if variables_on_host:
            record_ignored("IPUHorovodStrategyV1.variables_on_host", True, "one process shares with no other")
        super().__init__(ipu_device, **options)


IPUHorovodStrategy = IPUHorovodStrategyV1
