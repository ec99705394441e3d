"""Timetables of pipelines: which stage works on which micro-batch at each tick, for each schedule.

    t0  F0  .        two stages; columns are stages, `.` is idle time
    t1  F1  F0
    t2  .   F1

Pure data; imports neither JAX nor TensorFlow. Start with `timetable` and `schedules`.
Enters: a `PipelineShape` and a schedule's rules. Leaves: a checked `Timetable`.
"""
