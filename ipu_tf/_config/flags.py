"""Parses and checks the environment variable `TF_POPLAR_FLAGS`.

TF_POPLAR_FLAGS ──► flags() ──► Flags ──► the configuration's checks
                                  └─────► apply_flags() ──► the device: synthetic data, executable cache
"""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from absl import flags as absl_flags

from ipu_tf._config.emulation_error import EmulationError
from ipu_tf._config.flag_table import FLAGS, Flag, FlagValue, usage
from ipu_tf._config.treatment import Effect
from ipu_tf.device.cache import executable_cache
from ipu_tf.device.environment import poplar_flags
from ipu_tf.device.feeds import synthetic
from ipu_tf.device.feeds.synthetic import Initializer, SyntheticData, TransferKind

_PROGRESS_BAR = ("auto", "true", "false")
_RANDOM = ("random", "uniform", "normal")
# absl takes these from every command line: one reads a file, one makes unknown flags pass.
_ABSL_OWN = ("flagfile", "undefok")
_DEFINE: dict[type, Callable[..., Any]] = {
    bool: absl_flags.DEFINE_boolean,
    int: absl_flags.DEFINE_integer,
    str: absl_flags.DEFINE_string,
}


class FlagsError(ValueError):
    """Error for a value of `TF_POPLAR_FLAGS` that is not allowed."""


@dataclasses.dataclass(frozen=True)
class Flags:
    """The flags that a text sets.

    Attributes:
        values: the value of every flag, by its name.
        synthetic_data: what data is synthetic.
    """

    values: Mapping[str, FlagValue]
    synthetic_data: SyntheticData

    def given(self) -> tuple[tuple[Flag, FlagValue], ...]:
        """The flags whose values differ from their defaults, in the order of the table."""
        return tuple((flag, self.values[flag.name]) for flag in FLAGS if self.values[flag.name] != flag.default)


def flags() -> Flags:
    """Returns the flags that the environment holds now. Changes nothing.

    Raises:
        FlagsError: for an unknown flag, or a value that a flag does not take.
        EmulationError: for a flag that asks for what an emulator cannot give.
    """
    return parse(poplar_flags())


def apply_flags() -> None:
    """Sets what the flags of the environment say about the device: its executable cache, and synthetic data.

    Raises:
        FlagsError, EmulationError: as `flags`.
        CacheFolderError, UntrustedFile: if the folder of the cache cannot be used.
    """
    parsed = flags()
    executable_cache.use(str(parsed.values["executable_cache_path"]))
    synthetic.use(parsed.synthetic_data)


def use_ipu_model() -> bool:
    """Returns whether TF_POPLAR_FLAGS asks for the IPU model rather than an IPU; both are emulated alike."""
    return bool(flags().values["use_ipu_model"])


@functools.lru_cache(maxsize=64)
def parse(text: str) -> Flags:
    """The flags in a text, such as TF_POPLAR_FLAGS holds.

    Raises:
        FlagsError: for an unknown flag, or a value that a flag does not take.
        EmulationError: for a flag that asks for what an emulator cannot give.

    Example:
        >>> parse("--use_on_demand --max_infeed_threads=4").values["max_infeed_threads"]
        4
    """
    values = _values(_words(text))
    data = _synthetic_data(values)
    if values["show_progress_bar"] not in _PROGRESS_BAR:
        raise _wrong("show_progress_bar", "'auto', 'true' or 'false'", values["show_progress_bar"])
    parsed = Flags(values, data)
    for flag, value in parsed.given():
        if flag.refused:
            raise EmulationError(f"TF_POPLAR_FLAGS has --{flag.name}={value}. {flag.treatment.reason}")
    return parsed


def ignored(parsed: Flags) -> tuple[tuple[Flag, FlagValue], ...]:
    """Returns the given flags that have no effect."""
    return tuple((flag, value) for flag, value in parsed.given() if flag.treatment.effect is not Effect.MODELLED)


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise FlagsError(f"TF_POPLAR_FLAGS cannot be split into flags: {error}. Received: {text!r}.") from error
    for word in words:
        name = word.lstrip("-").partition("=")[0]
        if name in _ABSL_OWN or word == "--":
            raise FlagsError(f"TF_POPLAR_FLAGS has the unknown flag {word!r}.\n{usage()}")
    return words


def _values(words: list[str]) -> dict[str, FlagValue]:
    holder = _holder()
    try:
        _, *rest = holder(["TF_POPLAR_FLAGS", *words])
    except absl_flags.UnrecognizedFlagError as error:
        raise FlagsError(f"TF_POPLAR_FLAGS has the unknown flag --{error.flagname}.\n{usage()}") from error
    except absl_flags.Error as error:
        raise FlagsError(f"TF_POPLAR_FLAGS has a flag without a fitting value: {error}.\n{usage()}") from error
    if rest:
        raise FlagsError(f"TF_POPLAR_FLAGS has words that are no flags: {', '.join(map(repr, rest))}.\n{usage()}")
    return holder.flag_values_dict()


def _holder() -> absl_flags.FlagValues:
    holder = absl_flags.FlagValues()
    for flag in FLAGS:
        _DEFINE[type(flag.default)](flag.name, flag.default, flag.meaning, flag_values=holder)
    return holder


def _synthetic_data(values: Mapping[str, FlagValue]) -> SyntheticData:
    known = {category.value: category for category in TransferKind}
    names = [name.strip() for name in str(values["synthetic_data_categories"]).split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise FlagsError(
                f"Using an unknown synthetic data category in: '{values['synthetic_data_categories']}'. Received: "
                f"'{name}'. Wanted: a comma-separated list of {', '.join(known)}."
            )
    categories = frozenset(known.values() if values["use_synthetic_data"] else (known[name] for name in names))
    if values["synthetic_data_initializer"] and not categories:
        raise FlagsError(
            'The flag "synthetic_data_initializer" can only be used in combination with "use_synthetic_data" or '
            '"synthetic_data_categories".'
        )
    initializer = _initializer(str(values["synthetic_data_initializer"]))
    return SyntheticData(categories, initializer, null_feed=bool(values["null_data_feed"]))


def _initializer(text: str) -> Initializer:
    if not text:
        return 0
    if text in _RANDOM:
        return "normal" if text == "normal" else "uniform"
    try:
        return int(text)
    except ValueError:
        wanted = "'random', 'uniform', 'normal' or a whole number"
        raise _wrong("synthetic_data_initializer", wanted, text) from None


def _wrong(name: str, wanted: str, received: FlagValue) -> FlagsError:
    return FlagsError(f"The flag --{name} in TF_POPLAR_FLAGS takes {wanted}. Received: {received!r}.")
