"""Public option names of Graphcore's libraries; warns once about names that none of them lists.

The lists follow the sources of PopLibs (github.com/graphcore/poplibs) and its documentation. Releases of the SDK
differ in them, and those of Poplar's engine are not public as a whole: so an unknown name is no error.
"""

from __future__ import annotations

from ipu_tf._arguments.known_names import did_you_mean
from ipu_tf._config.messages import warn_user
from ipu_tf._state.once import first_time

_CONVOLUTION = (
    "availableMemoryProportion",
    "disableTransformations",
    "enableConvDithering",
    "enableFastReduce",
    "enableMultiStageReduce",
    "enableTransformsConvTable",
    "gatherConvOutput",
    "insertTransformsCycleCountProgs",
    "numIPUs",
    "partialsType",
    "partialsType.interIPU",
    "partialsType.interTile",
    "pass",
    "planConstraints",
    "planConstraintsOutputFilename",
    "remapOutputTensor",
    "tempMemoryBudget",
    "tilesPerIPU",
    "use128BitConvUnitLoad",
)
_MATMUL = (
    "availableMemoryProportion",
    "enableFastReduce",
    "enableMultiStageReduce",
    "fullyConnectedPass",
    "gatherOutput",
    "inputRHSIsPreArranged",
    "partialsType",
    "planConstraints",
    "remapOutputTensor",
    "use128BitConvUnitLoad",
)
_SLICE = (
    "availableMemoryProportion",
    "indicesAreSorted",
    "indicesDistribution",
    "operationForUpdate",
    "paddingIndexUsed",
    "partialType",
    "planConstraints",
    "remapOutOfBoundIndices",
    "usedForSlice",
    "usedForUpdate",
    "validateIndices",
)
_POOLING = ("optimizeForSpeed", "poolUseIntrospectiveMapping")
KNOWN_OPTIONS = {
    "convolutions.poplar_options": _CONVOLUTION,
    "matmuls.poplar_options": _MATMUL,
    "slices.poplar_options": _SLICE,
    "pooling.poplar_options": _POOLING,
    "PipelineStageOptions.convolution_options": _CONVOLUTION,
    "PipelineStageOptions.matmul_options": _MATMUL,
    "PipelineStageOptions.slice_options": _SLICE,
}
"""The known names by the attribute or argument that takes them."""


class UnknownOptionWarning(UserWarning):
    """An option of a Graphcore library has a name that none of its public lists has."""


def warn_of_unknown(where: str, options: dict[str, object]) -> None:
    """Warns once in a process of each name that is not among the known ones of `where`.

    Args:
        where: an attribute or argument of `KNOWN_OPTIONS`; of others nothing is known.
        options: by name.
    """
    for name in options:
        if where in KNOWN_OPTIONS and name not in KNOWN_OPTIONS[where] and first_time("option", where, name):
            _warn(where, name)


def _warn(where: str, name: str) -> None:
    known = KNOWN_OPTIONS[where]
    warn_user(
        f"{where} has {name!r}, which is not among the options that are known to be taken there."
        f"{did_you_mean(name, known)} Known are: {', '.join(known)}. "
        "Emulation ignores it; Graphcore's library may refuse it.",
        UnknownOptionWarning,
    )
