"""Random filter and bias gradients by the native kernels, for every instruction set, against NumPy in float64.

python -m tests.helpers.native_fuzz --cases 2000 --seed 1
"""

from __future__ import annotations

import argparse

import numpy as np

from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.native.filter_gradient import FilterGradient, filter_gradient
from tests.helpers.library_jit import jit

TOLERANCE = 1e-5


def shapes(rng: np.random.Generator) -> FilterGradient:
    """A small convolution of one to three axes: odd features, groups, strides, dilation, padding that crops."""
    rank, groups = int(rng.integers(1, 4)), int(rng.choice([1, 1, 1, 2, 3, 5, 8, 17]))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(int(n) for n in rng.integers(low, high, rank))

    return FilterGradient(
        images=int(rng.integers(1, 6)),
        in_features=int(rng.choice([1, 1, 2, 3, 4, 5, 7, 9, 13, 27])) * groups,
        out_features=int(rng.choice([1, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 40])) * groups,
        groups=groups,
        input=each(1, 12 if rank < 3 else 6),
        window=each(1, 7),
        output=each(1, 10 if rank < 3 else 5),
        strides=each(1, 4),
        dilation=each(1, 4),
        low=each(-1, 4),
    )


def operands(each: FilterGradient, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A convolution's input and the gradient of its result."""
    x = rng.normal(size=(each.images, *each.input, each.in_features))
    g = rng.normal(size=(each.images, *each.output, each.out_features))
    return x.astype(np.float32), g.astype(np.float32)


def by_numpy(x: np.ndarray, g: np.ndarray, each: FilterGradient) -> np.ndarray:
    """The gradient of the filters in float64, position by position."""
    groups, filters = each.groups, each.in_features // each.groups
    result = np.zeros((*each.window, filters, each.out_features))
    for tap in np.ndindex(*each.window):
        for place in np.ndindex(*each.output):
            axes = zip(place, each.strides, tap, each.dilation, each.low, strict=True)
            at = tuple(o * stride + k * dilation - low for o, stride, k, dilation, low in axes)
            if all(0 <= n < size for n, size in zip(at, each.input, strict=True)):
                seen = x[(slice(None), *at)].reshape(-1, groups, filters).astype(np.float64)
                given = g[(slice(None), *place)].reshape(len(x), groups, -1).astype(np.float64)
                result[tap] += np.einsum("ngi,ngo->igo", seen, given).reshape(filters, -1)
    return result


def fault(each: FilterGradient, rng: np.random.Generator) -> str | None:
    """Returns the fault of the native kernels' result; None if it is right."""
    x, g = operands(each, rng)
    wanted = by_numpy(x, g, each), g.astype(np.float64).reshape(-1, each.out_features).sum(0)
    native = library.loaded()
    assert native is not None
    for level in range(native.level + 1):
        made = jit(lambda x, g, level=level: filter_gradient(x, g, each, bias=True, level=level))(x, g)
        for name, result, right in zip(("filters", "bias"), made, wanted, strict=True):
            error = np.abs(result - right).max() / max(1.0, np.abs(right).max())
            if not error <= TOLERANCE:
                return f"{name} by {library.LEVELS[level]} are {error:.1e} off: {each}"
    return None


def faults(cases: int, seed: int) -> list[str]:
    """Returns the faults of random cases."""
    rng = np.random.default_rng(seed)
    found = [fault(each, rng) for each in (shapes(rng) for _ in range(cases)) if each.fits()]
    return [text for text in found if text is not None]


def main() -> None:
    """Prints the faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    found = faults(asked.cases, asked.seed)
    print("\n".join([*found, f"{asked.cases} cases, {len(found)} faults"]))


if __name__ == "__main__":
    main()
