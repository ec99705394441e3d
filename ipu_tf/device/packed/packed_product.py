"""`packed_product`: x times a matrix of 8-bit or 4-bit weights, with scales and zeros for groups of them."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipu_tf.device.convolution.native import library

#: Products of a part of a call, about, the most parts, and the fewest columns, so that memory is read along lines.
PART, MOST_PARTS, FEWEST_COLUMNS = 3e5, 16, 384
#: As in `packed_shapes.h`: columns, or places of the inner axis, that are computed together.
UNIT = 32


@dataclasses.dataclass(frozen=True)
class PackedForm:
    """How the weights of a product are packed.

    Attributes:
        inner: length of the axis that is summed over.
        columns: of the result.
        bits: of a weight: 8, or 4, of which a byte has two neighbours of the last axis, the first in its lower half.
        turned: whether the weights are `[columns, inner]` instead of `[inner, columns]`.
        block: places of the inner axis that share scale and zero; 0 without either.
        whole: whether x and the result are whole numbers: x those of int8, the result int32.
    """

    inner: int
    columns: int
    bits: int
    turned: bool = False
    block: int = 0
    whole: bool = False

    @property
    def groups(self) -> int:
        """Groups of the inner axis."""
        return -(-self.inner // self.block) if self.block else 1

    def fits(self) -> bool:
        """Returns whether the native kernel has this form: turned, groups are of whole units."""
        whole_units = self.block % UNIT == 0 or self.block >= self.inner
        return self.inner > 0 and self.columns > 0 and (whole_units or not self.turned)

    def words(self, level: int, rows: int) -> np.ndarray:
        """Returns the shapes as `packed_shapes.h` has them, int64."""
        wanted = int(rows * self.inner * self.columns / PART)
        fewest = UNIT if rows > 8 else FEWEST_COLUMNS
        parts = max(1, min(wanted, MOST_PARTS, self.columns // fewest))
        kind = (self.bits, int(self.turned), self.block, int(self.whole))
        return np.array([level, rows, self.inner, self.columns, *kind, parts], np.int64)


def packed_product(
    x: jax.Array, weights: jax.Array, form: PackedForm, *groups: jax.Array, level: int | None = None
) -> jax.Array:
    """Computes `x @ weights`; with groups, `x @ ((weights - zero) * scale)`.

    The native kernel widens weights in registers, so that memory is read as it is packed. Where there is none, they are
    widened in whole.

    Args:
        x: `[rows, inner]`, float32.
        weights: int8, as the form says.
        form: how they are packed.
        *groups: where there are groups, their scale and zero: float32 and int8, `[groups, columns]`, turned
            `[columns, groups]`.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.

    Returns:
        `[rows, columns]`, float32, or int32 where the form is of whole numbers; these are exact.
    """
    if not (library.usable() and form.fits() and x.shape[0]):
        return _plain(x, weights, form, *groups)
    native = library.needed()
    rows, dtype = x.shape[0], jnp.int32 if form.whole else jnp.float32
    sums = [_group_sums(x, form)] if groups else []
    operands = (_turned(x, form) if form.turned else x, weights, *groups, *sums)
    words = form.words(library.level_or_best(level), rows)
    result = jax.ShapeDtypeStruct((rows, form.columns), dtype)
    call = jax.ffi.ffi_call(native.target(library.PACKED_PRODUCT), result, vmap_method="sequential")
    return jnp.asarray(call(*operands, shapes=words))


def _turned(x: jax.Array, form: PackedForm) -> jax.Array:
    """Pads x to whole units; of 4 bits, with the even places of each row before the odd ones."""
    x = jnp.pad(x, ((0, 0), (0, -form.inner % UNIT)))
    return x.reshape(x.shape[0], -1, 2).transpose(0, 2, 1) if form.bits == 4 else x


def _group_sums(x: jax.Array, form: PackedForm) -> jax.Array:
    padded = jnp.pad(x, ((0, 0), (0, form.groups * form.block - form.inner)))
    return padded.reshape(x.shape[0], form.groups, form.block).sum(-1)


def _plain(x: jax.Array, weights: jax.Array, form: PackedForm, *groups: jax.Array) -> jax.Array:
    wide = _unpacked(weights, form) if form.bits == 4 else weights
    contracted = (((1,), (1 if form.turned else 0,)), ((), ()))
    if form.whole:
        return lax.dot_general(x.astype(jnp.int8), wide, contracted, preferred_element_type=jnp.int32)
    wide = wide.astype(jnp.float32)
    if groups:
        axis, place = int(form.turned), np.arange(form.inner) // form.block
        scale, zero = (jnp.take(each, place, axis) for each in groups)
        wide = (wide - zero.astype(jnp.float32)) * scale
    return lax.dot_general(x, wide, contracted)


def _unpacked(weights: jax.Array, form: PackedForm) -> jax.Array:
    """Unpacks 4-bit numbers, into int8."""
    pairs = jnp.stack([(weights << 4) >> 4, weights >> 4], -1)
    return pairs.reshape(weights.shape[0], -1)[:, : form.inner if form.turned else form.columns]
