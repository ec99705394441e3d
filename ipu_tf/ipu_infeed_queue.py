"""`IPUInfeedQueue`: feeds a dataset to loops on the device.

dataset -> IPUInfeedQueue -> one element an iteration of the loop -> arguments of the loop's body
"""

from __future__ import annotations

import copy
import functools
import importlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import tensorflow as tf

from ipu_tf._config.flags import flags
from ipu_tf._config.library_options import warn_of_unknown
from ipu_tf._data.dataset_reading import check_dataset
from ipu_tf._data.narrow_dtypes import narrowed, warn_cast
from ipu_tf._state.numbers import next_number
from ipu_tf._tracing.element_arguments import body_arguments
from ipu_tf._tracing.former_queue_arguments import takes_former_arguments
from ipu_tf._tracing.queue_arguments import INFEED, checked_ordinal
from ipu_tf.device.errors import DeviceError
from ipu_tf.device.feeds import queues
from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.synthetic import infeed_elements
from ipu_tf.device.feeds.timeout import watched
from ipu_tf.lowering.programs.tensorflow_errors import to_tensorflow_error
from ipu_tf.lowering.tensorflow import tf_graphs, tf_patches, tf_values
from ipu_tf.lowering.tensorflow.dataset_source import GraphDataset, eager_elements, flat_specs
from ipu_tf.lowering.tensorflow.host_op import host_op
from ipu_tf.lowering.tensorflow.markers import dequeue_marker

_REFUSED = (tf.float64, tf.int64, tf.uint64, tf.string)


class IPUInfeedQueue:
    """Feeds elements of a dataset to a loop, one for each iteration. The position persists over executions.

    Args:
        dataset: a `tf.data.Dataset` whose elements have fixed shapes and dtypes the device has (not float64, int64,
            string).
        device_ordinal: the `/device:IPU:<ordinal>` to feed; by default that of the strategy in whose scope the queue
            is made, else 0.
        prefetch_depth: elements the hardware would prefetch, 1 to 255; default 3. Recorded, without effect: the
            emulator stages elements in chunks of its own.
        optimise_latency: recorded, without effect.
        **kwargs: of other releases: `replication_factor` must be that of the programs that use the queue, `feed_name`
            and `data_to_prefetch` are recorded as without effect. Names that no release has are warned of.

    Raises:
        TypeError: for anything but a dataset, or an argument of another type.
        ValueError: for a shape that is not fully defined, nested elements, a bad ordinal or a bad prefetch depth.
        tf.errors.OpError: in eager mode, as `initializer`.

    Example:
        >>> import tensorflow as tf
        >>> from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
        >>> IPUInfeedQueue(tf.data.Dataset.range(3).map(lambda i: tf.cast(i, tf.float32))).number_of_tuple_elements
        1
    """

    @takes_former_arguments("IPUInfeedQueue", 1)
    def __init__(
        self,
        dataset: tf.data.Dataset,
        device_ordinal: int | None = None,
        prefetch_depth: int | None = None,
        optimise_latency: bool = False,
        **kwargs: Any,
    ) -> None:
        stock = tf_patches.is_stock_iterator(dataset)  # programs may take elements of those too, of any structure
        if stock:
            _check_specs(dataset)
        else:
            check_dataset(dataset)
            _check_structure(dataset)
        INFEED.record(INFEED.check({"prefetch_depth": prefetch_depth, "optimise_latency": optimise_latency}))
        warn_of_unknown("IPUInfeedQueue", kwargs)
        self._device_ordinal = checked_ordinal(device_ordinal)
        self._dataset = dataset
        self._structure = dataset.element_spec
        self._specs = [narrowed(spec, warn_cast) if stock else spec for spec in flat_specs(dataset)]
        self._id = f"infeed_{next_number('infeed')}"
        self._dequeued = False
        self._initializer_taken = False
        # An iterator has threads of its own: they end with the queue and the functions that dequeue, or with the graph,
        # also where no deleter runs.
        self._kept: dict[str, Infeed] = {}
        if tf_values.executing_eagerly():
            self._start(eager_elements(dataset))
        else:
            self._kept = tf_graphs.graph_dict(tf.compat.v1.get_default_graph(), "infeeds")
            self._init_op, self._delete_op = self._graph_ops(GraphDataset(dataset))

    @property
    def dataset(self) -> tf.data.Dataset:
        """The dataset that feeds the queue."""
        return self._dataset

    @property
    def feed_name(self) -> str:
        """The queue's name, unique in the process."""
        return self._id

    @property
    def dequeued(self) -> bool:
        """Returns whether a loop dequeues elements from this queue."""
        return self._dequeued

    @property
    def number_of_tuple_elements(self) -> int:
        """Number of arguments that an element passes to the body of a loop."""
        positional, named = body_arguments(self._structure)
        return len(positional) + len(named)

    @property
    def initializer(self) -> tf.Operation | None:
        """Starts the queue, at the first element of its dataset. An op to run in a graph; done at once if eager.

        Raises:
            ValueError: if it is read a second time in a graph.
            tf.errors.FailedPreconditionError: for a dtype that the device has not; in a graph, when the op runs.
            tf.errors.InvalidArgumentError: for a dimension of size 0; in a graph, when the op runs.
        """
        if tf_values.executing_eagerly():
            # The iterator that the queue was made with, if nothing was read: a second would shuffle otherwise.
            if not queues.is_unread(self._id):
                self._start(eager_elements(self._dataset))
            return None
        if self._initializer_taken:
            raise ValueError("The IPUInfeedQueue `initializer` function can only be accessed once.")
        self._initializer_taken = True
        return self._init_op

    @property
    def deleter(self) -> tf.Operation | None:
        """Frees the queue. An op to run in a graph; done at once if eager.

        Raises:
            tf.errors.NotFoundError: if the queue was not initialised, or is deleted already.
            tf.errors.FailedPreconditionError: while a program runs that uses it.
        """
        if tf_values.executing_eagerly():
            self._delete()
            return None
        return self._delete_op

    def get_next(self) -> None:
        """Obsolete: the loop dequeues by itself.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "`get_next()` is now obsolete as the IPUInfeedQueue is now automatically dequeued by the loop."
        )

    def _dequeue(self) -> Any:
        """Dequeues the next element, inside a program."""
        self._dequeued = True
        tf_graphs.keep_with_functions("queues", self._id, self._kept)
        fed = dequeue_marker(self._id, self._specs)
        wanted = tf.nest.flatten(self._structure)  # a program sees the dtypes that the host does
        return tf.nest.pack_sequence_as(self._structure, list(map(_of_dtype, fed, wanted)))

    def _with_feed(self, name: str) -> IPUInfeedQueue:
        """Returns a queue of such elements, without data of its own: a program dequeues them from this feed."""
        other = copy.copy(self)
        other._id, other._dataset, other._kept = name, None, {}
        return other

    def _check_element(self) -> None:
        for index, spec in enumerate(self._specs):
            if spec.dtype in _REFUSED:
                raise tf.errors.FailedPreconditionError(
                    None,
                    None,
                    f"Unsupported datatype {spec.dtype.name} on index {index} of feed operation {self._id}. The device "
                    f"has no {spec.dtype.name}: cast it in the dataset, e.g. by dataset.map.",
                )
            if 0 in spec.shape.as_list():
                raise tf.errors.InvalidArgumentError(
                    None,
                    None,
                    "Detected an input tensor to an infeed queue with a dimension of size 0. Please remove it from "
                    "the inputs.",
                )

    def _start(self, open_source: Callable[[], Any]) -> None:
        self._check_element()
        types = tuple(jax.ShapeDtypeStruct(tuple(s.shape.as_list()), s.dtype.as_numpy_dtype) for s in self._specs)
        # TF_POPLAR_FLAGS may ask for data that does not come from the dataset, which then is never read.
        synthetic_data = flags().synthetic_data
        if synthetic_data.feeds:
            open_source = functools.partial(infeed_elements, types, synthetic_data)
        name = self._id
        infeed = Infeed(name, types, watched(lambda: name, open_source))
        infeed.restart()
        queues.add_infeed(infeed, self._kept)

    def _delete(self) -> None:
        try:
            known = queues.remove(self._id)
        except DeviceError as error:
            raise to_tensorflow_error(error) from None
        self._kept.pop(self._id, None)
        if not known:
            raise tf.errors.NotFoundError(
                None,
                None,
                f"Infeed with id='{self._id}'. Make sure that you have run the initializer for this infeed before "
                "attempting to delete it.",
            )

    def _graph_ops(self, dataset: GraphDataset) -> tuple[tf.Operation, tf.Operation]:
        def start(*values: np.ndarray) -> None:
            self._start(dataset.open(*values))

        return (
            host_op(start, dataset.inputs, [], f"{self._id}_initializer").operation,
            host_op(self._delete, [], [], f"{self._id}_deleter").operation,
        )


def _of_dtype(tensor: tf.Tensor, wanted: tf.TensorSpec) -> tf.Tensor:
    return tensor if tensor.dtype == wanted.dtype else tf.cast(tensor, wanted.dtype)


def __getattr__(name: str) -> Any:
    # Graphcore has the iterators here; their module needs this one.
    if name in ("IPUIterator", "IPUOwnedIterator"):
        return getattr(importlib.import_module("ipu_tf.ipu_iterator"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _check_structure(dataset: tf.data.Dataset) -> None:
    _check_specs(dataset)
    top = dataset.element_spec
    if isinstance(top, (list, tuple)) and any(isinstance(inner, (list, tuple)) for inner in top):
        raise ValueError("Nested list/tuple input shapes are not supported")


def _check_specs(dataset: tf.data.Dataset | tf.data.Iterator) -> None:
    for spec in tf.nest.flatten(dataset.element_spec):
        if not isinstance(spec, tf.TensorSpec):
            raise ValueError(f"An infeed takes dense tensors. Received: a dataset with elements of {spec}.")
        if not spec.shape.is_fully_defined():
            raise ValueError(
                f"Output shape {spec.shape} is not fully defined. If using tf.Dataset.batch, set `drop_remainder=True`."
            )
