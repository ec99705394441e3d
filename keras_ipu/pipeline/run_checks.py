"""Checks a model before it runs; resolves stages, shards and accumulation count."""

from __future__ import annotations

from typing import Any

import keras

from keras_ipu.options.model_state import options_of, state_of
from keras_ipu.pipeline.assigned_stages import assigned, nested_assignments
from keras_ipu.pipeline.assignment_checks import check_assignments
from keras_ipu.pipeline.graph import ModelKind, build_graph, graph_of, has_stages, kind_of
from keras_ipu.pipeline.plan_builder import build_plan
from keras_ipu.pipeline.stage_plan import StagePlan
from keras_ipu.stock import graphs as keras_graphs
from keras_ipu.stock import patches as keras_patches

OVERRIDDEN = (
    "The function `{function}` for the model {name} has been overridden. This is not supported when using Keras "
    "within an IPUStrategy. Either remove the override from your model definition or set "
    "`enable_keras_extensions=False` when creating the IPUStrategy."
)
_OVERRIDDEN_PIPELINED = (
    "The function `{function}` for the model {name} has been overridden. This is not supported for pipelined Keras "
    "{models}."
)
_ON_TWO_IPUS = (
    "{layers} used by pipeline stages on the IPUs {first} and {second}. Weights are an input of both, and an input can "
    "only be used by pipeline stages on the same IPU. Give these stages one IPU with "
    "`set_pipelining_options(device_mapping=...)`, or have `split_into_pipeline_stages` find stages."
)
_FUNCTIONS = {
    "fit": ("make_train_function", "train_step"),
    "evaluate": ("make_test_function", "test_step"),
    "predict": ("make_predict_function", "predict_step"),
}


def is_pipelined(model: Any, inputs: Any = None) -> bool:
    """Returns whether an IPU model runs as a pipeline.

    Args:
        model: the model.
        inputs: what a subclassed model that is not built will be called with, as a structure of tensors or
            `tf.TensorSpec`s with the batch dimension: its `call` may have `PipelineStage` scopes that are
            unknown before it is traced. It is traced only if `may_have_stages` holds.

    Raises:
        ValueError: if only some of the layers have a stage.
    """
    unknown = kind_of(model) is ModelKind.SUBCLASSED and state_of(model).graph is None
    if unknown and inputs is not None and has_stages(model, inputs):
        build_graph(model, inputs)
    return bool(assigned(model))


def stage_plan(model: Any, inputs: Any = None) -> StagePlan:
    """Returns the `StagePlan` of a pipelined model.

    Args:
        model: a model for which `is_pipelined` holds.
        inputs: what it will be called with, needed only if it is not built: a structure of tensors or
            `tf.TensorSpec`s with the batch dimension.

    Raises:
        ValueError: for a model that is not pipelined, or is not built and comes without `inputs`; if a call depends
            on a later stage.
        RuntimeError: if a stage has no layer, or a model's layers are not those that were assigned any more.
    """
    if inputs is not None:
        build_graph(model, inputs)
    if graph_of(model) is None:
        raise ValueError(f"Model {model.name} is not built. Give `stage_plan` the inputs it will be called with.")
    assignments = assigned(model)
    if not assignments:
        raise ValueError(f"Model {model.name} is not pipelined: none of its layers has a pipeline stage.")
    _check_assignment_still_valid(model, list(assignments))
    return build_plan(model, assignments)


def stage_numbers(model: Any) -> list[int]:
    """Returns the stage of every layer call of a pipelined model, inner models included."""
    return [each.pipeline_stage for each in nested_assignments(assigned(model))]


def shard_count(model: Any) -> int:
    """Returns the IPUs of one replica of a model: one, or as many as its pipeline's stages are mapped to."""
    assignments = nested_assignments(assigned(model))
    mapping = options_of(model).pipelining_device_mapping
    if not assignments:
        return 1
    return max(mapping or (each.pipeline_stage for each in assignments)) + 1


def accumulates_outfeed(model: Any) -> bool:
    """Returns whether a model's logs are averaged over an execution, an option of pipelined models."""
    return bool(options_of(model).pipelining_accumulate_outfeed) and is_pipelined(model)


def accumulation_count(model: Any, steps_per_execution: int) -> int:
    """Returns the gradient accumulation count of `fit`.

    Args:
        model: the model.
        steps_per_execution: as it will run, each replica for itself.

    Raises:
        ValueError: for a pipelined model without an accumulation count.
        RuntimeError: unless it divides the steps of an execution.
    """
    options, pipelined = options_of(model), bool(assigned(model))
    if not pipelined:
        steps = options.gradient_accumulation_steps or 1
    elif options.pipelining_gradient_accumulation_steps is None:
        raise ValueError(
            "The model which you are attempting to train is pipelined, however "
            "`gradient_accumulation_steps_per_replica` has not been set through `set_pipelining_options()`. You need "
            "to set this value as pipelined models will perform gradient accumulation when training."
        )
    else:
        steps = options.pipelining_gradient_accumulation_steps
    if steps_per_execution % steps:
        raise RuntimeError(
            f"The {'pipelined ' if pipelined else ''}model has been configured to use gradient accumulation for "
            f"training, however the current `steps_per_execution` value (set to {steps_per_execution}) is not "
            f"divisible by `gradient_accumulation_steps_per_replica` ({steps}). You need to adjust either "
            "`steps_per_execution` or`gradient_accumulation_steps_per_replica` to make sure that "
            "`steps_per_execution` is divisible by `gradient_accumulation_steps_per_replica`."
        )
    return steps


def check_before(model: Any, doing: str) -> None:
    """Checks a model before it runs.

    A `train_step`, `test_step` or `predict_step` of the model's own is traced and runs on the device like Keras's;
    only where the step is taken apart, in a pipeline or to accumulate gradients, it cannot be.

    Args:
        model: the model.
        doing: "fit", "evaluate" or "predict".

    Raises:
        RuntimeError: for an overridden function that the device cannot run, or a pipeline stage without layers.
        ValueError: for an optimizer with a `minimize` of its own where gradients are accumulated, or a layer with
            weights in stages of different IPUs.
        NotImplementedError: for a subclassed model with neither a `call` nor a step of its own.
    """
    make, step = _FUNCTIONS[doing]
    if keras_patches.overridden(model, make):
        raise RuntimeError(OVERRIDDEN.format(function=make, name=model.name))
    kind, pipelined = kind_of(model), bool(assigned(model))
    own_step = keras_patches.overridden(model, step)
    if kind is ModelKind.SUBCLASSED and type(model).call is keras.Model.call and not own_step:
        raise NotImplementedError(
            f"The function `call` for the model {model.name} has not been implemented. When subclassing the `Model` "
            "class you must implement the `call` function."
        )
    if own_step:
        _check_step(model, step, pipelined)
    if pipelined and kind is not ModelKind.SUBCLASSED and _has_custom_call(model, kind):
        models = f"{kind.value} models"
        raise RuntimeError(_OVERRIDDEN_PIPELINED.format(function="call", name=model.name, models=models))
    if doing == "fit":
        _check_minimize(model, pipelined)
    if pipelined:
        _check_shared_layers(model)
    if pipelined and graph_of(model) is not None:
        stage_plan(model)


def _check_step(model: Any, step: str, pipelined: bool) -> None:
    accumulates = step == "train_step" and (options_of(model).gradient_accumulation_steps or 1) > 1
    if step == "train_step" and (pipelined or accumulates):
        raise RuntimeError(OVERRIDDEN.format(function=step, name=model.name))
    if pipelined:
        raise RuntimeError(_OVERRIDDEN_PIPELINED.format(function=step, name=model.name, models="models"))


def _check_minimize(model: Any, pipelined: bool) -> None:
    """Refuses optimizers that override `minimize`, which Keras 3 never calls."""
    splits = pipelined or (options_of(model).gradient_accumulation_steps or 1) > 1
    optimizer = model.optimizer if splits and model.compiled else None
    while optimizer is not None:
        if hasattr(optimizer, "minimize") and not _uses_stock_minimize(optimizer):
            raise ValueError(
                "When using Gradient Accumulation or Pipelining, the provided optimizer must not override "
                f"OptimizerV2.minimize. Received: {type(optimizer).__name__}. Override `apply` instead."
            )
        optimizer = getattr(optimizer, "inner_optimizer", None)


def _uses_stock_minimize(optimizer: Any) -> bool:
    """Returns whether `minimize` is Keras's or this package's, which `fit` need not call."""
    owner = next((kind for kind in type(optimizer).__mro__ if "minimize" in vars(kind)), None)
    return owner is not None and owner.__module__.startswith(("keras.src.", "keras_ipu."))


def _check_shared_layers(model: Any) -> None:
    mapping = options_of(model).pipelining_device_mapping
    homes: dict[int, tuple[int, str]] = {}
    for each in nested_assignments(assigned(model)):
        stage = each.pipeline_stage
        if mapping and stage >= len(mapping):
            continue  # too short a mapping, or a stage without a layer, is refused later
        home = mapping[stage] if mapping else stage
        for variable in getattr(each.layer, "weights", ()):  # an operation such as `x + y` is no layer, and has none
            known, name = homes.setdefault(id(variable), (home, each.layer.name))
            if known != home:
                raise ValueError(_ON_TWO_IPUS.format(layers=_both(name, each.layer.name), first=known, second=home))


def _both(first: str, second: str) -> str:
    return f"Layer {first} is" if first == second else f"Layers {first} and {second} share variables and are"


def _has_custom_call(model: Any, kind: ModelKind) -> bool:
    stock = keras.Sequential if kind is ModelKind.SEQUENTIAL else keras_graphs.Functional
    return type(model).call is not stock.call


def _check_assignment_still_valid(model: Any, assignments: list[Any]) -> None:
    try:
        if kind_of(model) is ModelKind.SEQUENTIAL and not state_of(model).assignment_valid:
            raise ValueError("layers were added or removed since `set_pipeline_stage_assignment()` was called.")
        check_assignments(model, assignments)
    except ValueError as error:
        raise RuntimeError(
            f'The pipeline stage assignments for model {model.name} are no longer valid: "{error}" This can happen if '
            "the model is invoked with shapes or dtypes which are incompatible with those from the previous "
            "invocation, or those passed to `model.build`. Try calling `model.build` and specifying a less "
            "restrictive shape. You can specify dtypes to `model.build` by passing in `keras.Input` objects instead of "
            "plain shapes."
        ) from error
