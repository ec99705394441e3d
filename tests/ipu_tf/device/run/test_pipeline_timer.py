"""Times of a pipeline's tasks: when each could start, and when it ended."""

from __future__ import annotations

import threading

from ipu_tf.device.run.pipeline_timer import PipelineTimer
from ipu_tf.device.schedule.timetable import Task, TaskKind


class Done:
    """Stands for an array: it is ready when an event is set, and sets another one once it is waited for."""

    def __init__(self, ready: threading.Event | None = None, awaited: threading.Event | None = None) -> None:
        self._ready, self._awaited = ready, awaited

    def block_until_ready(self) -> None:
        if self._awaited is not None:
            self._awaited.set()
        assert self._ready is None or self._ready.wait(60)


def test_a_pass_starts_when_the_one_before_it_has_ended() -> None:
    """It is dispatched earlier: waiting for another device is no time of its own."""
    first, later, last = Task(TaskKind.FORWARD, 0, 0), Task(TaskKind.FORWARD, 0, 1), Task(TaskKind.FORWARD, 1, 0)
    updates = [Task(TaskKind.UPDATE, stage) for stage in (0, 1)]
    dispatched, ended = threading.Event(), threading.Event()
    timer = PipelineTimer(2)
    timer.given(last, 1, Done(ready=ended))
    timer.given(updates[1], 1, Done())
    timer.given(first, 0, Done(ready=dispatched))
    timer.given(later, 0, Done(awaited=ended))
    dispatched.set()
    timer.given(updates[0], 0, Done())
    found = {one.task: one for one in timer.stop()}
    assert found[first].start == 0 < found[first].end == found[last].start <= found[last].end
    assert found[updates[1]].start == found[last].end  # it waits for no other device
