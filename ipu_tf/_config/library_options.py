"""Public option names of Graphcore's libraries; warns once about names that none of them lists.

The lists follow the sources of PopLibs (github.com/graphcore/poplibs) and the documentation of Poplar, PopLibs and GCL.
Releases of the SDK differ in them, and those of Poplar's engine are not public as a whole: so an unknown name is no
error.
"""

from __future__ import annotations

from collections.abc import Iterable

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
AUTO_REPORT = "autoReport."
ALLOW_OUT_OF_MEMORY = "debug.allowOutOfMemory"
RETAIN_DEBUG_INFORMATION = "debug.retainDebugInformation"
AUTO_REPORT_SWITCHES = ("all", "outputDebugInfo", "outputExecutionProfile", "outputGraphProfile")
"""Options of `autoReport` of which each writes reports."""
AUTO_REPORT_DIRECTORY = "directory"
AUTO_REPORT_WITHOUT_EFFECT = (
    "executionProfileProgramRunCount",
    "outputArchive",
    "outputLoweredVars",
    "outputSerializedGraph",
    "streamAtEachRun",
)
AUTO_REPORT_OPTIONS = tuple(sorted((*AUTO_REPORT_SWITCHES, AUTO_REPORT_DIRECTORY, *AUTO_REPORT_WITHOUT_EFFECT)))
_ENGINE = (
    *(f"{AUTO_REPORT}{name}" for name in AUTO_REPORT_OPTIONS),
    ALLOW_OUT_OF_MEMORY,
    "debug.branchRecordTile",
    "debug.cpuMultiThreadExecution",
    "debug.exceptOnSOCError",
    "debug.floatPointOpException",
    "debug.instrument",
    "debug.instrumentCompute",
    "debug.instrumentControlFlow",
    "debug.instrumentExternalExchange",
    "debug.nanOverflowException",
    "debug.outputAllSymbols",
    "debug.profilingTile",
    RETAIN_DEBUG_INFORMATION,
    "debug.runtimeVerify",
    "debug.supervisorStackSizeInBytes",
    "debug.trace",
    "debug.traceFile",
    "debug.verify",
    "debug.workerStackSizeInBytes",
    "exchange.enablePrefetch",
    "exchange.streamBufferOverlap",
    "opt.enableInlining",
    "opt.enableMultiAccessCopies",
    "opt.enableSwSyncs",
    "opt.internalExchangeOptimisationTarget",
    "opt.limitVertexStateToLower256K",
    "opt.maxCompilationThreads",
    "opt.maxComputeSetsPerLoweredCopy",
    "opt.maxCopyMergeSize",
    "opt.useAutoloader",
    "prng.enable",
    "prng.seed",
    "profiler.format",
    "profiler.includeCycleEstimates",
    "profiler.includeFlopEstimates",
    "streamCallbacks.maxLookahead",
    "streamCallbacks.multiThreadMode",
    "streamCallbacks.numWorkerThreads",
    "streamCallbacks.numaAware",
    "target.deterministicWorkers",
    "target.exceptionPollPeriodUs",
    "target.extendedMemory",
    "target.gatewayMode",
    "target.gatewayWriteCombining",
    "target.hostSyncTimeout",
    "target.saveArchive",
    "target.syncMethod",
    "target.syncPollPeriodUs",
    "target.syncReplicasIndependently",
    "target.useBufferedCompletions",
    "target.workerStackSizeInBytes",
)
_COLLECTIVES = (
    "collectiveImplementation",
    "maxBytesPerTile",
    "method",
    "syncful.allToAll",
    "syncful.maxBroadcastSize",
    "syncful.maxBytesPerTile",
    "syncful.useForwardingToSupportStridedGroups",
    "syncful.useOptimisedLayout",
    "topology",
    "useSynclessCollectives",
)
_INFEED = ("data_to_prefetch", "feed_name", "replication_factor")
KNOWN_OPTIONS = {
    "compilation_poplar_options": _ENGINE,
    "gcl_poplar_options": _COLLECTIVES,
    "convolutions.poplar_options": _CONVOLUTION,
    "matmuls.poplar_options": _MATMUL,
    "slices.poplar_options": _SLICE,
    "pooling.poplar_options": _POOLING,
    "PipelineStageOptions.convolution_options": _CONVOLUTION,
    "PipelineStageOptions.matmul_options": _MATMUL,
    "PipelineStageOptions.slice_options": _SLICE,
    "IPUInfeedQueue": _INFEED,
}
"""The known names by the attribute or argument that takes them."""
_MOST_LISTED = 20
"""In a warning."""


class UnknownOptionWarning(UserWarning):
    """An option of a Graphcore library has a name that none of its public lists has."""


def is_emulated(name: str) -> bool:
    """Returns whether an option of Poplar's engine has an effect, or is looked at for one: all of autoReport are."""
    return name.startswith(AUTO_REPORT) or name in (ALLOW_OUT_OF_MEMORY, RETAIN_DEBUG_INFORMATION)


def warn_of_unknown(where: str, options: Iterable[str], table: str = "") -> None:
    """Warns once in a process of each name that is not among the known ones of `where`.

    Args:
        where: the attribute, argument or variable that they were given to.
        options: their names.
        table: an attribute or argument of `KNOWN_OPTIONS`, by default `where`; of others nothing is known.
    """
    known = KNOWN_OPTIONS.get(table or where)
    for name in options:
        if known is not None and name not in known and first_time("option", where, name):
            _warn(where, name, known)


def _warn(where: str, name: str, known: tuple[str, ...]) -> None:
    listed = f": {', '.join(known)}" if len(known) <= _MOST_LISTED else f" the {len(known)} of docs/options.md"
    warn_user(
        f"{where} has {name!r}, which is not among the options that are known to be taken there."
        f"{did_you_mean(name, known)} Known are{listed}. "
        "Emulation ignores it; Graphcore's library may refuse it.",
        UnknownOptionWarning,
    )
