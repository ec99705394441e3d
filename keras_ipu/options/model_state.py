"""IPU state of a Keras model: options, stage assignment, traced graph."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_ipu.options.options import IPUOptions

_ATTRIBUTE = "_ipu_state"


@dataclasses.dataclass(frozen=True)
class ModelState:
    """Frozen IPU state of one model; every change makes a new one.

    Attributes:
        options: set by the `set_..._options` methods.
        assignment: the pipeline stage assignments of the model's layers in execution order, empty unless pipelined.
        assignment_valid: of a `Sequential`: whether `assignment` still fits its layers.
        saved_stages: stages from a saved model, nested like its models, that wait for the graph they belong to.
        scopes_read: whether the stages of `PipelineStage` scopes in the graph were looked for.
        graph: the graph a subclassed model was traced to, or None.
        graph_nodes: the nodes that the trace made, which the next one replaces.
    """

    options: IPUOptions = IPUOptions()
    assignment: tuple[Any, ...] = ()
    assignment_valid: bool = False
    saved_stages: Any = None
    scopes_read: bool = False
    graph: Any = None
    graph_nodes: tuple[Any, ...] = ()


_NOTHING_SET = ModelState()


def state_of(model: Any) -> ModelState:
    """Returns the IPU state of a model; the defaults if nothing was set."""
    state = vars(model).get(_ATTRIBUTE, _NOTHING_SET)
    assert isinstance(state, ModelState)
    return state


def update_state(model: Any, **changes: Any) -> None:
    """Replaces parts of a model's state. Its compiled functions stay; see `reset_functions`."""
    # Bypasses Keras's attribute tracking, which would track the layers in the assignments as layers of the model.
    vars(model)[_ATTRIBUTE] = dataclasses.replace(state_of(model), **changes)


def reset_functions(model: Any) -> None:
    """Makes a model compile its train, test and predict functions anew."""
    model.train_function = None
    model.test_function = None
    model.predict_function = None


def options_of(model: Any) -> IPUOptions:
    """The options of an IPU model; the defaults for any other."""
    return state_of(model).options


def set_options(model: Any, **changes: Any) -> None:
    """Replaces options of a model, and resets its compiled functions."""
    update_state(model, options=dataclasses.replace(options_of(model), **changes))
    reset_functions(model)
