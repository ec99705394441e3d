"""Arguments and attributes that Keras 2's layers, models and callbacks had, for Keras 3's."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras

from ipu_tf._patches.installation import replace_in
from keras_ipu.stock import graphs as keras_graphs
from keras_ipu.stock import models as keras_models
from keras_ipu.stock import patches as keras_patches

#: `add_weight`'s arguments in Keras 2, in their order.
_WEIGHT = ("name", "shape", "dtype", "initializer", "regularizer", "trainable", "constraint")
#: Those of them that do not matter here.
_WITHOUT_MEANING = ("use_resource", "synchronization", "partitioner", "experimental_enable_variable_lifting")
_PLAIN = (bool, int, float, str)


@dataclasses.dataclass(frozen=True, eq=False)
class _Reference:
    """A tensor as a key of dictionaries and member of sets."""

    tensor: Any

    def deref(self) -> Any:
        """The tensor."""
        return self.tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reference) and other.tensor is self.tensor

    def __hash__(self) -> int:
        return id(self.tensor)


def install_arguments() -> None:
    """Patches Keras's classes to take Keras 2's arguments and attributes. Calling it again changes nothing."""
    layer = keras.layers.Layer
    keras_patches.patch_method(layer, "__call__", _always, _call)
    keras_patches.patch_method(layer, "add_weight", _always, _add_weight)
    replace_in(keras.layers.Dense, "__init__", _whole_units)
    keras_patches.patch_trainer_method("compute_loss", _compute_loss)
    replace_in(keras.layers.Lambda, "from_config", _own_lambdas)
    replace_in(keras.callbacks.Callback, "model", _settable_model)
    for owner, name, attribute in (
        (layer, "_name", property(_name, _rename)),
        (layer, "updates", property(lambda _: [])),
        (keras.layers.InputLayer, "input", property(lambda made: made.output)),
        (keras.KerasTensor, "ref", property(lambda tensor: functools.partial(_Reference, tensor))),
        (keras_graphs.KerasHistory, "layer", property(lambda made: made.operation)),
    ):
        keras_patches.add_attribute(owner, name, attribute, __name__)
    keras_patches.after_import_of_keras("losses", _add_loss_wrapper)


def _always(_: Any) -> bool:
    return True


def _call(stock: Callable[..., Any], layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Passes Python values that come by position, such as `training`, by name: Keras 3 takes tensors alone there."""
    first = next((place for place, arg in enumerate(args) if place and isinstance(arg, _PLAIN)), None)
    if first is None:
        return stock(layer, *args, **kwargs)
    parameters = inspect.signature(layer.call).parameters.values()
    named = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    if len(named) < len(args):
        return stock(layer, *args, **kwargs)
    return stock(layer, *args[:first], **dict(zip(named[first:], args[first:], strict=False)), **kwargs)


def _add_weight(stock: Callable[..., Any], layer: Any, *args: Any, **kwargs: Any) -> Any:
    if args and isinstance(args[0], str):
        kwargs.update(zip(_WEIGHT, args, strict=False))
        args = ()
    if "experimental_autocast" in kwargs:
        kwargs["autocast"] = kwargs.pop("experimental_autocast")
    for name in _WITHOUT_MEANING:
        kwargs.pop(name, None)
    if kwargs.get("trainable", True) is None:
        kwargs["trainable"] = True
    aggregation = getattr(kwargs.get("aggregation"), "name", None)
    if aggregation is not None:
        kwargs["aggregation"] = aggregation.lower()
    return stock(layer, *args, **kwargs)


def _whole_units(stock: Callable[..., Any]) -> Callable[..., Any]:
    # Not a wrapper by name: Keras looks at the names of the arguments both behind it and in front of it.
    def init(self: Any, units: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, int(units) if isinstance(units, float) and units.is_integer() else units, *args, **kwargs)

    return init


def _compute_loss(stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    """The loss; 0 where a model without one is evaluated."""
    training = kwargs.get("training", args[4] if len(args) > 4 else True)
    if not training and not keras_models.has_losses(model):
        return keras.ops.zeros(())
    return stock(model, *args, **kwargs)


def _own_lambdas(stock: Any) -> Any:
    """`Lambda.from_config` that a program calls itself takes a Python function; one in a file is refused as before."""

    def from_config(cls: Any, config: Any, custom_objects: Any = None, safe_mode: Any = None) -> Any:
        if safe_mode is None and keras_models.in_safe_mode() is None:
            safe_mode = False
        return stock.__func__(cls, config, custom_objects=custom_objects, safe_mode=safe_mode)

    return classmethod(from_config)


def _settable_model(stock: Any) -> Any:
    return property(stock.fget, keras_models.set_model_of_callback, doc=stock.__doc__)


def _name(layer: Any) -> str:
    return str(layer.name)


def _rename(layer: Any, name: str) -> None:
    layer.name = name


def _add_loss_wrapper(losses: Any) -> None:
    replace_in(losses, "LossFunctionWrapper", lambda absent: keras_models.LossFunctionWrapper, missing=None)
