"""PopDist and what builds on it, in one process, and as two instances."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import popdist
from ipu_tf.config import IPUConfig, reset_ipu_configuration
from ipu_tf.device.instances.place import Place
from ipu_tf.distributed import allgather, allreduce, broadcast, host_collective_ops
from ipu_tf.distributed.popdist_strategy import PopDistStrategy
from ipu_tf.emulation import EmulationError, ignored_arguments
from ipu_tf.horovod.ipu_horovod_strategy import IPUHorovodStrategy
from ipu_tf.ipu_multi_worker_strategy import IPUMultiWorkerStrategyV1
from ipu_tf.popdist.tensorflow import set_ipu_config
from tests.helpers.device_counts import device_work
from tests.helpers.instances import run_instances

SEVERAL = ("POPDIST_NUM_INSTANCES", "POPDIST_INSTANCE_INDEX", "POPDIST_NUM_TOTAL_REPLICAS", "OMPI_COMM_WORLD_SIZE")
PLACE = {
    "POPDIST_NUM_INSTANCES": "2",
    "POPDIST_INSTANCE_INDEX": "1",
    "POPDIST_LOCAL_INSTANCE_INDEX": "1",
    "POPDIST_NUM_TOTAL_REPLICAS": "4",
    "POPDIST_NUM_IPUS_PER_REPLICA": "2",
}
ALONE = {
    "getNumInstances": 1,
    "getInstanceIndex": 0,
    "getNumTotalReplicas": 1,
    "getNumLocalReplicas": 1,
    "getNumIpusPerReplica": 1,
    "getReplicaIndexOffset": 0,
    "getLocalInstanceIndex": 0,
    "getDeviceId": 0,
    "isPopdistEnvSet": False,
    "init": None,
    "synchronize": None,
}
ALIASES = str(Path(ipu.__file__).parent / "_compat" / "child_processes")
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
    others = {"finalizeBackend", "execute_on_instances", "checkNumIpusPerReplica"}
    assert set(ALONE) | others == set(popdist.__all__)
    popdist.finalizeBackend()
    assert popdist.tensorflow.set_ipu_config is set_ipu_config
    with pytest.raises(AttributeError, match="'popdist' has no attribute 'x'"):
        popdist.x  # noqa: B018


def test_only_this_process_executes() -> None:
    assert popdist.execute_on_instances({0}, max, 1, 2) == 2
    assert popdist.execute_on_instances({1}, max, 1, 2) is None


def test_an_instance_reads_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in PLACE.items():
        monkeypatch.setenv(name, text)
    assert popdist.isPopdistEnvSet()
    assert (popdist.getNumInstances(), popdist.getInstanceIndex(), popdist.getLocalInstanceIndex()) == (2, 1, 1)
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas()) == (4, 2)
    assert (popdist.getReplicaIndexOffset(), popdist.getNumIpusPerReplica()) == (2, 2)
    assert popdist.getDeviceId() == 24  # 4 IPUs
    assert popdist.execute_on_instances({1}, max, 1, 2, key=lambda number: -number) == 1
    config = set_ipu_config(IPUConfig())
    assert config.auto_select_ipus == 4
    distribution = config.experimental.multi_replica_distribution
    assert (distribution.process_count, distribution.process_index) == (2, 1)
    popdist.checkNumIpusPerReplica(2)
    for refused in (lambda: popdist.checkNumIpusPerReplica(1), lambda: set_ipu_config(IPUConfig(), ipus_per_replica=1)):
        with pytest.raises(ValueError, match="uses 1 IPUs for each replica, .* for 2: give it --ipus-per-replica 1"):
            refused()


TWO = """
    import popdist
    import numpy as np, tensorflow as tf
    from tensorflow.python.ipu import distributed

    popdist.init()
    own = tf.constant([1.5, 2.5]) * (INDEX + 1)
    SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN
    print("sum", distributed.allreduce(own, SUM).numpy(), distributed.allreduce(own, MEAN).numpy())
    print("int mean", distributed.allreduce(tf.constant(INDEX), MEAN).numpy())
    half = tf.constant([40000, 0.5], tf.bfloat16)
    print("half", distributed.allreduce(half, MEAN, tensor_name="half").numpy())
    print("gather", distributed.allgather(own).numpy().tolist(), distributed.allgather([True]).numpy().tolist())
    from tensorflow.python.ipu import horovod as hvd
    print("hvd", hvd.allreduce(own).numpy(), hvd.allreduce(own, op=hvd.Sum).numpy(), hvd.size(), hvd.local_size())
    print("rows", hvd.allgather(tf.fill([INDEX + 1, 2], INDEX)).numpy().tolist(), hvd.broadcast(own, 1).numpy())
    print("no columns", hvd.allgather(tf.zeros([2 + INDEX, 0])).shape)
    sparse = hvd.allreduce(tf.IndexedSlices(tf.ones([INDEX, 2]), tf.fill([INDEX], 3)))
    print("sparse", sparse.values.numpy().tolist(), sparse.indices.numpy())
    print("broadcast", distributed.broadcast(own, 1).numpy(), distributed.broadcast(np.zeros([0, 2])).shape)

    @tf.function
    def other_order(x, y):
        if INDEX:
            y = distributed.allreduce(y, SUM)
            return distributed.broadcast(x, 1), y
        return distributed.broadcast(x, 1), distributed.allreduce(y, SUM)

    for turn in range(3):
        x, y = other_order(own + turn, tf.constant([INDEX + turn]))
        print("order", x.numpy(), y.numpy())
    for value in (tf.zeros([INDEX]), tf.cast(0, tf.int32 if INDEX else tf.int64)):
        try:
            distributed.allreduce(value, SUM)
        except tf.errors.UnknownError as error:
            print(error.message)
    popdist.execute_on_instances({1}, print, "second alone", end=chr(10))
    popdist.synchronize()
    try:
        distributed.broadcast(own, 2)
    except ValueError as error:
        print(error)
    popdist.finalizeBackend()
"""


def test_collectives_of_two_instances() -> None:
    first, second = run_instances(TWO, IPU_TF_ALIASES="1", PYTHONPATH=ALIASES, OMPI_COMM_WORLD_LOCAL_SIZE="2")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    expected = """\
sum [4.5 7.5] [2.25 3.75]
int mean 0
half [39936 0.5]
gather [[1.5, 2.5], [3.0, 5.0]] [[True], [True]]
hvd [2.25 3.75] [4.5 7.5] 2 2
rows [[0, 0], [1, 1], [1, 1]] [3. 5.]
no columns (5, 0)
sparse [[0.5, 0.5]] [3]
broadcast [3. 5.] (0, 2)
order [3. 5.] [1]
order [4. 6.] [3]
order [5. 7.] [5]
Tensor layouts did not match on all instances in PopDistAllReduce_Default: instance 0 has float32[0], \
instance 1 has float32[1]. Give values of one shape and dtype in all instances.
Tensor layouts did not match on all instances in PopDistAllReduce_Default: instance 0 has int64[], \
instance 1 has int32[]. Give values of one shape and dtype in all instances.
{}`root_rank` must be an instance, 0 to 1. Received: 2.
"""
    assert first.stdout == expected.format("")
    assert second.stdout == expected.format("second alone\n")


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
        tf.function(lambda: allreduce(tensor, SUM, tensor_name="any name, with spaces"))(),
    ):
        assert result.dtype == tensor.dtype
        assert np.array_equal(result, tensor)


def test_wrong_collectives() -> None:
    with pytest.raises(ValueError, match="Unsupported reduce op: other"):
        allreduce(ONE, "other")
    with pytest.raises(ValueError, match="`root_rank` must be an instance, 0 to 0. Received: 1"):
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
    assert not strategy.reduces_in_programs
    assert float(strategy.reduce("SUM", tf.constant(2.0), axis=None)) == 2.0
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
    with pytest.raises(
        EmulationError, match="IPUMultiWorkerStrategyV1 .* cluster has 2: .*localhost:1.* Use PopDistStrategy"
    ):
        IPUMultiWorkerStrategyV1(cluster(2))


def test_horovod_variables_on_the_host_make_no_difference() -> None:
    IPUHorovodStrategy("/device:IPU:0", True)
    assert "IPUHorovodStrategyV1.variables_on_host" in {item.name for item in ignored_arguments()}


def test_horovod_names() -> None:
    hvd = ipu.horovod
    assert hvd.popdist_strategy.PopDistStrategy is hvd.ipu_multi_replica_strategy.IPUMultiReplicaStrategy
    assert hvd.popdist_strategy.PopDistStrategy is PopDistStrategy
    hvd.init()
    assert (hvd.size(), hvd.rank(), hvd.local_size(), hvd.local_rank(), hvd.is_homogeneous()) == (1, 0, 1, 0, True)
    assert (hvd.gloo_built(), hvd.mpi_enabled()) == (True, False)
    assert [float(hvd.allreduce(tf.constant(3.0), op)) for op in (None, hvd.Sum, hvd.Average)] == [3, 3, 3]
    assert hvd.allgather(ONE).numpy().tolist() == hvd.broadcast(ONE, 0).numpy().tolist() == [1.0, 2.0]
    with pytest.raises(NotImplementedError, match="Adasum reduction is not implemented"):
        hvd.allreduce(ONE, op=hvd.Adasum)
    with pytest.raises(ValueError, match="`op` must be Average or Sum. Received: 7"):
        hvd.allreduce(ONE, op=7)
    with pytest.raises(ValueError, match="must have a first dimension"):
        hvd.allgather(tf.constant(1))
    hvd.shutdown()
    with pytest.raises(EmulationError, match="ipu.horovod.DistributedOptimizer is Horovod's own"):
        _ = ipu.horovod.DistributedOptimizer  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="__wrapped__"):
        _ = ipu.horovod.__wrapped__  # type: ignore[attr-defined]


def test_a_host_with_an_unknown_number_of_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPDIST_NUM_INSTANCES", "2")
    with pytest.raises(EmulationError, match="not known: set OMPI_COMM_WORLD_LOCAL_SIZE"):
        ipu.horovod.local_size()


def test_a_collective_whose_result_is_not_used_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other instances wait for it. A constant is exchanged in every run, too."""
    exchanged: list[str] = []

    class Others:
        place = Place(2, 0)

        def exchange(self, name: str, value: bytes) -> list[bytes]:
            exchanged.append(name)
            return [value, value]

    monkeypatch.setattr(host_collective_ops, "join", Others)

    @tf.function
    def step(loss: tf.Tensor) -> tf.Tensor:
        allreduce(loss, SUM, tensor_name="loss")
        broadcast(tf.constant(2.0), tensor_name="constant")
        return loss

    for _ in range(3):
        step(tf.constant(1.0))
    assert sorted(exchanged) == ["PopDistAllReduce_loss"] * 3 + ["PopDistBroadcast_constant"] * 3
