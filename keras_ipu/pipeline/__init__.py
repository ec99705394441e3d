"""Pipelined Keras models: which layer calls are on which stage, and how the model is called stage by stage.

    PipelineStage scopes | set_pipeline_stage_assignment | split_into_pipeline_stages
        --> stage_assignment (one for each call of a layer) --plan_builder--> StagePlan --staged_call--> the traced step

Start with `stage_assignment`, then `stage_plan` and `staged_call`.
"""
