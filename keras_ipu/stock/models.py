"""Private API of Keras's models and optimizers: variable values and steps.

If Keras moves one of these, `tests/project/test_private_api.py` names it.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras.src import backend as _backend
from keras.src.applications.resnet import ResNet as ResNet
from keras.src.backend.common import global_state
from keras.src.backend.common.stateless_scope import StatelessScope
from keras.src.legacy.saving import legacy_h5_format as _hdf5
from keras.src.losses.losses import LossFunctionWrapper as LossFunctionWrapper
from keras.src.random import seed_generator as _seeds
from keras.src.saving import saving_lib as _saving
from keras.src.saving.serialization_lib import in_safe_mode as in_safe_mode
from keras.src.utils import io_utils as _io

from keras_ipu.stock.attributes import own_attribute

_NAME_COUNTS = "object_name_uids"


def strategy_of(model: Any) -> Any:
    """The strategy in whose scope a model was made, or None; Keras 2 has another name for it."""
    return getattr(model, "_distribute_strategy", None) or getattr(model, "_distribution_strategy", None)


def compile_config(model: Any) -> dict[str, Any]:
    """Returns the arguments of the last `compile`, by name, as they were given."""
    config: dict[str, Any] = model._compile_config.config
    return config


def adopt(optimizer: Any, strategy: Any) -> None:
    """Assigns an optimizer, and those it may wrap or consist of, to a strategy, wherever they were made."""
    if optimizer is None:
        return
    optimizer._distribution_strategy = strategy
    parts = optimizer.optimizers if isinstance(optimizer, keras.optimizers.MultiOptimizer) else ()
    for part in (getattr(optimizer, "inner_optimizer", None), *parts):
        adopt(part, strategy)


def scope_of_optimizer(optimizer: Any) -> Any:
    """The name scope in which Keras builds an optimizer."""
    return _backend.name_scope(optimizer.name, caller=optimizer)


def computes_slots(optimizer: Any) -> bool:
    """Returns whether `build` computes slots from weights, which stock Keras does as part of its first traced step."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return isinstance(inner, keras.optimizers.ScheduleFreeAdamW)


def scales_loss(optimizer: Any) -> bool:
    """Returns whether an optimizer has a loss scale of its own: until it is built, Keras's is a constant."""
    return type(optimizer).scale_loss is not keras.optimizers.Optimizer.scale_loss


def looks_for_overflow(model: Any) -> bool:
    """Returns whether training needs float16 that overflows to be NaN: on an IPU it saturates, unless configured.

    Where gradients are not finite, stock Keras skips the update and halves the scale of a dynamic `LossScaleOptimizer`.

    Args:
        model: of either Keras. With Keras 3 on JAX float16 overflows to infinity anyway.
    """
    if keras.backend.backend() == "jax" and isinstance(model, keras.Model):
        return False
    optimizer = getattr(model, "optimizer", None)
    scales = "LossScaleOptimizer" in {kind.__name__.removesuffix("V3") for kind in type(optimizer).__mro__}
    dynamic = scales and bool(getattr(optimizer, "dynamic", True))  # that of Keras 3 always is
    return dynamic and any(getattr(layer, "compute_dtype", None) == "float16" for layer in model._flatten_layers())


def summed_over_replicas(optimizer: Any, gradients: Sequence[Any]) -> list[Any]:
    """Returns gradients summed over replicas, as an optimizer of Keras's TensorFlow backend sums them for its update.

    They come back as they are where the optimizer's own methods sum them later, or not at all.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    places = [place for place, gradient in enumerate(gradients) if gradient is not None]
    sums = list(gradients)
    pairs = inner._all_reduce_sum_gradients([(gradients[place], None) for place in places])
    for place, (whole, _) in zip(places, pairs, strict=True):
        sums[place] = whole
    return sums


@contextlib.contextmanager
def applying(optimizer: Any, ours: Callable[..., Any]) -> Iterator[None]:
    """Context in which `optimizer.apply(gradients, variables)` is `ours(stock, gradients, variables)`.

    `stock` clips (`clipnorm`, `clipvalue`, `global_clipnorm`), decays and updates, with the gradients `ours` passes.

    An optimizer's own `apply_gradients` is replaced too, so that it gets the gradients that `ours` passes on.
    """
    own = _has_own(optimizer, "apply_gradients")
    name = "apply_gradients" if own else "apply"
    stock = getattr(optimizer, name)

    def apply(grads: Any, trainable_variables: Any = None) -> Any:
        return ours(stock, list(grads), trainable_variables)

    def apply_gradients(grads_and_vars: Any, **options: Any) -> Any:
        grads, variables = zip(*grads_and_vars, strict=True)
        return ours(lambda new, of: stock(list(zip(new, of, strict=True)), **options), list(grads), variables)

    with own_attribute(optimizer, name, apply_gradients if own else apply):
        yield


def _has_own(optimizer: Any, name: str) -> bool:
    """Returns whether a user-defined class overrides an optimizer's method."""
    owner = next(kind for kind in type(optimizer).__mro__ if name in vars(kind))
    return not owner.__module__.startswith(("keras.src.", "keras_ipu."))


class VariableOverrideScope(StatelessScope):
    """Context in which some Keras variables have the values of tensors; assignments to others are unchanged.

    Args:
        state_mapping: pairs of a variable and a tensor of its shape and dtype.
    """

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Assigns a value to a variable immediately: Keras calls it in place of an assignment.

        Args:
            update: the variable and the value.
        """
        variable, value = update
        assert id(variable) not in self.state_mapping, f"{variable.path} is assigned while it is read from a tensor."
        variable._direct_assign(value)


@contextlib.contextmanager
def patch_stateless_apply(optimizer: Any, ours: Callable[..., Any]) -> Iterator[None]:
    """Context: `optimizer.stateless_apply` is `ours(stock, optimizer_variables, grads, trainable_variables)`."""
    stock = optimizer.stateless_apply

    def stateless_apply(optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        return ours(stock, list(optimizer_variables), list(grads), list(trainable_variables))

    with own_attribute(optimizer, "stateless_apply", stateless_apply):
        yield


@contextlib.contextmanager
def route_apply_through_apply_gradients(optimizer: Any, **options: Any) -> Iterator[None]:
    """Context in which the first `optimizer.apply`, which Keras on JAX calls, goes through `apply_gradients`.

    Args:
        optimizer: a built optimizer.
        options: arguments of its `apply_gradients` beside gradients and variables.
    """
    with contextlib.ExitStack() as until_called:

        def apply(grads: Any, trainable_variables: Any = None) -> None:
            until_called.close()
            variables = optimizer._trainable_variables if trainable_variables is None else trainable_variables
            optimizer.apply_gradients(list(zip(grads, variables, strict=True)), **options)

        until_called.enter_context(own_attribute(optimizer, "apply", apply))
        yield


TRAINING_STATE = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")
"""The parts of what a training step on JAX takes and gives, in order."""


def restore_state(model: Any, state: dict[str, Any]) -> None:
    """Assigns a state to the variables of a model on the JAX backend, whose buffers a run has donated.

    Args:
        model: the model.
        state: lists of arrays by `trainable_variables`, `non_trainable_variables`, `optimizer_variables`,
            `metrics_variables`, as far as the run took them.
    """
    model._jax_state = state
    model._jax_state_synced = False
    model.jax_state_sync()


def sync_left_state(model: Any) -> None:
    """Assigns the state that Keras's loop on JAX held when an exception ended it, as Ctrl-C in a callback does.

    Args:
        model: the model. Its variables keep their values if an execution took the state, which then restores it.
    """
    held = getattr(model, "_jax_state", None) or {}
    arrays = [array for arrays in held.values() for array in arrays or ()]
    if not any(array.is_deleted() for array in arrays):
        model.jax_state_sync()


def state_of(model: Any, names: Iterable[str]) -> tuple[list[Any], ...]:
    """Returns the state of a JAX model's variables, in lists as `restore_state` takes them.

    Args:
        model: the model.
        names: of the parts of the state, such as `trainable_variables`.
    """
    return tuple([variable.value for variable in _variables(model, name)] for name in names)


def _variables(model: Any, name: str) -> Any:
    return model.optimizer.variables if name == "optimizer_variables" else getattr(model, name)


def variable_paths(model: Any, names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Returns the paths of a model's variables, such as `dense/kernel`, in the order of `state_of`."""
    return tuple(tuple(variable.path for variable in _variables(model, name)) for name in names)


def optimizer_state(model: Any) -> list[Any]:
    """Returns the values of the variables of a model's optimizer: TensorFlow variables, or JAX arrays."""
    optimizer = getattr(model, "optimizer", None)
    return [] if optimizer is None else [variable.value for variable in optimizer.variables]


def mark_out_of_date(model: Any) -> None:
    """Marks the variables of a JAX model as out of date during its run."""
    model._jax_state_synced = False


class _SavedWeights(_saving.H5IOStore):
    """In place of a file of weights: a list of what Keras writes into it."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, Any]] = []
        self._path = ""

    def __bool__(self) -> bool:
        return True

    def make(self, path: str, metadata: Any = None) -> _SavedWeights:
        self._path = path
        return self

    def __setitem__(self, key: str, value: Any) -> None:
        self.entries.append((f"{self._path}/vars/{key}".lstrip("/"), value))


def saved_weights(model: Any) -> list[tuple[str, Any]]:
    """Returns what a file of weights has: paths in the HDF5 file, and Keras variables or arrays.

    Optimizers of Keras write arrays, each that of the variable of its number.
    """
    store = _SavedWeights()
    _saving._save_state(model, weights_store=store, assets_store=None, inner_path="", visited_saveables=set())
    slots = {f"optimizer/vars/{number}": slot for number, slot in enumerate(getattr(model.optimizer, "variables", ()))}
    known = {path: slots[path] for path, value in store.entries if path in slots and _same(value, slots[path])}
    return [(path, known.get(path, value)) for path, value in store.entries]


def _same(array: Any, variable: Any) -> bool:
    if not isinstance(array, np.ndarray | np.generic):
        return False
    value = np.asarray(keras.ops.convert_to_tensor(variable))
    return bool(np.array_equal(array, value, equal_nan=array.dtype.kind == "f"))


def all_variables(model: Any) -> list[Any]:
    """Returns all Keras variables of a compiled model, each once: seeds, its optimizer's and its metrics' included."""
    found = (*model.variables, *model.optimizer.variables, *model.metrics_variables)
    return list({id(variable): variable for variable in found}.values())


def global_seed(make: bool = False) -> Any:
    """Returns the variable from which functions of `keras.random` draw that are given no seed.

    Args:
        make: whether to make it if there is none yet; else None is returned then.
    """
    made = global_state.get_global_attribute(_seeds.GLOBAL_SEED_GENERATOR)
    generator = _seeds.global_seed_generator() if make else made
    return None if generator is None else generator.state


def start_at_epoch(model: Any, epoch: int | None) -> None:
    """Sets the epoch that a `fit` which has just begun starts with; None for the one that it was asked for."""
    model._initial_epoch = epoch


def build_all(model: Any, batch_spec: Any) -> None:
    """Creates the variables of a model, its optimizer and its metrics, as the first step does.

    Args:
        model: compiled.
        batch_spec: shape and dtype of each array of a batch, in its structure; None for what a batch has not.
    """
    model._symbolic_build(data_batch=batch_spec)


@contextlib.contextmanager
def calling(model: Any, ours: Callable[..., Any]) -> Iterator[None]:
    """Context in which `model(...)` calls `ours(inputs, training=..., mask=...)`."""
    with own_attribute(model, "call", ours):
        yield


def is_training_call() -> bool:
    """Returns whether the current layer call has `training=True`."""
    context = global_state.get_global_attribute("current_call_ctx")
    return bool(context is not None and context.get_value("training"))


@contextlib.contextmanager
def reset_layer_names() -> Iterator[None]:
    """Context in which Keras's automatic layer names are counted from the beginning; restored afterwards."""
    before = global_state.get_global_attribute(_NAME_COUNTS)
    global_state.set_global_attribute(_NAME_COUNTS, collections.defaultdict(int))
    try:
        yield
    finally:
        global_state.set_global_attribute(_NAME_COUNTS, before)


def save_weights_to_hdf5(file: Any, model: Any) -> None:
    """Writes a model's weights to an open HDF5 file, as Keras 2 did."""
    _hdf5.save_weights_to_hdf5_group(file, model)


def load_weights_from_hdf5(file: Any, model: Any, skip_mismatch: bool = False, by_name: bool = False) -> None:
    """Reads a model's weights from such a file, which is open.

    Args:
        file: of weights, or of a model as Keras 2 saved it.
        model: whose weights are assigned.
        skip_mismatch: whether layers whose weights have other shapes are left as they are.
        by_name: whether layers of one name have the same weights, not those of one place.
    """
    whole_model = "layer_names" not in file.attrs and "model_weights" in file
    load = _hdf5.load_weights_from_hdf5_group_by_name if by_name else _hdf5.load_weights_from_hdf5_group
    load(file["model_weights"] if whole_model else file, model, skip_mismatch)


def may_write(path: Path, overwrite: bool) -> bool:
    """Returns whether to write a file or folder; unless `overwrite`, the user is asked about one that exists."""
    return overwrite or not path.exists() or bool(_io.ask_to_proceed_with_overwrite(str(path)))


def has_losses(model: Any) -> bool:
    """Returns whether a compiled model has a loss, or layers that add losses."""
    return model._compile_loss is not None or bool(model.losses)


def set_model_of_callback(callback: Any, model: Any) -> None:
    """Assigns a model to a callback."""
    callback._model = model


def call_in_order(callbacks: keras.callbacks.CallbackList) -> None:
    """Has a list call its callbacks for batches in the thread of its loop, not in a pool of threads."""
    callbacks._async_train = callbacks._async_test = callbacks._async_predict = False


def uncast_variables() -> contextlib.AbstractContextManager[None]:
    """Context in which variables have their own dtype, in the call of a layer of mixed precision too."""
    scope: contextlib.AbstractContextManager[None] = _backend.AutocastScope(None)
    return scope
