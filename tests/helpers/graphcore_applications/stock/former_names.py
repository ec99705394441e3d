"""Names of TensorFlow 2.6, its Keras 2 and NumPy 1 that applications use, leading to where stock packages have them."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

KERAS_2 = os.environ.get("TF_USE_LEGACY_KERAS") == "1"

#: Module of former releases -> where `tf_keras` has it.
MODULES = {
    "keras.engine": "tf_keras.src.engine",
    "keras.optimizer_v2.gradient_descent": "tf_keras.src.optimizers.legacy.gradient_descent",
    "keras.optimizer_v2": "tf_keras.src.optimizers.legacy",
    "tensorflow.python.keras.applications": "tf_keras.src.applications",
    "tensorflow.python.training.training_ops": "tensorflow.python.ops.gen_training_ops",
    "keras.layers.core": "tf_keras.src.layers.core",
    "keras.losses": "tf_keras.src.losses",
    "keras.utils": "tf_keras.src.utils",
    "tensorflow.python.distribute.distribution_strategy_context": "tensorflow.python.distribute.distribute_lib",
    "keras": "tf_keras",
}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a former module where it is now."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns a specification for a name below an entry of `MODULES`; see `importlib.abc`."""
        return importlib.machinery.ModuleSpec(fullname, self) if _now(fullname) else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Returns the module of today."""
        now = _now(spec.name)
        assert now is not None
        return importlib.import_module(now)

    def exec_module(self, module: ModuleType) -> None:
        """It was executed when it was imported."""


def _now(name: str) -> str | None:
    for former, now in MODULES.items():
        if name == former or name.startswith(f"{former}."):
            return now + name[len(former) :]
    return None


def _hide_layers_of_residual_networks() -> None:
    """Has `ResNet`, given layers, return a model without `layers`: in TensorFlow 2.6 they were another Keras's.

    A program that copies the model layer by layer trains the weights that the copies drew.
    """
    module: Any = importlib.import_module("tf_keras.src.applications.resnet")
    functional = importlib.import_module("tf_keras.src.engine.functional").Functional
    of_today, hidden = module.ResNet, type("Functional", (functional,), {"layers": property(lambda self: [])})

    def residual_network(*arguments: Any, **options: Any) -> Any:
        model = of_today(*arguments, **options)
        if options.get("layers") is not None:
            model.__class__ = hidden
        return model

    module.ResNet = residual_network


def install() -> None:
    """Has the names be found."""
    for name in ("int", "float", "object"):
        setattr(np, name, getattr(importlib.import_module("builtins"), name))
    if not KERAS_2:
        return
    tensorflow = importlib.import_module("tensorflow")
    sys.meta_path.insert(0, Finder())
    _hide_layers_of_residual_networks()
    optimizers = tensorflow.keras.optimizers
    for name in ("Adam", "RMSprop", "SGD", "Optimizer"):
        setattr(optimizers, name, getattr(optimizers.legacy, name))
    # A metric of several outputs, which TensorFlow 2.6 took, is refused today.
    containers = importlib.import_module("tf_keras.src.engine.compile_utils")
    containers.MetricsContainer._check_duplicated_metrics = lambda *args: None
    # Imported by these names, the files would be run again.
    sys.modules.update({"tensorflow.keras.optimizers": optimizers, "tensorflow.keras": tensorflow.keras})
