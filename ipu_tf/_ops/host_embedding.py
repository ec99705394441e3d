"""`HostEmbedding`: embedding tables in host memory, looked up and updated by a program on the device.

              host                                  device
table ── rows at indices ──────────► lookup ──► ... ──► loss
  ▲                                                        │
  └──── table[indices] -= learning_rate * gradient ◄───────┘
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf.device.errors import DeviceError
from ipu_tf.device.instances.across import given_to_all
from ipu_tf.device.memory import host_tables
from ipu_tf.lowering.programs.tensorflow_errors import to_tensorflow_error
from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.lowering.tensorflow.host_calls import lookup_marker, update_marker
from ipu_tf.lowering.tensorflow.host_op import host_op


class HostEmbeddingOptimizerSpec:
    """Optimizer of a table on the host: plain gradient descent, applied at once.

    Args:
        learning_rate: its learning rate; 0 for a table that is not trained.
        optimizer_name: `SGD`, or `SGD+GA` for one that gathers gradients; by default `SGD`.

    Raises:
        ValueError: for another optimizer.
    """

    def __init__(self, learning_rate: float, optimizer_name: str | None = None) -> None:
        if optimizer_name not in (None, "SGD", "SGD+GA"):
            raise ValueError(f"A host embedding is trained by 'SGD' or 'SGD+GA'. Received: {optimizer_name!r}.")
        self._learning_rate = learning_rate
        self._optimizer_name = optimizer_name or "SGD"

    def get_learning_rate(self) -> float:
        """The learning rate."""
        return self._learning_rate

    def get_accumulation_factor(self) -> int:
        """Of how many gradients in a row the sum is applied."""
        return 1


class HostEmbeddingSGDGAOptimizerSpec(HostEmbeddingOptimizerSpec):
    """Optimizer of a table on the host: gradient descent that accumulates the gradients of several mini-batches.

    Args:
        learning_rate: its learning rate; gradients are summed, not averaged.
        accumulation_factor: how many gradients of each lookup, on each replica, are gathered before they are applied.
    """

    def __init__(self, learning_rate: float, accumulation_factor: int) -> None:
        super().__init__(learning_rate, "SGD+GA" if accumulation_factor > 1 else "SGD")
        self._accumulation_factor = accumulation_factor

    def get_accumulation_factor(self) -> int:
        """Of how many gradients in a row the sum is applied."""
        return max(1, self._accumulation_factor)


class HostEmbedding:
    """Embedding table on the host, `[tokens, encoding]`, looked up by programs on the device.

    Gradients of what is looked up change the table as they are computed, and reach no TensorFlow optimizer. For that a
    scalar trainable variable stands for the table: gradients with respect to it have to be asked for, as
    `Optimizer.minimize` does in a TF1 graph, and `tape.gradient(loss, tape.watched_variables())` in TF2.

    In a program of several instances each has a table: they begin with instance 0's rows, and get the changes of all.

    Args:
        name: by which programs find the table.
        embedding_tensor: the table: a variable, which holds what was learnt after `register`, or a tensor.
        partition_strategy: `TOKEN` or `ENCODING`: how hardware would split the table; without effect in emulation.
        optimizer_spec: how the table is trained; by default it is not.

    Raises:
        ValueError: for an argument of another type, or a table that is trained but is no variable.
    """

    def __init__(
        self,
        name: str,
        embedding_tensor: Any,
        partition_strategy: str = "TOKEN",
        optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    ) -> None:
        if not tf.is_tensor(embedding_tensor):
            raise ValueError("HostEmbedding embedding_tensor is not a tensorflow tensor")
        if not isinstance(optimizer_spec, (HostEmbeddingOptimizerSpec, type(None))):
            raise ValueError("HostEmbedding optimizer_spec is not a HostEmbeddingOptimizerSpec or None")
        if partition_strategy not in ("TOKEN", "ENCODING"):
            raise ValueError(f"Unknown partition strategy {partition_strategy}")
        self._name = name
        self._table = embedding_tensor
        self._spec = optimizer_spec or HostEmbeddingOptimizerSpec(0)
        self._stand_in: tf.Variable | None = None
        if self._spec.get_learning_rate() and not isinstance(embedding_tensor, tf.Variable):
            raise ValueError(
                "A HostEmbedding that is trained needs a variable as its embedding_tensor, to keep what is learnt. "
                f"Received: {embedding_tensor}."
            )
        record_ignored("HostEmbedding.partition_strategy", None if partition_strategy == "TOKEN" else "ENCODING")

    def get_embedding_tensor(self) -> Any:
        """The table as it is now, also while it is registered: a tensor to fetch in a graph, the variable if eager."""
        if tf_values.executing_eagerly():
            if host_tables.registered(self._name):
                self._write_back(host_tables.host_table(self._name).rows)
            return self._table
        spec = tf.TensorSpec(self._table.shape, self._table.dtype.base_dtype)

        def current(stored: np.ndarray) -> list[np.ndarray]:
            found = host_tables.registered(self._name)
            return [np.array(host_tables.host_table(self._name).rows) if found else stored]

        return host_op(current, [self._value()], [spec], f"{self._name}_read").results[0]

    def register(self, session: Any = None) -> contextlib.AbstractContextManager[HostEmbedding]:
        """A context manager within which programs can use the table; at its end the table's variable holds the result.

        Args:
            session: the session that runs the programs; needed in a TF1 graph.

        Raises:
            ValueError: without a session in a graph.
            tf.errors.FailedPreconditionError: on entering, if the name is registered.
        """
        if session is None and not tf_values.executing_eagerly():
            raise ValueError("HostEmbedding.register requires a session when eager executionis disabled.")
        return self._in_session(session) if session is not None else self._eagerly()

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Not supported.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "HostEmbedding.__call__ is not supported. Please use the context manager created with "
            "HostEmbedding.register."
        )

    def lookup(self, indices: Any, clip_indices: bool = True) -> tf.Tensor:
        """Looks up the rows at some indices, inside a program on the device.

        Args:
            indices: whole numbers, the indices of rows, of any shape.
            clip_indices: whether an index out of range gives the nearest row; otherwise it is an error.

        Returns:
            A tensor of shape `indices.shape + [encoding]`.

        Raises:
            RuntimeError: in eager mode, outside of a program.
            TypeError: for indices of another dtype than integers'.
            ValueError: for indices of unknown shape, with the line that made them.
            tf.errors.FailedPreconditionError: when the program runs and the table is not registered.
            tf.errors.InvalidArgumentError: when it runs, for an index out of range without `clip_indices`.
        """
        if tf_values.executing_eagerly():
            raise RuntimeError(
                f"HostEmbedding.lookup of '{self._name}' is part of a program on the device: call it in a function "
                "that IPUStrategy.run or ipu_compiler.compile is given. On the host, tf.gather does the same."
            )
        indices = tf.convert_to_tensor(indices)
        if not indices.dtype.is_integer:
            raise TypeError(
                f"Indices of host embedding '{self._name}' must be integers. Received: {indices.dtype.name}."
            )
        flat = tf.reshape(indices, [-1])
        if flat.dtype.size < tf.int32.size:
            flat = tf.cast(flat, tf.int32)  # a narrow type may not have the number of the last row
        if clip_indices:
            flat = tf.clip_by_value(flat, 0, int(self._table.shape[0]) - 1)
        rows = self._trained(flat) if self._spec.get_learning_rate() else self._rows(flat)
        return tf.reshape(rows, [*indices.shape, *self._table.shape[1:]])

    def _rows(self, indices: tf.Tensor) -> tf.Tensor:
        spec = tf.TensorSpec([*indices.shape, *self._table.shape[1:]], self._table.dtype.base_dtype)
        return lookup_marker(self._name, indices, spec)

    def _trained(self, indices: tf.Tensor) -> tf.Tensor:
        rate = self._spec.get_learning_rate()

        @tf.custom_gradient
        def rows(stand_in: tf.Tensor, indices: tf.Tensor) -> Any:
            def gradient(upstream: tf.Tensor) -> Any:
                update_marker(self._name, indices, -rate * upstream)
                return tf.zeros_like(stand_in), None

            return self._rows(indices), gradient

        return rows(tf.convert_to_tensor(self._placeholder_variable()), indices)

    def _placeholder_variable(self) -> tf.Variable:
        """Returns the variable whose gradient is the table's."""
        if self._stand_in is None:
            with tf.init_scope(), tf.device("/device:CPU:0"):
                self._stand_in = _variable(np.zeros((), self._dtype()), f"{self._name}_stand_in", trainable=True)
        return self._stand_in

    def _dtype(self) -> np.dtype:
        return np.dtype(self._table.dtype.base_dtype.as_numpy_dtype)

    def _value(self) -> tf.Tensor:
        return tf.convert_to_tensor(self._table)

    def _start(self, rows: np.ndarray) -> None:
        try:
            factor = self._spec.get_accumulation_factor()
            own = host_tables.HostTable(given_to_all(np.array(rows), f"host embedding {self._name}"), factor)
            host_tables.register(self._name, own)
        except DeviceError as error:
            raise to_tensorflow_error(error) from None

    def _write_back(self, rows: np.ndarray) -> None:
        if isinstance(self._table, tf.Variable):
            self._table.assign(rows)

    @contextlib.contextmanager
    def _eagerly(self) -> Iterator[HostEmbedding]:
        self._start(self._value().numpy())
        try:
            yield self
        finally:
            self._write_back(host_tables.deregister(self._name).rows)

    @contextlib.contextmanager
    def _in_session(self, session: Any) -> Iterator[HostEmbedding]:
        with session.graph.as_default():  # which need not be the current one
            start, stop = self._session_ops()
        session.run(start)
        try:
            yield self
        finally:
            session.run(stop)

    def _session_ops(self) -> tuple[tf.Operation, tf.Operation]:
        spec = tf.TensorSpec(self._table.shape, self._table.dtype.base_dtype)
        start = host_op(self._start, [self._value()], [], f"{self._name}_register")
        stop = host_op(lambda: [host_tables.deregister(self._name).rows], [], [spec], f"{self._name}_deregister")
        if not isinstance(self._table, tf.Variable):
            return start.operation, stop.operation
        return start.operation, tf.compat.v1.assign(self._table, stop.results[0]).op


def create_host_embedding(
    name: str,
    shape: Sequence[int],
    dtype: Any,
    partition_strategy: str = "TOKEN",
    optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    initializer: Any = None,
) -> HostEmbedding:
    """A `HostEmbedding` with a new variable as its table.

    Args:
        name: by which programs find the table.
        shape: `[tokens, encoding]`.
        dtype: of the table.
        partition_strategy: as for `HostEmbedding`.
        optimizer_spec: as for `HostEmbedding`.
        initializer: the first values, or a function of shape and dtype that gives them; zeros by default.

    Raises:
        ValueError: as `HostEmbedding`.
    """
    dtype = tf.as_dtype(dtype)
    with tf.device("/device:CPU:0"):
        values = tf.zeros(shape, dtype) if initializer is None else initializer
        values = values(shape, dtype) if callable(values) else values
        table = _variable(tf.cast(values, dtype), name, trainable=False)
    return HostEmbedding(name, table, partition_strategy, optimizer_spec)


def _variable(value: Any, name: str, trainable: bool) -> tf.Variable:
    if tf_values.executing_eagerly():
        return tf.Variable(value, name=name, trainable=trainable)
    return tf.compat.v1.Variable(value, name=name, trainable=trainable, use_resource=True)
