"""The strategy over Horovod, which was removed in SDK 3.1."""

from __future__ import annotations

from ipu_tf.distributed.popdist_strategy import PopDistStrategy


class IPUHorovodStrategyV1(PopDistStrategy):
    """As `PopDistStrategy`: with one process, what carries values between processes makes no difference."""


IPUHorovodStrategy = IPUHorovodStrategyV1
