"""Cuts a pipeline's loop into stages: functions for the forward, backward and update pass of each device.

    loop with stage markers --flat_step--> ops in order --stage_assigner, update_cut--> stages --> StageProgram

Start with `stage_assigner`.
Enters: the ops of a loop with stage markers. Leaves: a `StageProgram`.
"""
