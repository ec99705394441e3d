"""`IPUStrategy`: a `tf.distribute.Strategy` for one IPU device.

Models of its scope, and functions that it runs, are on the device:

    strategy = IPUStrategy()
    with strategy.scope():
        model = ...                 Keras models train, evaluate and predict as loops on the device
        iterator = iter(dataset)    feeds programs on the device
    strategy.run(tf_function, args)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf._config.state import require_device
from ipu_tf._strategy import host_functions
from ipu_tf._strategy.auto_shard import keras_distributes, sharded
from ipu_tf._strategy.hooks import enter_scope_hooks
from ipu_tf._strategy.run import run_on_device
from ipu_tf._tracing.unconverted import do_not_convert
from ipu_tf._training.replication import instance_count, instance_index
from ipu_tf._training.weight_update import gradients_are_reduced
from ipu_tf.device.instances.place import place
from ipu_tf.ipu_iterator import ipu_iterators
from ipu_tf.keras_extensions import KerasExtensions
from ipu_tf.lowering.programs.trace_settings import noted_as_of_one_replica
from ipu_tf.lowering.tensorflow import tf_graphs, tf_patches
from ipu_tf.ops.cross_replica_ops import cross_replica_mean, cross_replica_sum


class IPUStrategyV1(KerasExtensions, tf.distribute.Strategy):
    """Runs programs on one emulated IPU device.

    Args:
        ipu_device: the device, e.g. `/device:IPU:0`.
        cpu_device: the host.
        enable_dataset_iterators: whether `iter(dataset)` within the scope makes an iterator that feeds the device.
        enable_keras_extensions: whether Keras models made within the scope run on the device.

    Raises:
        ValueError: for a device that is not an IPU.

    Example:
        >>> import tensorflow as tf
        >>> import ipu_tf as ipu
        >>> config = ipu.config.IPUConfig()
        >>> config.auto_select_ipus = 1
        >>> config.configure_ipu_system()
        >>> strategy = ipu.ipu_strategy.IPUStrategy()
        >>> add = tf.function(tf.add)
        >>> float(strategy.run(add, args=[tf.constant(1.0), tf.constant(2.0)]))
        3.0
    """

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        cpu_device: str = "/device:CPU:0",
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        KerasExtensions.__init__(self, enable_dataset_iterators, enable_keras_extensions)
        tf.distribute.Strategy.__init__(self, _IPUExtended(self, ipu_device, cpu_device))

    @contextlib.contextmanager
    def scope(self) -> Iterator[IPUStrategyV1]:
        """Context manager: variables, models and dataset iterators belong to the device."""
        tf_patches.patch_graph_resets(_in_our_scope)
        with contextlib.ExitStack() as stack:
            stack.enter_context(super().scope())
            if self._enable_dataset_iterators:
                stack.enter_context(ipu_iterators(self._device_ordinal))
            if self.keras_extensions_enabled:
                host_functions.install()
            stack.enter_context(enter_scope_hooks(self))
            yield self

    @do_not_convert
    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        options: Any = None,
    ) -> Any:
        """Runs a function on the device.

        Args:
            fn: a `tf.function` or concrete function.
            args: its positional arguments.
            kwargs: its keyword arguments.
            options: recorded, without effect.

        Returns:
            What `fn` returns, as tensors on the host.

        Raises:
            ValueError: in eager mode, for a function that is not a `tf.function`.
            TypeError: for a float64 input or output, `args` that are no list or tuple, `kwargs` that are no dictionary.
            tf.errors.FailedPreconditionError: if no device is configured.
        """
        if not isinstance(args, (list, tuple)):
            raise TypeError(f"`args` must be a list or tuple of arguments of `fn`. Received: {args!r:.200}.")
        if not isinstance(kwargs, Mapping | None):
            raise TypeError(f"`kwargs` must be a dictionary of arguments of `fn`, or None. Received: {kwargs!r:.200}.")
        record_ignored(
            "IPUStrategyV1.run.options", options, "TensorFlow's options of distributed functions do not apply"
        )
        return run_on_device(self, fn, tuple(args), dict(kwargs or {}))

    def experimental_run_v2(self, *args: Any, **kwargs: Any) -> Any:
        """`run`, by the name that it had in TensorFlow 1: with TensorFlow 1's behaviour only.

        Raises:
            RuntimeError: with TensorFlow 2's behaviour.
        """
        if tf.compat.v1.executing_eagerly_outside_functions():
            raise RuntimeError("`experimental_run_v2` has been deleted. Use `run` instead.")
        return self.run(*args, **kwargs)

    def reduce(self, reduce_op: Any, value: Any, axis: int | None = None) -> Any:
        """Reduces a value over the replicas, and over an axis of it if one is given; see `tf.distribute.Strategy`.

        Args:
            reduce_op: a `tf.distribute.ReduceOp`, or its name.
            value: what `run` gave, or a value of a replica within a program.
            axis: an axis to reduce as well.
        """
        return super().reduce(reduce_op, value, axis)

    @property
    def supports_loss_scaling(self) -> bool:
        """Returns whether Keras may scale losses under this strategy: yes."""
        return True

    @property
    def num_ipus(self) -> int:
        """Returns how many IPUs the strategy's device has, as it is configured now."""
        return require_device(self.device_ordinal).num_ipus

    @property
    def device_ordinal(self) -> int:
        """The ordinal of the strategy's device: 0 for `/device:IPU:0`."""
        return self._device_ordinal

    @contextlib.contextmanager
    def replica_context(self) -> Iterator[None]:
        """Context manager: functions are traced as a replica of this strategy, which Keras optimizers need."""
        with super().scope(), tf.distribute.ReplicaContext(self, replica_id_in_sync_group=0):
            yield

    def given_to_all(self, value: Any, name: str, dtype: Any) -> Any:
        """Returns the initial value of a variable: the value; a strategy over several instances gives them one."""
        return value

    def note_variable(self, variable: Any) -> None:
        """Called with each variable that is made in the scope; a strategy over several instances gives it a class."""

    def reduced_on_host(self, reduce_op: Any, value: Any) -> Any:
        """Reduces a value that is on the host: the value; a strategy over several instances reduces over them."""
        return value

    @property
    def reduces_in_programs(self) -> bool:
        """Returns whether `reduce` in a program reduces over its replicas: yes."""
        return True

    @property
    def replicas_in_sync(self) -> int:
        """Returns how many replicas losses are divided by: 1, since gradients of replicas are summed."""
        return 1

    @property
    def _device_ordinal(self) -> int:
        return device_ordinal(self.extended.non_slot_devices(None))


def _in_our_scope() -> bool:
    return isinstance(tf.distribute.get_strategy(), IPUStrategyV1)


def device_ordinal(device: str) -> int:
    """The ordinal of an IPU device string: 0 for `/device:IPU:0`.

    Raises:
        ValueError: for a device that is not an IPU.
    """
    try:
        spec = tf.DeviceSpec.from_string(device)
        ordinal = int(spec.device_index or 0)
    except (ValueError, AttributeError, TypeError):
        spec, ordinal = None, -1
    if spec is None or spec.device_type != "IPU" or ordinal < 0:
        raise ValueError(f"Wanted an IPU device such as '/device:IPU:0'. Received: {device!r}.")
    return ordinal


class _IPUExtended(tf.compat.v1.distribute.StrategyExtended):
    """`tf.distribute.StrategyExtended` of one replica, as far as TensorFlow sees."""

    def __init__(self, strategy: tf.distribute.Strategy, ipu_device: str, cpu_device: str) -> None:
        super().__init__(strategy)
        device_ordinal(ipu_device)
        self._ipu_device = ipu_device
        self._cpu_device = cpu_device

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        strategy = self._container_strategy()
        # The host keeps every variable's home copy; the device borrows it.
        with tf.device(self._cpu_device):
            given = kwargs.get("initial_value"), kwargs.get("name") or "", kwargs.get("dtype")
            variable = next_creator(**{**kwargs, "initial_value": strategy.given_to_all(*given)})
        strategy.note_variable(variable)
        if strategy.keras_extensions_enabled:
            host_functions.note_variable(variable)
        return variable

    def _local_results(self, value: Any) -> tuple[Any, ...]:
        return (value,)

    def value_container(self, value: Any) -> Any:
        """The container of a value: the value itself."""
        return value

    def _call_for_each_replica(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with tf.distribute.ReplicaContext(self._container_strategy(), replica_id_in_sync_group=0):
            return fn(*args, **kwargs)

    def _get_local_replica_id(self, replica_id_in_sync_group: int) -> int:
        return replica_id_in_sync_group

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        if reduce_op not in (tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN):
            raise ValueError(f"Unsupported reduce op: {reduce_op}")
        strategy = self._container_strategy()
        if not tf_graphs.in_program(tf.compat.v1.get_default_graph()):
            return strategy.reduced_on_host(reduce_op, value)
        if gradients_are_reduced() or not strategy.reduces_in_programs:
            return value
        if not self._replicated():
            return tf.nest.map_structure(noted_as_of_one_replica, value)
        combine = cross_replica_sum if reduce_op is tf.distribute.ReduceOp.SUM else cross_replica_mean
        return tf.nest.map_structure(combine, value)

    def _replicated(self) -> bool:
        """Returns whether programs may run as several replicas, as the device is configured now."""
        return require_device(device_ordinal(self._ipu_device)).num_ipus * instance_count() > 1

    def _batch_reduce_to(self, reduce_op: Any, pairs: Any, options: Any) -> list[Any]:
        return [self._reduce_to(reduce_op, value, destination, options) for value, destination in pairs]

    def _update(self, var: Any, fn: Callable[..., Any], args: Any, kwargs: Any, group: bool) -> Any:
        return self._update_non_slot(var, fn, (var, *args), kwargs, group)

    def _update_non_slot(self, colocate_with: Any, fn: Callable[..., Any], args: Any, kwargs: Any, group: bool) -> Any:
        result = fn(*args, **kwargs)
        return result if group else tf.nest.map_structure(self._local_results, result)

    def _experimental_distribute_dataset(self, dataset: Any, options: Any) -> Any:
        return dataset if keras_distributes.get() else sharded(dataset, place().local_replicas)

    def _distribute_datasets_from_function(self, dataset_fn: Callable[..., Any], options: Any) -> Any:
        return dataset_fn(tf.distribute.InputContext(instance_count(), instance_index(), self._num_replicas_in_sync))

    def variable_created_in_scope(self, v: Any) -> bool:
        """Returns whether a variable may be used under this strategy: any may."""
        return True

    def read_var(self, v: Any) -> Any:
        """A variable's value."""
        return v.read_value()

    def non_slot_devices(self, var_list: Any) -> str:
        """The device of variables that belong to no other: the IPU."""
        return self._ipu_device

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The devices that compute."""
        return (self._ipu_device,)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """The devices that keep variables."""
        return (self._ipu_device,)

    @property
    def _num_replicas_in_sync(self) -> int:
        """1, as for Graphcore's strategy: `tf.distribute` sees one replica, whatever runs on the device.

        The replicas of a program are made when it is compiled (`_training.replication`). `PopDistStrategy` has as many
        as all instances have, so that Keras divides losses by them.
        """
        return int(self._container_strategy().replicas_in_sync)

    @property
    def experimental_require_static_shapes(self) -> bool:
        """Returns whether shapes have to be fixed: yes."""
        return True

    @property
    def experimental_between_graph(self) -> bool:
        """Returns whether graphs are replicated between workers: no."""
        return False

    @property
    def should_checkpoint(self) -> bool:
        """Returns whether this process writes checkpoints: yes."""
        return True

    @property
    def should_save_summary(self) -> bool:
        """Returns whether this process writes summaries: yes."""
        return True

    def _in_multi_worker_mode(self) -> bool:
        return False

    @property
    def _global_batch_size(self) -> bool:
        return True


IPUStrategy = IPUStrategyV1
