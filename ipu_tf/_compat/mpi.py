"""Stand-in for `mpi4py` where it is not installed: the processes of `poprun`, or this one alone."""

from __future__ import annotations

from typing import Any

from ipu_tf import popdist
from ipu_tf.emulation import EmulationError

__all__ = ["MPI"]


class Communicator:
    """All processes of the program."""

    @property
    def rank(self) -> int:
        """This process's index."""
        return popdist.getInstanceIndex()

    @property
    def size(self) -> int:
        """How many processes there are."""
        return popdist.getNumInstances()

    def Get_rank(self) -> int:  # noqa: N802 - mpi4py's name
        """Returns this process's index."""
        return self.rank

    def Get_size(self) -> int:  # noqa: N802
        """Returns how many processes there are."""
        return self.size

    def Barrier(self) -> None:  # noqa: N802
        """Waits until every process has come here."""
        if self.size > 1:
            popdist.synchronize()

    barrier = Barrier

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Returns the object, which is that of the one process there is."""
        return self._alone("bcast", obj)

    def allreduce(self, sendobj: Any, op: Any = None) -> Any:
        """Returns the object: the sum, or another reduction, over one process."""
        return self._alone("allreduce", sendobj)

    def allgather(self, sendobj: Any) -> list[Any]:
        """Returns a list of the object of each process."""
        return [self._alone("allgather", sendobj)]

    def gather(self, sendobj: Any, root: int = 0) -> list[Any]:
        """Returns a list of the object of each process."""
        return [self._alone("gather", sendobj)]

    def _alone(self, name: str, value: Any) -> Any:
        if self.size == 1:
            return value
        raise EmulationError(
            f"mpi4py's {name} must have mpi4py, which is not installed, among several processes. Install it, or use "
            f"`ipu.distributed`: allgather, allreduce, broadcast. Received: {self.size} processes."
        )


class MPI:
    """The module `mpi4py.MPI`."""

    COMM_WORLD = Communicator()
    Comm = Communicator
    SUM, MAX, MIN, PROD = "sum", "max", "min", "prod"
