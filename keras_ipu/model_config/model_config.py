"""`IPUModelConfig`: a configuration in Optimum's format, read, written, and applied to a Keras model."""

from __future__ import annotations

import json
import os
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ipu_tf._config.treatment import Effect
from ipu_tf.config import EmulationWarning, IPUConfig
from ipu_tf.emulation import record_ignored
from keras_ipu.model_config.applied_stages import apply_stages, check_device
from keras_ipu.model_config.consistency import check_together, expanded
from keras_ipu.model_config.shipped import SHIPPED
from keras_ipu.options.config_fields import BOOKKEEPING, CONFIG_NAME, FIELDS
from keras_ipu.options.model_state import set_options
from keras_ipu.stock import models as keras_models
from keras_ipu.stock.ownership import is_ipu_model


class IPUModelConfig:
    """Configuration of a model, with the fields of Optimum's `IPUConfig`: stages, micro-batches, replicas.

    A configuration does not change. Fields are attributes; docs/options.md lists them.

    Args:
        **fields: those that are not at their defaults.

    Raises:
        TypeError: for an unknown field, with the known one that is most like it, or a value of another type.
        ValueError: for a value out of range.
        IncompatibleIPUConfigError: for fields that contradict each other.

    Example:
        >>> from keras_ipu import IPUModelConfig
        >>> config = IPUModelConfig(layers_per_ipu=[0, 4, -1, -1], gradient_accumulation_steps=16)
        >>> config.ipus_per_replica, config.layers_for(12)
        (4, (0, 4, 4, 4))
    """

    def __init__(self, **fields: Any) -> None:
        written_by = {name: fields.pop(name) for name in BOOKKEEPING if name in fields}
        given = FIELDS.check(fields)
        values = {each.name: given.get(each.name, each.default) for each in FIELDS.arguments}
        values["ipus_per_replica"] = values["ipus_per_replica"] or len(values["layers_per_ipu"])
        self._given: Mapping[str, Any] = types.MappingProxyType({**given, **written_by})
        self._values: Mapping[str, Any] = types.MappingProxyType(values)
        check_together(values, given)

    def __getattr__(self, name: str) -> Any:
        if name in FIELDS.names:
            value = self._values[name]
            return tuple(value) if isinstance(value, list) else value
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"IPUModelConfig({', '.join(f'{name}={value!r}' for name, value in self._given.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IPUModelConfig) and self._values == other._values

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def from_pretrained(cls, folder_or_name: str | os.PathLike[str]) -> IPUModelConfig:
        """Reads a configuration.

        Args:
            folder_or_name: a folder with an `ipu_config.json`, such a file, or the name of a preset of KerasHub's that
                a configuration is shipped for.

        Raises:
            FileNotFoundError: if there is neither such a folder nor such a name.
            ValueError: for a file that is no JSON object, and as the class does for its fields.
        """
        path = Path(folder_or_name)
        file = path / CONFIG_NAME if path.is_dir() else path
        if file.is_file():
            return cls.from_dict(_read(file))
        if str(folder_or_name) in SHIPPED:
            return cls(**SHIPPED[str(folder_or_name)])
        raise FileNotFoundError(
            f"There is no {CONFIG_NAME} in {str(folder_or_name)!r}, and no configuration of that name. Shipped are: "
            f"{', '.join(SHIPPED)}."
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IPUModelConfig:
        """Makes a configuration of the values of a file.

        Raises:
            TypeError: as the class does.
            ValueError: as the class does.
        """
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The fields that were given, and who wrote them, as plain data."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in self._given.items()}

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes `ipu_config.json` into a folder, which is made if need be."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_dict(), indent=2, sort_keys=True)
        (Path(folder) / CONFIG_NAME).write_text(text + "\n", encoding="utf-8")

    @property
    def num_ipus(self) -> int:
        """IPUs of all replicas; those of a replica are a power of two, as on a machine."""
        return int(self.replication_factor) << (int(self.ipus_per_replica) - 1).bit_length()

    @property
    def steps_per_execution(self) -> int:
        """What `compile(steps_per_execution=...)` takes: the steps of `device_iterations` weight updates."""
        return int(self.gradient_accumulation_steps * self.device_iterations)

    def ipu_config(self) -> IPUConfig:
        """Makes the `IPUConfig` of a device with `num_ipus` IPUs, which is to be configured."""
        config = IPUConfig()
        config.auto_select_ipus = self.num_ipus
        return config

    def without_effect(self) -> dict[str, str]:
        """Lists the fields that were given and change nothing here, each with the reason."""
        named = (each for each in FIELDS.arguments if self._given.get(each.name) not in (None, each.default))
        return {each.name: each.treatment.reason for each in named if each.treatment.effect is not Effect.MODELLED}

    def layers_for(self, blocks: int) -> tuple[int, ...]:
        """Returns how many of a model's blocks each IPU has.

        Blocks that -1 stands for are shared out evenly; what is left over is on the last such IPU, as in Optimum.

        Args:
            blocks: how many there are.

        Raises:
            IncompatibleIPUConfigError: if `layers_per_ipu` is not of that many.
        """
        return expanded(self.layers_per_ipu, self.ipus_per_replica, blocks)

    def apply(self, model: Any, layers: Sequence[str] | None = None) -> None:
        """Sets a model's stages and options. Fields without effect are listed by `emulation.ignored_arguments()`.

        What comes before the blocks is on IPU 0, what follows the last one on its IPU; a language model's head that is
        its table of tokens is on IPU 0, as a stage of its own. Gradients of micro-batches become their mean, those of
        replicas their sum.

        Args:
            model: made in an `IPUStrategy`'s scope, and built.
            layers: names of the layers with which blocks begin, `*` standing for any text, such as
                `["transformer_layer_*"]`; by default those of the class that has most variables.

        Raises:
            IncompatibleIPUConfigError: if `layers_per_ipu` is not of as many blocks as the model has, or the device has
                not as many IPUs as all replicas take.
            TypeError: for a model that was not made in the scope.
            ValueError: if the model has no such layers.
            RuntimeError: for a model that is not built.

        Example:
            config = keras_ipu.IPUModelConfig(layers_per_ipu=[2, 2], gradient_accumulation_steps=8)
            config.ipu_config().configure_ipu_system()
            with ipu.ipu_strategy.IPUStrategy().scope():
                model = keras_hub.models.BertTextClassifier.from_preset("./bert", num_classes=2)
            config.apply(model)
            model.compile("adam", steps_per_execution=config.steps_per_execution)
        """
        if not is_ipu_model(model):
            raise TypeError(f"`apply` takes a model that was made in an `IPUStrategy`'s scope. Received: {model!r}.")
        check_device(self, keras_models.strategy_of(model).device_ordinal)
        steps = self.gradient_accumulation_steps
        if self.ipus_per_replica == 1:
            model.reset_pipeline_stage_assignment()
            set_options(model, gradient_accumulation_steps=steps, gradient_accumulation_reduction="MEAN")
        else:
            apply_stages(self, model, layers)
        self._record()

    def _record(self) -> None:
        for name, reason in self.without_effect().items():
            record_ignored(f"IPUModelConfig.{name}", self._given[name], reason.rstrip("."))
            if FIELDS[name].treatment.effect is Effect.WARNS:
                warnings.warn(f"IPUModelConfig.{name} is not emulated. {reason}", EmulationWarning, stacklevel=4)


def _read(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{file} should hold an object of JSON. Received: {type(values).__name__}.")
    return values
