"""Configuration categories of arithmetic: floating point, norms, convolutions, matmuls, slices, pooling."""

from __future__ import annotations

from ipu_tf._config.base import ConfigBase
from ipu_tf._config.enums import StochasticRoundingBehaviour
from ipu_tf._config.option import Group, Option
from ipu_tf._config.treatment import COMPILER, modelled, no_effect, warns

_TRAP = modelled("The first such operation of a run makes it fail at its end, and variables keep their values.")
_PLANNER = no_effect("It steers PopLibs' planner, which is not used; results do not depend on it here.")
_HALF_PARTIALS = warns(
    "The option partialsType=half is not emulated: sums are kept in at least the precision of the operands, "
    "so results can be more accurate than an IPU's."
)


def _planner_options(what: str) -> Option[dict[str, str]]:
    """Options of operations without partial sums."""
    return Option({}, f"PopLibs options of {what}, as a dict from option names to strings.", _PLANNER)


def _partials_options(what: str) -> Option[dict[str, str]]:
    """Options of operations that add up partial results, whose type changes results on an IPU."""
    return Option(
        {},
        f"""PopLibs options of {what}, as a dict from option names to strings. `availableMemoryProportion`
        bounds the temporary memory; `partialsType`, "float" or "half", is the type of partial sums.""",
        _HALF_PARTIALS,
        exceptions=[(lambda value: value.get("partialsType") != "half", _PLANNER)],
    )


class FloatingPointBehaviour(ConfigBase):
    """The category `floating_point_behaviour`."""

    inv = Option(False, "Whether an invalid operation, such as 0/0, stops the program.", _TRAP)
    div0 = Option(False, "Whether a division by zero stops the program.", _TRAP)
    oflo = Option(False, "Whether an overflow stops the program.", _TRAP)
    esr = Option(
        StochasticRoundingBehaviour.OFF,
        "Where float16 results are rounded stochastically: a `StochasticRoundingBehaviour`.",
        modelled("Float16 results are computed in float32 and rounded so."),
    )
    nanoo = Option(
        False,
        "Whether a float16 overflow gives NaN. If not, an IPU gives the largest finite float16, 65504.",
        modelled("A float16 overflow gives that."),
    )
    set_all = Option(
        False,
        "Whether `inv`, `div0`, `oflo` and `nanoo` count as True and `esr` as `ON`, whatever their values.",
        modelled("It counts as the options that it switches on."),
    )


class NormsExperimental(ConfigBase):
    """The category `norms.experimental`."""

    distributed_batch_norm_replica_group_size = Option(
        1,
        """Over how many consecutive replicas a training batch normalisation takes its statistics. At least 1;
        more than 1 cannot be combined with I/O tiles.""",
        warns(
            "Fused batch normalisation and that of TensorFlow 1's layers take their statistics so. Keras's "
            "BatchNormalization takes those of its own batch, or with synchronized=True of all replicas."
        ),
    )


class Norms(ConfigBase):
    """The category `norms`: it concerns batch, group, layer and instance normalisation."""

    use_stable_statistics = Option(
        False,
        "Whether the mean is subtracted before the variance is taken: slower, and more accurate.",
        warns("The variance is computed as TensorFlow defines the operation, whether this is set or not."),
    )
    experimental = Group(NormsExperimental, "Options of normalisation that may change or go.")


class Convolutions(ConfigBase):
    """The category `convolutions`."""

    poplar_options = _partials_options("all convolutions")


class Matmuls(ConfigBase):
    """The category `matmuls`."""

    clear_pass_type = Option(
        False,
        "Whether PopLibs is not told which pass (forward, backward, update) a matrix product is for.",
        COMPILER,
    )
    poplar_options = _partials_options("all matrix products")


class Slices(ConfigBase):
    """The category `slices`."""

    poplar_options = _planner_options("slices and their updates, which embeddings use")


class Pooling(ConfigBase):
    """The category `pooling`."""

    poplar_options = _planner_options("pooling")
