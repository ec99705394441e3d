"""PopDist and what builds on it, in one process; several processes are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import popdist
from ipu_tf.config import IPUConfig, reset_ipu_configuration
from ipu_tf.distributed import allgather, allreduce, broadcast
from ipu_tf.distributed.popdist_strategy import PopDistStrategy
from ipu_tf.emulation import EmulationError, ignored_arguments
from ipu_tf.horovod.ipu_horovod_strategy import IPUHorovodStrategy
from ipu_tf.ipu_multi_worker_strategy import IPUMultiWorkerStrategyV1
from ipu_tf.popdist.tensorflow import set_ipu_config
from tests.helpers.device_counts import device_work

SEVERAL = ("POPDIST_NUM_INSTANCES", "POPDIST_INSTANCE_INDEX", "POPDIST_NUM_TOTAL_REPLICAS", "OMPI_COMM_WORLD_SIZE")
ALONE = {
    "getNumInstances": 1,
    "getInstanceIndex": 0,
    "getNumTotalReplicas": 1,
    "getNumLocalReplicas": 1,
    "getNumIpusPerReplica": 1,
    "getReplicaIndexOffset": 0,
    "getDeviceId": 0,
    "isPopdistEnvSet": False,
    "init": None,
    "synchronize": None,
}
ONE = tf.constant([1.0, 2.0])
SUM = tf.distribute.ReduceOp.SUM


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is configured, and no process is told of others."""
    for name in SEVERAL:
        monkeypatch.delenv(name, raising=False)
    yield
    reset_ipu_configuration()


@pytest.mark.parametrize(("name", "expected"), ALONE.items())
def test_one_process_is_all_of_them(name: str, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    assert getattr(popdist, name)() == expected


def test_every_name_of_popdist_is_there() -> None:
    assert set(ALONE) | {"finalizeBackend", "execute_on_instances"} == set(popdist.__all__)
    popdist.finalizeBackend()
    assert popdist.tensorflow.set_ipu_config is set_ipu_config
    with pytest.raises(AttributeError, match="'popdist' has no attribute 'x'"):
        popdist.x  # noqa: B018


def test_only_this_process_executes() -> None:
    assert popdist.execute_on_instances({0}, max, 1, 2) == 2
    assert popdist.execute_on_instances({1}, max, 1, 2) is None


COLLECTIVES: dict[str, Callable[[], Any]] = {
    **{name: getattr(popdist, name) for name in ALONE},
    "execute_on_instances": lambda: popdist.execute_on_instances({0}, max, 1, 2),
    "set_ipu_config": lambda: set_ipu_config(IPUConfig()),
    "allgather": lambda: allgather(ONE),
    "allreduce": lambda: allreduce(ONE, SUM),
    "broadcast": lambda: broadcast(ONE),
    "PopDistStrategy": PopDistStrategy,
}


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("variable", SEVERAL)
def test_several_processes_are_refused(name: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "2")
    with pytest.raises(EmulationError, match=f"one of several that run a program together \\({variable}=2\\)"):
        COLLECTIVES[name]()


def test_a_configuration_gets_one_process_and_its_ipus() -> None:
    config = IPUConfig()
    assert set_ipu_config(config, ipus_per_replica=2) is config
    assert config.auto_select_ipus == 2
    config.configure_ipu_system()
    assert popdist.getNumIpusPerReplica() == 2
    assert popdist.getDeviceId() == 16
    assert popdist.getDeviceId(4) == 24
    other = IPUConfig()
    set_ipu_config(other, configure_device=False)
    assert other.auto_select_ipus == []
    assert other.experimental.multi_replica_distribution.process_count == 1
    reset_ipu_configuration()
    other.select_ipus = 3
    other.configure_ipu_system()
    assert popdist.getDeviceId() == 3
    with pytest.raises(tf.errors.FailedPreconditionError, match="No id has 3 IPUs"):
        popdist.getDeviceId(3)
    with pytest.raises(ValueError, match="must be 1 or more. Received: 0"):
        set_ipu_config(config, ipus_per_replica=0)
    with pytest.raises(TypeError, match="must be an IPUConfig"):
        set_ipu_config({})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [1.5, [1, 2], [[True]]])
def test_collectives_of_one(value: Any) -> None:
    tensor = tf.constant(value)
    for result in (
        allgather(tensor)[0],
        allreduce(tensor, SUM, tensor_name="x"),
        allreduce(tensor, tf.distribute.ReduceOp.MEAN),
        broadcast(tensor, 0),
        tf.function(broadcast)(tensor),
    ):
        assert result.dtype == tensor.dtype
        assert np.array_equal(result, tensor)


def test_wrong_collectives() -> None:
    with pytest.raises(ValueError, match="Unsupported reduce op: other"):
        allreduce(ONE, "other")
    with pytest.raises(ValueError, match="`root_rank` must be 0, the only process. Received: 1"):
        broadcast(ONE, 1)


@pytest.mark.parametrize("make", [PopDistStrategy, IPUHorovodStrategy])
def test_a_model_trains_under_the_strategy(make: type[PopDistStrategy]) -> None:
    config = IPUConfig()
    strategy = make(add_ipu_cross_replica_reductions=False)
    assert strategy.update_ipu_config(config) is None  # type: ignore[func-returns-value]
    assert config.experimental.multi_replica_distribution.process_count == 1
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    assert strategy.num_replicas_in_sync == 1
    assert "PopDistStrategy.add_ipu_cross_replica_reductions" in {item.name for item in ignored_arguments()}
    with strategy.scope(), device_work() as work:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=2)
        model.fit(np.ones((4, 2), np.float32), np.ones((4, 1), np.float32), batch_size=1, verbose=0)
    assert work.counts.steps == 4


def cluster(workers: int) -> Any:
    """A cluster of so many workers."""
    spec = tf.train.ClusterSpec({"worker": [f"localhost:{port}" for port in range(workers)]} if workers else {})
    return tf.distribute.cluster_resolver.SimpleClusterResolver(spec)


def test_a_strategy_of_several_workers_is_refused() -> None:
    config = IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    for workers in (0, 1):
        strategy = IPUMultiWorkerStrategyV1(cluster(workers), variables_on_host=True)
        assert float(strategy.run(tf.function(lambda: tf.constant(1.0) + 1))) == 2.0
    with pytest.raises(EmulationError, match="IPUMultiWorkerStrategyV1 .* the cluster has 2: .*localhost:1"):
        IPUMultiWorkerStrategyV1(cluster(2))


def test_horovod_variables_on_the_host_make_no_difference() -> None:
    IPUHorovodStrategy("/device:IPU:0", True)
    assert "IPUHorovodStrategyV1.variables_on_host" in {item.name for item in ignored_arguments()}


def test_horovod_names() -> None:
    assert ipu.horovod.popdist_strategy.PopDistStrategy is PopDistStrategy
    assert (ipu.horovod.size(), ipu.horovod.rank(), ipu.horovod.local_size(), ipu.horovod.local_rank()) == (1, 0, 1, 0)
    with pytest.raises(EmulationError, match="ipu.horovod.DistributedOptimizer belongs to Horovod"):
        _ = ipu.horovod.DistributedOptimizer  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="__wrapped__"):
        _ = ipu.horovod.__wrapped__  # type: ignore[attr-defined]
