"""Cuts a pipeline's loop into stages: functions for the forward, backward and update pass of each device.

    loop with stage markers --flat_step--> ops in order --stage_cut, update_cut--> stages --> StageProgram

Start with `stage_cut`.
Enters: the ops of a loop with stage markers. Leaves: a `StageProgram`.
"""
