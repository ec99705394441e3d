"""Utilities of Graphcore's `ipu.utils`: the configuration under its older module name, seeds, exports, reports."""

from __future__ import annotations

import operator
from typing import Any

import tensorflow as tf

from ipu_tf._compat.legacy_config import former_function
from ipu_tf._config.state import configured_devices, require_device
from ipu_tf._config.synthetic_data import SyntheticDataCategory, use_synthetic_data_for
from ipu_tf._sessions.live_variables import (
    export_inputs_to_file,
    export_variables_from_live_model,
    export_variables_from_live_session,
    import_data_in_live_model,
    import_data_in_live_session,
)
from ipu_tf.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    IPUConfig,
    IpuOptions,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    configure_ipu_system,
    get_ipu_config,
    running_on_ipu_model,
)
from ipu_tf.device.memory import seed as device_seed
from ipu_tf.emulation import EmulationError, record_ignored
from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
from ipu_tf.ipu_strategy import device_ordinal
from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.poplar.driver.trace_pb2 import IpuTraceEvent

__all__ = [
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "IpuOptions",
    "IpuTraceEvent",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "SyntheticDataCategory",
    "auto_select_ipus",
    "configure_ipu_system",
    "create_ipu_config",
    "export_dataset_to_file",
    "export_inputs_to_file",
    "export_variables_from_live_model",
    "export_variables_from_live_session",
    "extract_compile_reports",
    "extract_execute_reports",
    "extract_poplar_serialized_graphs",
    "get_ipu_config",
    "get_num_of_ipus_in_device",
    "import_data_in_live_model",
    "import_data_in_live_session",
    "move_variable_initialization_to_cpu",
    "reset_ipu_seed",
    "running_on_ipu_model",
    "select_ipus",
    "set_compilation_options",
    "set_convolution_options",
    "set_experimental_multi_replica_distribution_options",
    "set_floating_point_behaviour_options",
    "set_gcl_options",
    "set_io_tile_options",
    "set_ipu_connection_type",
    "set_ipu_model_options",
    "set_matmul_options",
    "set_norm_options",
    "set_optimization_options",
    "set_pooling_options",
    "set_recomputation_options",
    "set_report_options",
    "set_serialization_options",
    "set_transfer_options",
    "set_verification_options",
    "use_synthetic_data_for",
]

# Configuration as it was up to SDK 2.3, by functions that change an `IPUConfig`.
create_ipu_config = former_function("create_ipu_config")
auto_select_ipus = former_function("auto_select_ipus")
select_ipus = former_function("select_ipus")
set_compilation_options = former_function("set_compilation_options")
set_convolution_options = former_function("set_convolution_options")
set_experimental_multi_replica_distribution_options = former_function(
    "set_experimental_multi_replica_distribution_options"
)
set_floating_point_behaviour_options = former_function("set_floating_point_behaviour_options")
set_gcl_options = former_function("set_gcl_options")
set_io_tile_options = former_function("set_io_tile_options")
set_ipu_connection_type = former_function("set_ipu_connection_type")
set_ipu_model_options = former_function("set_ipu_model_options")
set_matmul_options = former_function("set_matmul_options")
set_norm_options = former_function("set_norm_options")
set_optimization_options = former_function("set_optimization_options")
set_pooling_options = former_function("set_pooling_options")
set_recomputation_options = former_function("set_recomputation_options")
set_report_options = former_function("set_report_options")
set_serialization_options = former_function("set_serialization_options")
set_transfer_options = former_function("set_transfer_options")
set_verification_options = former_function("set_verification_options")


def get_num_of_ipus_in_device(ipu_device: str, device: str = "cpu") -> int:
    """Returns how many emulated IPUs a device has; 1 if nothing is configured, also for an unconfigured device.

    Args:
        ipu_device: e.g. `/device:IPU:0`.
        device: the host device; accepted for compatibility.

    Raises:
        tf.errors.InvalidArgumentError: if there is no device of that ordinal.
        ValueError: if `ipu_device` is not an IPU.
    """
    ordinal = device_ordinal(ipu_device)
    if not configured_devices() and ordinal == 0:
        return 1
    return require_device(ordinal).num_ipus


def reset_ipu_seed(
    seed: int,
    device: str = "/device:IPU:0",
    cpu_device: str = "cpu",
    experimental_identical_replicas: bool = False,
) -> None:
    """Starts a device's sequence of random numbers again, for stateful random ops such as `tf.random.normal`.

    It happens at once, in a graph as well: there is nothing to run.

    Args:
        seed: where to start; the same seed gives the same numbers.
        device: the device.
        cpu_device: the host device; accepted for compatibility.
        experimental_identical_replicas: whether all replicas draw the same numbers, not each its own.

    Raises:
        TypeError: if `seed` is not a whole number.
        ValueError: if `device` is not an IPU.
    """
    device_seed.reset_seed(operator.index(seed), device_ordinal(device), experimental_identical_replicas)


def move_variable_initialization_to_cpu(graph: tf.Graph | None = None) -> None:
    """Makes variables initialise on the host. They always do here: nothing is left to move.

    Args:
        graph: the graph; by default the current one.

    Raises:
        TypeError: if `graph` is no graph.
    """
    if graph is not None and not isinstance(graph, tf.Graph):
        raise TypeError(f"`graph` must be a tf.Graph or None. Received: {graph!r}.")


def export_dataset_to_file(
    dataset_or_infeed: tf.data.Dataset | IPUInfeedQueue,
    output_filename: str,
    num_elements: int,
    feed_name: str = "",
    apply_debug_options: bool = True,
) -> None:
    """Writes elements of a dataset to a file; see `ipu_tf.dataset_extractor.dataset_extractor`.

    Args:
        dataset_or_infeed: the dataset, or an infeed with its own.
        output_filename: where to.
        num_elements: how many elements to write, from the first.
        feed_name: what to call the data; by default the infeed's name.
        apply_debug_options: recorded, without effect.

    Raises:
        TypeError: if `dataset_or_infeed` is neither.
    """
    from ipu_tf.dataset_extractor import dataset_extractor

    if not isinstance(dataset_or_infeed, (tf.data.Dataset, IPUInfeedQueue)):
        raise TypeError(f"Wanted a tf.data.Dataset or an IPUInfeedQueue. Received: {dataset_or_infeed!r}.")
    record_ignored("export_dataset_to_file.apply_debug_options", None if apply_debug_options else False)
    dataset = dataset_or_infeed
    if isinstance(dataset_or_infeed, IPUInfeedQueue):
        dataset, feed_name = dataset_or_infeed.dataset, feed_name or dataset_or_infeed.feed_name
    operation = dataset_extractor(dataset, num_elements, output_filename, feed_name)
    if not tf_values.executing_eagerly():
        with tf.compat.v1.Session() as session:
            session.run(operation)


def extract_compile_reports(events: Any) -> None:
    """Removed in SDK 2.4, and without a meaning here.

    Raises:
        EmulationError: always.
    """
    raise _no_report("extract_compile_reports")


def extract_execute_reports(events: Any) -> None:
    """Removed in SDK 2.4, and without a meaning here.

    Raises:
        EmulationError: always.
    """
    raise _no_report("extract_execute_reports")


def extract_poplar_serialized_graphs(events: Any) -> None:
    """Removed in SDK 2.4, and without a meaning here.

    Raises:
        EmulationError: always.
    """
    raise _no_report("extract_poplar_serialized_graphs")


def _no_report(name: str) -> EmulationError:
    return EmulationError(
        f"{name} takes what Poplar reports about IPU tiles out of a trace, and an emulated IPU has no tiles. "
        "`ipu_tf.emulation.device_counts()` says what the device did."
    )
