"""Configuration categories of Poplar's compiler; none changes results in emulation."""

from __future__ import annotations

from ipu_tf._config.base import ConfigBase, deprecate_config_attribute
from ipu_tf._config.enums import MergeRemoteBuffersBehaviour, SchedulingAlgorithm
from ipu_tf._config.option import Group, Option
from ipu_tf._config.treatment import COLLECTIVES, COMPILER, MEMORY, no_effect

_INPUT = no_effect("The values and the order of the input are the same however it is fetched.")


def _waiting_bytes(what: str) -> Option[int]:
    """The size of a buffer in which communication waits to be made together."""
    return Option(0, f"How many bytes of {what} may wait to be made together; 0 for none.", COLLECTIVES, least=0)


class AlgebraicSimplifier(ConfigBase):
    """The category `optimizations.math`."""

    fast = Option(
        False,
        "Whether expressions may be rewritten in ways that are exact for real numbers but not for floats.",
        COMPILER,
    )
    dot_strength = Option(
        True,
        "Whether a product with an operand that has no free dimension becomes an elementwise one.",
        COMPILER,
    )


@deprecate_config_attribute("enable_fast_math", "use 'optimizations.math.fast', where this option has moved.")
class Optimizations(ConfigBase):
    """The category `optimizations`."""

    math = Group(AlgebraicSimplifier, "How algebraic expressions are simplified.")
    prefetch_data_streams = Option(True, "Whether the host prepares input while the IPU works.", _INPUT)
    combine_embedding_lookups = Option(False, "Whether lookups in the same table are made together.", COMPILER)
    combine_matmuls = Option(False, "Whether matrix products with a common operand are made together.", COMPILER)
    enable_graph_outlining = Option(
        True, "Whether equal pieces of a program share their code: less memory, more copying.", MEMORY
    )
    merge_infeed_io_copies = Option(True, "Whether the tensors of one input element are copied together.", _INPUT)
    maximum_cross_replica_sum_buffer_size = _waiting_bytes("sums over replicas")
    maximum_reduce_scatter_buffer_size = _waiting_bytes("reduce-scatters")
    maximum_inter_ipu_copies_buffer_size = _waiting_bytes("copies between IPUs")
    maximum_send_recv_cluster_size = _waiting_bytes("exchange with the host")
    maximum_reduce_many_buffer_size = _waiting_bytes("reductions")
    maximum_all_gather_buffer_size = _waiting_bytes("all-gathers")
    minimum_remote_tensor_size = Option(
        128, "The size in bytes from which a tensor may be kept in the host's memory.", MEMORY, least=0
    )
    merge_remote_buffers = Option(
        MergeRemoteBuffersBehaviour.IF_BENEFICIAL,
        "Whether remote buffers of the same kind become one: a `MergeRemoteBuffersBehaviour`.",
        MEMORY,
    )
    enable_gather_simplifier = Option(True, "Whether embedding lookups are simplified further.", COMPILER)
    triangular_solve_expander_block_size = Option(
        0, "The block size of triangular solves: parallelism against code. 0 for Poplar's choice.", COMPILER, least=0
    )
    cholesky_block_size = Option(
        0, "The block size of Cholesky factorisations, likewise. 0 for Poplar's choice.", COMPILER, least=0
    )
    enable_fast_math = Option(False, "The former name of `optimizations.math.fast`.", COMPILER)
    enable_dynamic_slice_replacement = Option(
        True, "Whether dynamic slices and updates become multi-slices, which PopLibs can plan.", COMPILER
    )


class Scheduling(ConfigBase):
    """The category `scheduling`."""

    algorithm = Option(
        SchedulingAlgorithm.CHOOSE_BEST,
        "How the instructions of a program are ordered: a `SchedulingAlgorithm`.",
        COMPILER,
    )
    maximum_scheduler_lookahead_depth = Option(
        5, "How many decisions the algorithm `LOOK_AHEAD` looks ahead; time grows fast with it.", COMPILER, least=0
    )
    maximum_scheduler_search_space_size = Option(
        64, "The most orders that the algorithm `LOOK_AHEAD` compares at a decision.", COMPILER, least=0
    )
