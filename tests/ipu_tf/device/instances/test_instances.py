"""Instances find their place, are joined, exchange values by name, and never wait for ever."""

from __future__ import annotations

import os

import pytest

from ipu_tf.device.instances import joined
from ipu_tf.device.instances.group import InstanceError
from ipu_tf.device.instances.joined import join
from ipu_tf.device.instances.place import Place, place
from tests.helpers.instances import run_instances

ALL = [name for name in os.environ if name.startswith(("POPDIST_", "OMPI_", "SLURM_"))]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ALL:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Place()),
        ({"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "2"}, Place(3, 2, 0, 3, 1, 2, local_count=0)),
        (
            {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "POPDIST_NUM_TOTAL_REPLICAS": "8"},
            Place(4, 3, 1, 8, 2, 6, 1, True, 0),
        ),
        (
            {
                "POPDIST_NUM_INSTANCES": "2",
                "POPDIST_INSTANCE_INDEX": "1",
                "OMPI_COMM_WORLD_SIZE": "7",
                "POPDIST_LOCAL_INSTANCE_INDEX": "1",
                "POPDIST_NUM_TOTAL_REPLICAS": "4",
                "POPDIST_NUM_LOCAL_REPLICAS": "2",
                "POPDIST_REPLICA_INDEX_OFFSET": "2",
                "POPDIST_NUM_IPUS_PER_REPLICA": "2",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
            Place(2, 1, 1, 4, 2, 2, 2, True, 2),
        ),
    ],
)
def test_place(given: dict[str, str], expected: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in given.items():
        monkeypatch.setenv(name, text)
    assert place() == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"POPDIST_NUM_INSTANCES": "two"}, "POPDIST_NUM_INSTANCES must be a whole number, 0 or more. Received: 'two'"),
        (
            {"POPDIST_NUM_INSTANCES": "2", "POPDIST_INSTANCE_INDEX": "2"},
            r"POPDIST_INSTANCE_INDEX must be in the range \[0, POPDIST_NUM_INSTANCES\). Received: .*INDEX=2",
        ),
        (
            {"OMPI_COMM_WORLD_SIZE": "2", "POPDIST_NUM_TOTAL_REPLICAS": "3"},
            "All 2 instances must have the same number of replicas. Received: POPDIST_NUM_TOTAL_REPLICAS=3",
        ),
    ],
)
def test_wrong_places(given: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in given.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=said):
        place()


def test_a_process_on_its_own_joins_nobody() -> None:
    assert join() is None


def test_joining_after_the_device_was_used_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    jax.devices()
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(InstanceError, match="one of 2 instances, and used the device before it joined .* popdist.init"):
        join()


EXCHANGE = """
    from ipu_tf.device.instances.group import InstanceError
    from ipu_tf.device.instances.joined import join, leave
    others = join()
    assert others is join()
    order = ["a", "b"] if INDEX else ["b", "a"]
    import threading
    found = {}
    def exchange(name):
        found[name] = others.exchange(name, name.encode() * (3_000_000 + INDEX) if name == "a" else b"")
    threads = [threading.Thread(target=exchange, args=[name]) for name in order]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print([len(value) for value in found["a"]], found["b"])
    print([others.exchange("c", b"%d %d" % (INDEX, turn)) for turn in range(3)])
    END
"""


def test_values_are_matched_by_name_and_an_instance_that_ends_is_named() -> None:
    end = """
    if INDEX == 0:
        try:
            others.exchange("more", b"")
        except InstanceError as error:
            print(error)
    """
    first, second = run_instances(EXCHANGE.replace("    END\n", end), IPU_TF_INSTANCE_TIMEOUT="30")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    exchanged = "[3000000, 3000001] [b'', b'']\n[[b'0 0', b'1 0'], [b'0 1', b'1 1'], [b'0 2', b'1 2']]\n"
    assert exchanged in second.stdout
    assert first.stdout.endswith(exchanged + "Instance 0 waited for instance 1 in 'more': instance 1 has ended.\n")


STUCK = """
    import time
    from ipu_tf.device.instances.group import InstanceError
    from ipu_tf.device.instances.joined import join
    others = join()
    if INDEX:
        time.sleep(6)
    else:
        others.exchange("values", b"")
"""


@pytest.mark.slow
def test_an_instance_that_does_not_come_is_named_within_the_timeout() -> None:
    first, second = run_instances(STUCK, IPU_TF_INSTANCE_TIMEOUT="4")
    assert (first.returncode, second.returncode) == (1, 0), second.stderr
    assert (
        "instance 0 waited for instance 1 in 'values': instance 1 did not come within 4 seconds" in first.stderr.lower()
    )


@pytest.mark.slow  # an instance counts as gone after 20 seconds without a sign of life
def test_a_killed_instance_is_named() -> None:
    program = STUCK.replace("time.sleep(6)", "os.kill(os.getpid(), 9)")
    first, second = run_instances(program)
    assert (first.returncode, second.returncode) == (1, -9)
    assert "instance 1 is gone: it gave no sign of life for 20 seconds" in first.stderr


PROGRAM = """
    import jax, numpy as np
    from ipu_tf.device.instances import across
    from ipu_tf.device.instances.joined import join
    join()
    across.run_programs_together(2)
    def summed(x, y):
        return jax.lax.psum(x, across.INSTANCES), y + across.first_replica(3)
    program = across.FunctionOfInstances(jax.jit(across.over_instances(summed)), "a program")
    x, y = program(np.float32([1, 2]) * (INDEX + 1), np.int32(INDEX))
    print(np.asarray(x), np.asarray(y), len(x.devices()), flush=True)
    if INDEX:
        os.kill(os.getpid(), 9)
    program(np.float32([1, 2]), np.int32(0))
"""


def test_a_program_runs_in_both_instances() -> None:
    first, second = run_instances(PROGRAM.replace("os.kill(os.getpid(), 9)", "pass"))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "[3. 6.] 0 1\n" in first.stdout  # the same sum, and each its own values
    assert "[3. 6.] 4 1\n" in second.stdout


@pytest.mark.slow  # it takes half a minute to be sure that the other is gone
def test_an_instance_that_is_killed_in_a_program_is_named() -> None:
    first, second = run_instances(PROGRAM)
    assert (first.returncode, second.returncode) == (1, -9), first.stderr
    assert "Instance 0 lost another instance in the program 'a program': instance 1 gives no sign" in first.stderr


@pytest.mark.slow
def test_an_instance_that_does_not_come_to_a_program_ends_the_process_that_waits_in_it() -> None:
    program = PROGRAM.replace("os.kill(os.getpid(), 9)", "import time; time.sleep(20)")
    first, second = run_instances(program, IPU_TF_INSTANCE_TIMEOUT="5")
    assert (first.returncode, second.returncode) == (1, -6), second.stderr  # JAX ends those that lose instance 0
    said = "Instance 0 waits in the program 'a program' for instance 1, which is not in it after 5 seconds"
    assert said in first.stderr


@pytest.mark.slow  # XLA's own limit is 30 seconds
def test_the_first_program_waits_for_an_instance_that_compiles_longer() -> None:
    program = PROGRAM.replace("    x, y =", "    import time; time.sleep(40 * INDEX)\n    x, y =")
    first, second = run_instances(program.replace("os.kill(os.getpid(), 9)", "pass"))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr


def test_no_address_to_listen_at() -> None:
    own = {"POPDIST_NUM_INSTANCES": "2", "POPDIST_INSTANCE_INDEX": "0", "POPDIST_NUM_TOTAL_REPLICAS": "2"}
    program = "from ipu_tf.device.instances.joined import join; join()"
    (only,) = run_instances(program, 1, 0, 120, JAX_COORDINATOR_ADDRESS="", **own)
    assert only.returncode == 1
    assert "set JAX_COORDINATOR_ADDRESS=host:port in all of them" in only.stderr


def test_a_host_without_an_address_is_named_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def joining(*arguments: object) -> None:
        assert "names the host 'far.invalid', which has no address on this machine" in caplog.text
        raise RuntimeError("DEADLINE_EXCEEDED")

    monkeypatch.setattr(joined, "Coordination", joining)
    monkeypatch.setenv("POPDIST_NUM_INSTANCES", "2")
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "far.invalid:4000")
    with pytest.raises(InstanceError, match="DEADLINE_EXCEEDED JAX_COORDINATOR_ADDRESS names the host 'far.invalid'"):
        join()
