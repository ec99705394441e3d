"""Pipelined Keras models: stage assignment of layer calls, and calls of the model stage by stage.

    PipelineStage scopes | set_pipeline_stage_assignment | split_into_pipeline_stages
        --> stage_assignment (one for each call of a layer) --plan_builder--> StagePlan --staged_call--> the traced step

Start with `stage_assignment`, then `stage_plan` and `staged_call`.
"""
