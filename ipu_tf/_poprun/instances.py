"""Instances of a program: which host and replicas each has, and the environment that says so to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from ipu_tf._poprun.arguments import UsageError
from ipu_tf._poprun.hosts import is_this_machine


@dataclasses.dataclass(frozen=True)
class Instance:
    """One process of the program.

    Attributes:
        index: which one.
        host: where it runs.
        local_index: which one of those on its host.
        local_count: how many there are on its host.
        replicas: how many replicas it has.
        first_replica: the first of them.
    """

    index: int
    host: str
    local_index: int
    local_count: int
    replicas: int
    first_replica: int


def instances(count: int, replicas: int, hosts: Sequence[str]) -> tuple[Instance, ...]:
    """Divides replicas among instances, and instances among hosts, evenly.

    Raises:
        UsageError: if they do not divide evenly.
    """
    if replicas % count:
        raise UsageError(
            f"--num-replicas must be a multiple of --num-instances. Received: {replicas} replicas, {count} instances."
        )
    if count % len(hosts):
        raise UsageError(
            f"--num-instances must be a multiple of the number of hosts. Received: {count} instances, "
            f"{len(hosts)} hosts."
        )
    each, own = count // len(hosts), replicas // count
    # A host may be named several times, and this machine by several names.
    machine_of = {host: "" if is_this_machine(host) else host for host in set(hosts)}
    machines = [machine_of[hosts[i // each]] for i in range(count)]
    places = [(machines[:i].count(machines[i]), machines.count(machines[i])) for i in range(count)]
    return tuple(Instance(i, hosts[i // each], *places[i], own, i * own) for i in range(count))


def variables(
    instance: Instance, all_of_them: Sequence[Instance], ipus_per_replica: int, coordinator: str
) -> dict[str, str]:
    """Returns the variables that tell an instance its place: PopDist's, Open MPI's and JAX's.

    Args:
        instance: which one.
        all_of_them: every instance.
        ipus_per_replica: IPUs of one replica.
        coordinator: `host:port` at which instance 0 is to listen.
    """
    count = len(all_of_them)
    values = {
        "POPDIST_NUM_INSTANCES": count,
        "POPDIST_INSTANCE_INDEX": instance.index,
        "POPDIST_LOCAL_INSTANCE_INDEX": instance.local_index,
        "POPDIST_NUM_TOTAL_REPLICAS": sum(each.replicas for each in all_of_them),
        "POPDIST_NUM_LOCAL_REPLICAS": instance.replicas,
        "POPDIST_NUM_IPUS_PER_REPLICA": ipus_per_replica,
        "POPDIST_REPLICA_INDEX_OFFSET": instance.first_replica,
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": 1,
        "OMPI_COMM_WORLD_SIZE": count,
        "OMPI_COMM_WORLD_RANK": instance.index,
        "OMPI_COMM_WORLD_LOCAL_SIZE": instance.local_count,
        "OMPI_COMM_WORLD_LOCAL_RANK": instance.local_index,
    }
    return {"JAX_COORDINATOR_ADDRESS": coordinator, **{name: str(value) for name, value in values.items()}}


def topology(all_of_them: Sequence[Instance], ipus_per_replica: int) -> Iterator[str]:
    """Yields the lines of `--print-topology`: for each instance its host, replicas and number of IPUs."""
    width = max(len("host"), *(len(each.host) for each in all_of_them))
    yield f"{'instance':>8}  {'host':<{width}}  {'replicas':<12}  IPUs"
    for each in all_of_them:
        last = each.first_replica + each.replicas - 1
        own = str(last) if each.replicas == 1 else f"{each.first_replica} to {last}"
        yield f"{each.index:>8}  {each.host:<{width}}  {own:<12}  {each.replicas * ipus_per_replica}"
