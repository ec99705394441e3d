"""Pipelined Keras models: stage assignment of layer calls, and calls of the model stage by stage.

    set_pipeline_stage_assignment ─┐
    split_into_pipeline_stages ────┼─► assign: check, store ─► assigned ─► build_plan ─► StagePlan ─► staged_call
    PipelineStage scopes ──────────┘                             ▲
    saved stages, once the model has a graph ────────────────────┘

`assigned_stages` holds `assign` and `assigned`; `assignment_checks.check_given` is the one check where stages enter.
Layers may change afterwards, so a plan is checked against the graph again when it is made (`run_checks.stage_plan`).
Enters: a model and the stages of its layer calls. Leaves: calls of the model with stage boundaries, in the traced step.
Start with `stage_assignment`, then `assigned_stages`, `stage_plan` and `staged_call`.
"""
