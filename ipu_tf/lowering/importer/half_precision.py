"""Applies float16 and floating-point exception settings around the importer's rules.

    rule(float16 operands) ──► float16 result        becomes

    widened to float32 ──► the same rule ──► rounded, stochastically if set ──► narrowed: saturated, or NaN

A program without float16 and without exception checks has no `ModuleArithmetic`, and its rules run unchanged.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipu_tf.device.instances.across import program_instances
from ipu_tf.device.memory.hidden_state import SEED, SEED_TYPE, SHARED_SEED
from ipu_tf.device.numerics import exceptions, half
from ipu_tf.device.numerics.exceptions import EXCEPTIONS, EXCEPTIONS_TYPE
from ipu_tf.lowering.importer.arithmetic_ops import (
    is_checked,
    is_elementwise,
    is_ordering,
    only_moves_operands,
    region_kind,
    returns_half,
)
from ipu_tf.lowering.importer.numerics import Numerics, Rounding
from ipu_tf.lowering.jax.jax_private import ir
from ipu_tf.lowering.stablehlo.module import Module, configuration, custom_call_target, walk
from ipu_tf.lowering.stablehlo.needed_hidden_state import ACCUMULATE
from ipu_tf.lowering.stablehlo.op import Op
from ipu_tf.lowering.stablehlo.replica_divergence import varying
from ipu_tf.lowering.tensorflow.stochastic_rounding_scopes import OVERRIDE, OVERRIDES

HALF = np.dtype(np.float16)
_SUMS_OF_REPLICAS = ("ipu.all_reduce", "ipu.reduce_scatter")
_ATTRIBUTES = "mhlo.frontend_attributes"


class _Float32Op(Op):
    """Op whose float16 result types are replaced by float32."""

    __slots__ = ()

    @property
    def results(self) -> list[jax.ShapeDtypeStruct]:
        """Shape and dtype of every tensor result."""
        return [_wide_type(t) for t in super().results]

    @property
    def result(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the first result."""
        return _wide_type(super().result)


@dataclasses.dataclass(frozen=True)
class ModuleArithmetic:
    """Floating-point arithmetic of one module.

    Attributes:
        numerics: the settings.
        replicas: how many replicas run the program, those of other instances too.
        varying: names of values that may differ between replicas; empty where that does not matter.
        places: number of each operation that is checked for exceptions, by TensorFlow's name for it.
        overrides: which ops round stochastically or do not, whatever the settings, by TensorFlow's name.
    """

    numerics: Numerics
    replicas: int = 1
    varying: frozenset[Any] = frozenset()
    places: Mapping[str, int] = dataclasses.field(default_factory=dict)
    overrides: Mapping[str, bool] = dataclasses.field(default_factory=dict)

    def hidden_types(self, operation: Any) -> dict[str, jax.ShapeDtypeStruct]:
        """Returns the hidden state that one op needs."""
        types = {EXCEPTIONS: EXCEPTIONS_TYPE} if self.places and is_checked(operation) else {}
        seed = self.seed_of(operation) if returns_half(operation) else None
        return types | ({seed: SEED_TYPE} if seed else {})

    def seed_of(self, operation: Any) -> str | None:
        """Returns the key of the seed for stochastic rounding of an op's result; None for rounding to nearest."""
        if operation.name == "stablehlo.custom_call" and custom_call_target(operation) in _SUMS_OF_REPLICAS:
            return None  # what replicas sum up together stays the same on all of them
        identical = self.replicas == 1 or not any(name in self.varying for name in operation.results)
        rounding = self.numerics.rounding
        wanted = self._override(operation)
        if wanted is None:
            wanted = rounding is Rounding.STOCHASTIC or (rounding is Rounding.REPLICA_IDENTICAL and identical)
        if not wanted:
            return None
        shared = self.numerics.stable_seeds or rounding is Rounding.REPLICA_IDENTICAL
        return SHARED_SEED if shared and identical and self.replicas > 1 else SEED

    def _override(self, operation: Any) -> bool | None:
        """Returns the setting of the innermost `scopes.stochastic_rounding` around an op, its loop or branch."""
        while operation is not None and operation.name != "func.func":
            wanted = None
            if _ATTRIBUTES in operation.attributes:
                given = ir.DictAttr(operation.attributes[_ATTRIBUTES])
                wanted = OVERRIDES.get(ir.StringAttr(given[OVERRIDE]).value) if OVERRIDE in given else None
            elif self.overrides:
                wanted = self.overrides.get(Op(operation).origin.partition(";")[0])
            if wanted is not None:
                return wanted
            operation = operation.parent
        return None

    def run(self, importer: Any, rule: Callable[..., Any], op: Op, operands: Sequence[Any]) -> Any:
        """Applies an op's rule, rounds its results, and checks them for exceptions."""
        scalars = importer.plain() if region_kind(op.operation) else contextlib.nullcontext()
        with scalars:
            if not returns_half(op.operation):
                results = rule(importer, op, *operands)
                self._check(importer, op, operands, results)
                return results
            with _accumulator_widened(importer, op) as narrow_accumulator:
                kept = only_moves_operands(op.name)
                results = rule(importer, _Float32Op(op.operation), *(operands if kept else map(_widened, operands)))
                leaves, structure = jax.tree.flatten(results)
                rounded = self._rounded(importer, op, operands, leaves)
                narrow_accumulator(rounded)
        return jax.tree.unflatten(structure, rounded)

    def _rounded(self, importer: Any, op: Op, operands: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """Rounds the float32 results of an op to float16."""
        seed, types = self.seed_of(op.operation), op.results
        rounded = []
        for wide, declared in zip(results, types, strict=True):
            if declared.dtype == HALF and seed in importer.hidden:
                drawn = importer.draws[seed] = half.next_key(importer.hidden[seed], importer.draws.get(seed))
                importer.hidden[seed] = drawn.seed
                wide = half.stochastic(wide, drawn.key)
            rounded.append(wide)
        self._check(importer, op, operands, rounded, half.OVERFLOW)
        if op.name == "stablehlo.divide":
            rounded = [jnp.where(operands[1] == 0, np.float32(np.nan), rounded[0])]
        return [
            half.narrowed(wide, self.numerics.nan_on_overflow) if declared.dtype == HALF else wide
            for wide, declared in zip(rounded, types, strict=True)
        ]

    def _check(self, importer: Any, op: Op, operands: Sequence[Any], results: Any, overflow: float = np.inf) -> None:
        """Records the exceptions of an op in the hidden state, if it is checked."""
        if EXCEPTIONS not in importer.hidden or not is_checked(op.operation):
            return
        kinds = self.numerics.exceptions
        floats = [jnp.asarray(_widened(value)) for value in operands if _is_float(value)]
        given = [jnp.asarray(value) for value in jax.tree.leaves(results) if _is_float(value)]
        if is_ordering(op.operation):
            bits = exceptions.comparison_exception_bits(floats[0], floats[1], kinds)
        elif not given:
            bits = exceptions.conversion_exception_bits(floats[0], op.result.dtype, kinds)
        else:
            bits = exceptions.found(op.name, floats, given, kinds, is_elementwise(op.name), overflow)
        place = self.places[op.origin]
        importer.hidden[EXCEPTIONS] = exceptions.noted(importer.hidden[EXCEPTIONS], bits, place)


def with_numerics(module: Module, numerics: Numerics, replicas: int = 1, fed: int = 0) -> Module:
    """Attaches floating-point arithmetic to a module; returns the module itself if the settings do not affect it.

    Args:
        module: the program.
        numerics: the settings.
        replicas: how many replicas run it.
        fed: how many parameters, the first ones, are elements of an infeed.
    """
    if numerics.norm_group > 1:
        module = dataclasses.replace(module, norm_group=numerics.norm_group)
    operations = list(walk(module.main, module.functions))
    checked = [operation for operation in operations if numerics.exceptions and is_checked(operation)]
    if not checked and not any(map(returns_half, operations)):
        return module
    places = {origin: place for place, origin in enumerate(dict.fromkeys(Op(o).origin for o in checked))}
    matters = numerics.stable_seeds or numerics.rounding is Rounding.REPLICA_IDENTICAL
    overrides = module.rounding_overrides()
    everywhere = replicas * program_instances()
    own = varying(module, everywhere, fed) if matters and everywhere > 1 else frozenset()
    arithmetic = ModuleArithmetic(numerics, everywhere, own, places, overrides)
    return dataclasses.replace(module, arithmetic=arithmetic)


def checked_origins(module: Module) -> tuple[str, ...]:
    """Returns the TensorFlow names of the ops that are checked for exceptions, by number."""
    return () if module.arithmetic is None else tuple(module.arithmetic.places)


@contextlib.contextmanager
def _accumulator_widened(importer: Any, op: Op) -> Any:
    """Context manager: makes a gradient accumulator float32; yields the function that stores its rounded sum."""
    if op.name != "stablehlo.custom_call" or custom_call_target(op.operation) != ACCUMULATE:
        yield lambda rounded: None
        return
    key = configuration(op.operation)["key"]
    importer.hidden[key] = _widened(importer.hidden[key])
    yield lambda rounded: importer.hidden.update({key: rounded[0]})


def _widened(value: Any) -> Any:
    """Converts float16 to float32; other values are unchanged. Constants remain NumPy arrays."""
    if getattr(value, "dtype", None) != HALF:
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return value.astype(np.float32)
    return lax.convert_element_type(value, np.float32)


def _wide_type(struct: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(struct.shape, np.dtype(np.float32)) if struct.dtype == HALF else struct


def _is_float(value: Any) -> bool:
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating)
