"""Runs examples of keras.io with and without an `IPUStrategy`'s scope around them, and compares what they show.

    python -m tests.helpers.keras_io_examples CHECKOUT/examples/keras_io vision/mnist_convnet tensorflow/generative/vae

An example runs as it is but for its size and its data: see `keras_io_stand_ins.py`. Nothing of them is part of this
repository. The scope is the only difference between the two runs, as if a user had added three lines. A line for each:

    example                  stock  in scope  difference  steps   ms a step    seconds to the first step
    vision/mnist_convnet        ok        ok       3e-07      9   31 -> 33     1.2 -> 1.4

`difference` is the largest one of logs of `fit` and results of `evaluate` and `predict`, relative to the value where
that is above 1. `steps` ran on the device. Examples that draw random numbers by `tf.random` differ: see docs/keras.md.
Stock Keras adds up the gradients of repeated rows of embeddings too: see docs/gradients.md.

Times are those of stock Keras and of the device. The first `fit` of an example is called twice: a step takes what the
second call took for each step of it, validation included, and the first step comes after what the first took longer.

`--backend jax` runs them with Keras on JAX.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from ipu_tf.device.counters import COUNTERS
from tests.helpers.device_counts import device_work
from tests.helpers.keras_io_stand_ins import SIZES, stand_ins
from tests.helpers.some_ipus import ipus

STEPS = 3
MOST_CALLS = 12
CALLS = ("fit", "evaluate", "predict")


class _EnoughError(BaseException):
    """Ends an example that calls its model again and again."""


@dataclasses.dataclass
class Run:
    """What a run of an example showed.

    Attributes:
        shown: numbers of each call of `fit`, `evaluate` and `predict`, in order.
        error: the traceback of what it raised, or "".
        seconds: that it took.
        steps: that the device ran.
        fits: seconds of the first `fit` and of the same call again.
        fit_steps: that the device ran in the second of them.
    """

    shown: list[tuple[str, dict[str, Any]]] = dataclasses.field(default_factory=list)
    error: str = ""
    seconds: float = 0.0
    steps: int = 0
    fits: tuple[float, float] | None = None
    fit_steps: int = 0

    @property
    def state(self) -> str:
        """The last line of the error, or "ok"."""
        return self.error.strip().splitlines()[-1][:160] if self.error else "ok"

    def call(self, name: str, owner: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls a method of an example's model with fewer steps, and keeps its numbers."""
        method = getattr(owner, name)
        if not isinstance(owner, keras.Model):
            return method(*args, **kwargs)
        if len(self.shown) == MOST_CALLS:
            raise _EnoughError
        if name == "fit":
            kwargs["epochs"] = 1
        for steps in {"steps_per_epoch", "steps", "validation_steps"} & {*kwargs}:
            kwargs[steps] = kwargs[steps] and min(kwargs[steps], STEPS)
        args = tuple(_fewer(value) for value in args)
        kwargs = {key: _fewer(value) for key, value in kwargs.items()}
        found = self._timed(method, *args, **kwargs) if name == "fit" and not self.fits else method(*args, **kwargs)
        numbers = found.history if name == "fit" else found if isinstance(found, dict) else {"values": found}
        self.shown.append((f"{name} of {owner.name}", numbers))
        return found

    def _timed(self, fit: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls `fit` twice and keeps the times; once if its data can be read once only."""
        began = time.monotonic()
        found = fit(*args, **kwargs)
        first = time.monotonic() - began
        if any(isinstance(value, Iterator) for value in (*args, *kwargs.values())):
            return found
        began, before = time.monotonic(), COUNTERS.read()
        found = fit(*args, **kwargs)
        self.fits = first, time.monotonic() - began
        self.fit_steps = COUNTERS.read().since(before).steps
        return found

    def times(self, steps: int) -> tuple[float, float]:
        """Milliseconds of a step, and seconds until the first one ended, if the second `fit` ran so many steps."""
        if not self.fits or not steps:
            return float("nan"), float("nan")
        first, second = self.fits
        return 1e3 * second / steps, first - second + second / steps


def _fewer(value: Any) -> Any:
    return value.take(STEPS) if isinstance(value, tf.data.Dataset) else value


class _Shrunk(ast.NodeTransformer):
    """Rewrites an example: small values for its constants, calls of `fit` and the like through a function.

    Args:
        sizes: new values of variables, by name.
    """

    def __init__(self, sizes: dict[str, Any]) -> None:
        self._sizes = sizes

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        target = node.targets[0]
        if ast.unparse(target).startswith(("os.environ", "os[")):  # the back end is chosen already; `os[...]` is a slip
            return ast.Pass()
        name = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
        if name in self._sizes and isinstance(node.value, (ast.Constant, ast.Tuple, ast.List, ast.BinOp)):
            node.value = ast.parse(repr(self._sizes[name]), mode="eval").body
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        for keyword in node.keywords:
            if keyword.arg == "weights" and isinstance(keyword.value, ast.Constant):
                keyword.value = ast.Constant(None)  # `weights="imagenet"` would be fetched
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in CALLS:
            call = ast.Name("_call_", ast.Load())
            return ast.Call(
                call,
                [ast.Constant(function.attr), function.value, *node.args],
                node.keywords,
            )
        return node


def run(example: pathlib.Path, name: str, in_scope: bool) -> Run:
    """Runs an example in a folder of its own, with the same seed each time."""
    tree = _Shrunk(SIZES[""] | SIZES.get(name, {})).visit(ast.parse(example.read_text(encoding="utf-8")))
    code = compile(ast.fix_missing_locations(tree), str(example), "exec")
    found, began = Run(), time.monotonic()
    keras.utils.set_random_seed(1)
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        stand_ins(name),
        ipus(1) as strategy,
        device_work() as work,
        strategy.scope() if in_scope else _summed_rows(),
    ):
        _execute(code, found)
    found.steps, found.seconds = work.counts.steps, time.monotonic() - began
    keras.utils.clear_session()
    return found


@contextlib.contextmanager
def _summed_rows() -> Iterator[None]:
    """Context in which optimizers of stock Keras get dense gradients of embeddings."""
    stock = keras.optimizers.Optimizer.apply

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        dense = [tf.convert_to_tensor(each) if isinstance(each, tf.IndexedSlices) else each for each in grads]
        return stock(self, dense, trainable_variables)

    with mock.patch.object(keras.optimizers.Optimizer, "apply", apply):
        yield


def _execute(code: types.CodeType, found: Run) -> None:
    try:
        exec(code, {"__name__": "__main__", "_call_": found.call})  # noqa: S102 - the example
    except _EnoughError:
        pass
    except Exception:
        found.error = traceback.format_exc()


def difference(found: Run, wanted: Run) -> float:
    """The largest relative difference of what two runs showed; infinite if they showed other things."""
    worst = 0.0
    if [[*numbers] for _, numbers in found.shown] != [[*numbers] for _, numbers in wanted.shown]:
        return float("inf")
    for (_, ours), (_, theirs) in zip(found.shown, wanted.shown, strict=True):
        for got, expected in zip(keras.tree.flatten(ours), keras.tree.flatten(theirs), strict=True):
            one, other = np.asarray(got, np.float64), np.asarray(expected, np.float64)
            if one.shape != other.shape:
                return float("inf")
            scale = max(1.0, np.abs(other[np.isfinite(other)]).max(initial=0))
            same = np.where(np.isnan(one) & np.isnan(other), 0.0, np.abs(one - other)) / scale
            worst = max(worst, float(np.nan_to_num(same, nan=np.inf).max(initial=0)))
    return worst


def compare(folder: pathlib.Path, name: str, verbose: bool) -> bool:
    """Runs an example both ways and prints its line; returns whether both did the same."""
    example = folder / f"{name}.py"
    stock = run(example, name, in_scope=False)
    ours = Run(error="not run") if stock.error else run(example, name, in_scope=True)
    far = difference(ours, stock) if not ours.error else float("nan")
    (step, wait), (our_step, our_wait) = stock.times(ours.fit_steps), ours.times(ours.fit_steps)
    print(
        f"{name:<70} {stock.state[:40]:<40} {ours.state[:40]:<40} {far:8.0e} {ours.steps:5} "
        f"{step:7.1f} -> {our_step:7.1f} ms {wait:5.1f} -> {our_wait:5.1f} s",
        flush=True,
    )
    if verbose and far > 1e-4:
        print(*zip(stock.shown, ours.shown, strict=False), sep="\n", flush=True)
    if verbose or ours.error not in ("", "not run"):
        print(stock.error or ours.error, flush=True)
    return stock.error != "" or (not ours.error and far < 1e-3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="the examples")
    parser.add_argument("names", nargs="+", help="paths in it, without .py")
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="print what differs, and errors of stock Keras",
    )
    parser.add_argument("--backend", default=keras.backend.backend(), choices=("tensorflow", "jax"), help="Keras's")
    given = parser.parse_args()
    if given.backend != keras.backend.backend():  # Keras reads it when it is imported
        os.execve(sys.executable, sys.orig_argv, os.environ | {"KERAS_BACKEND": given.backend})
    warnings.simplefilter("ignore")
    os.environ["MPLBACKEND"] = "agg"
    results = [compare(given.folder, name, given.verbose) for name in given.names]
    sys.exit(not all(results))
