"""`FrontendAttributeId`: names of the attributes that scopes put on ops."""

from __future__ import annotations

from ipu_tf.poplar.enumeration import ProtoEnum
from ipu_tf.poplar.refusal import refuse_others


class FrontendAttributeId(ProtoEnum):
    """The attributes of scopes, of those that Graphcore's plugin knows; see `ipu.scopes`."""

    STOCHASTIC_ROUNDING = 0
    PARTIALS_TYPE = 2


STOCHASTIC_ROUNDING = FrontendAttributeId.STOCHASTIC_ROUNDING
PARTIALS_TYPE = FrontendAttributeId.PARTIALS_TYPE

__getattr__ = refuse_others(
    __name__, "it configures Graphcore's compiler, and there is none here. Use the functions of ipu.scopes."
)
