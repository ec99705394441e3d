"""Stand-ins for the IPU's modules without IPUs: what computes does so in plain TensorFlow, the rest is nothing.

A name that is not in `NAMES` is a `Nothing`: any call, item or attribute of it is another one. TensorFlow refuses it
as a tensor, so a computation that depends on it fails.
"""

from __future__ import annotations

import enum
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import tensorflow as tf

from tests.helpers.graphcore_applications.stock import accumulation, ipu_layers

#: Modules, with all below them, that only the IPU's TensorFlow and its neighbours have.
ROOTS = (
    "tensorflow.python.ipu",
    "tensorflow.keras.ipu",
    "tensorflow.compiler.plugin",
    "keras.ipu",
    "ipu_tensorflow_addons",
    "tensorflow_addons",
    "popdist",
    "horovod",
    "libpvti",
    "mpi4py",
)


class Nothing:
    """An option, or a call that changes no result."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return NAMES.get(name, Nothing())

    def __setattr__(self, name: str, value: Any) -> None:
        """Forgets it."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Forgets it."""

    def __getitem__(self, key: Any) -> Nothing:
        return Nothing()

    def __call__(self, *args: Any, **options: Any) -> Nothing:
        return Nothing()

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class StochasticRoundingBehaviour(enum.Enum):
    """Choices that a program looks up by name."""

    OFF, ON, REPLICA_IDENTICAL_ONLY = range(3)

    @classmethod
    def from_bool(cls, on: bool) -> StochasticRoundingBehaviour:
        """Returns ON or OFF."""
        return cls.ON if on else cls.OFF


class InfeedQueue:
    """A dataset of which each repetition of `repeat` takes an element."""

    def __init__(self, dataset: tf.data.Dataset, *args: Any, **options: Any) -> None:
        self.elements = iter(dataset)
        self.initializer = None


class OutfeedQueue:
    """Takes values, which nobody reads: the losses that are compared are those that Keras logs."""

    enqueued = False

    def __init__(self, *args: Any, **options: Any) -> None: ...

    def enqueue(self, values: Any) -> None:
        """Forgets the values."""

    def dequeue(self, *args: Any, **options: Any) -> Any:
        """Returns nothing."""
        return []


def repeat(count: int, body: Callable[..., Any], inputs: Any = (), infeed_queue: InfeedQueue | None = None) -> Any:
    """Runs `body` as often as `count`, each time with the results of the last and an element of the queue."""
    values = list(inputs)
    for _ in range(count):
        element = next(infeed_queue.elements) if infeed_queue else ()
        results = body(*values, *element)
        values = list(results) if isinstance(results, list | tuple) else [results]
    return values


def grouped(inputs: Sequence[Any], attributes: str, outs: dict[str, Any], **options: Any) -> list[Any]:
    """Gathers or adds up rows within each group, as the custom op of the graph networks, the only one, does."""
    values, indices = inputs
    operation = attributes.split()[1]
    if operation == "gather":
        return [tf.gather(values, indices, batch_dims=1)]
    assert operation == "scatter_sum", f"no stand-in for {operation}"
    rows = outs["output_shapes"][0][1]
    return [tf.matmul(tf.one_hot(indices, rows, dtype=values.dtype), values, transpose_a=True)]


#: Methods of models that say where and how an IPU computes.
IGNORED_METHODS = (
    "set_infeed_queue_options",
    "set_replication_options",
    "set_pipeline_stage_assignment",
    "print_pipeline_stage_assignment_summary",
)
#: What computes. Modules do not matter: no two have one name for different things.
NAMES: dict[str, Any] = {
    "IPUStrategy": lambda *args, **options: tf.distribute.get_strategy(),
    "IPUInfeedQueue": InfeedQueue,
    "IPUOutfeedQueue": OutfeedQueue,
    "repeat": repeat,
    "precompiled_user_op": grouped,
    "cross_replica_sum": lambda x, name=None: x,
    "assume_equal_across_replicas": lambda x, inplace=False: x,
    "isPopdistEnvSet": lambda: False,
    "getNumInstances": lambda: 1,
    "getInstanceIndex": lambda: 0,
    "getNumTotalReplicas": lambda: 1,
    "local_rank": lambda: 0,
    "rank": lambda: 0,
    "size": lambda: 1,
    "PipelineStage": Nothing(),
    "StochasticRoundingBehaviour": StochasticRoundingBehaviour,
    "SchedulingAlgorithm": enum.Enum(
        "SchedulingAlgorithm", "CHOOSE_BEST SHORTEST_PATH CLUSTERING POST_ORDER LOOK_AHEAD"
    ),
    "PipelineSchedule": enum.Enum("PipelineSchedule", "Grouped Interleaved Sequential"),
    "GradientAccumulationReductionMethod": enum.Enum("GradientAccumulationReductionMethod", "SUM MEAN RUNNING_MEAN"),
    "IpuOptimizerBase": tf.keras.optimizers.Optimizer,
    **ipu_layers.NAMES,
}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of `ROOTS`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns a specification for a name at or below one of `ROOTS`; see `importlib.abc`."""
        if not any(fullname == root or fullname.startswith(f"{root}.") for root in ROOTS):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Returns a module whose names are those of `NAMES`."""
        module = ModuleType(spec.name)
        vars(module)["__getattr__"] = _name_of_module
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has no code."""


def _name_of_module(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return NAMES.get(name, Nothing())


def install() -> None:
    """Has the modules be found, and gives Keras's models their options for IPUs."""
    sys.meta_path.insert(0, Finder())
    accumulation.install(tf.keras.Model)
    for name in IGNORED_METHODS:
        setattr(tf.keras.Model, name, lambda self, *args, **options: None)
    tf.keras.Model.get_pipeline_stage_assignment = lambda self: []
