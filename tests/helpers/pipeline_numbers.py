"""Grid of all kinds of pipeline, against plain gradient accumulation written in plain TensorFlow.

`python -m tests.helpers.pipeline_numbers` runs the whole grid, on four JAX devices unless `XLA_FLAGS` makes more:
schedules x recomputation x mappings x replicas x micro-batches on three models. `test_pipeline_numbers.py` runs a part
of it.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import os
import random
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.ops.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, RecomputationMode, pipeline
from ipu_tf.pipeline import PipelineShape, Schedule, overlap_length
from tests.helpers.some_ipus import ipus

tf1 = tf.compat.v1
UPDATES, STAGES, RATE = 5, 4, 0.05
THEN, WITH = RecomputationMode.RecomputeThenBackpropagate, RecomputationMode.RecomputeAndBackpropagateInterleaved

Values = dict[str, np.ndarray]
Stage = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """One way to run one model."""

    model: str
    schedule: PipelineSchedule
    recomputation: RecomputationMode | None
    mapping: tuple[int, ...]
    replicas: int
    count: int


def weight(name: str, shape: Sequence[int], value: float | None = None, trainable: bool = True) -> Any:
    """A variable of the graph's; its first value depends on its name alone."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    first = rng.normal(size=shape) / np.sqrt(shape[0]) if value is None else np.full(shape, value)
    with tf1.variable_scope("model", reuse=tf1.AUTO_REUSE, use_resource=True):
        return tf1.get_variable(name, initializer=first.astype(np.float32), trainable=trainable)


def dense(stage: int, x: Any) -> Any:
    """A dense layer."""
    return tf.tanh(x @ weight(f"kernel{stage}", (6, 6)) + weight(f"bias{stage}", (6,), 0.1))


def convolution(stage: int, x: Any) -> Any:
    """A convolution and a batch normalization, whose moving mean every micro-batch changes."""
    x = tf.nn.conv2d(x, weight(f"kernel{stage}", (3, 3, 2, 2)), 1, "SAME")
    mean, variance = tf.nn.moments(x, [0, 1, 2])
    moving = weight(f"moving{stage}", (2,), 0.0, trainable=False)
    with tf.control_dependencies([moving.assign(0.9 * moving + 0.1 * mean)]):
        x = tf.nn.batch_normalization(
            x, mean, variance, weight(f"offset{stage}", (2,), 0.1), weight(f"scale{stage}", (2,), 1.0), 1e-3
        )
    return tf.nn.relu(x)


def transformer(stage: int, x: Any) -> Any:
    """Attention and two dense layers, each normalized and added to what goes in."""
    n = normalized(f"attention{stage}", x)
    q, k, v = (n @ weight(f"{kind}{stage}", (6, 6)) for kind in ("query", "key", "value"))
    x += tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 6**0.5) @ v @ weight(f"out{stage}", (6, 6))
    hidden = tf.nn.gelu(normalized(f"dense{stage}", x) @ weight(f"wide{stage}", (6, 12)))
    return x + hidden @ weight(f"narrow{stage}", (12, 6))


def normalized(name: str, x: Any) -> Any:
    """A layer normalization."""
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(
        x, mean, variance, weight(f"{name}_offset", (6,), 0.0), weight(f"{name}_scale", (6,), 1.0), 1e-3
    )


MODELS: dict[str, tuple[Callable[[int, Any], Any], tuple[int, ...]]] = {
    "dense": (dense, (4, 6)),
    "convolution": (convolution, (3, 5, 5, 2)),
    "transformer": (transformer, (2, 4, 6)),
}


def stages(model: str) -> list[Stage]:
    """The stages of a model; the last gives the loss."""
    layer, _ = MODELS[model]

    def one(stage: int, x: Any) -> Any:
        x = layer(stage, x)
        return x if stage < STAGES - 1 else tf.reduce_mean((x - 0.5) ** 2)

    return [functools.partial(one, stage) for stage in range(STAGES)]


def samples(model: str, count: int) -> np.ndarray:
    """Micro-batches."""
    return np.random.default_rng(7).normal(size=(count, *MODELS[model][1])).astype(np.float32)


class Normed(tf1.train.MomentumOptimizer):  # type: ignore[name-defined]
    """Momentum that notes the norm of the gradients that it is given, of each update, the last one at the end."""

    def __init__(self, count: int) -> None:
        super().__init__(RATE / count, 0.9)

    def apply_gradients(self, pairs: Any, *args: Any, **named: Any) -> Any:
        pairs = list(pairs)
        norms = weight("norms", (UPDATES,), 0.0, trainable=False)
        norm = tf.linalg.global_norm([gradient for gradient, _ in pairs])
        noted = norms.assign(tf.concat([norms[1:], [norm]], 0))
        return tf.group(noted, super().apply_gradients(pairs, *args, **named))


def piped(case: Case) -> tuple[np.ndarray, Values]:
    """Runs a case; returns the outfeed's losses and each variable."""
    total = UPDATES * case.count * case.replicas
    out = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    needed = 1 << max(case.mapping).bit_length()
    with ipus(needed * case.replicas), tf.Graph().as_default():
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(
            tf.data.Dataset.from_tensor_slices(samples(case.model, total)).repeat()
        )

        def optimizer() -> Any:
            normed = Normed(case.count)
            return normed if case.replicas == 1 else ipu.optimizers.CrossReplicaOptimizer(normed)

        def program() -> Any:
            return pipeline(
                stages(case.model),
                case.count,
                repeat_count=UPDATES,
                infeed_queue=queue,
                outfeed_queue=out,
                outfeed_loss=True,
                optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer(), loss),
                device_mapping=list(case.mapping),
                pipeline_schedule=case.schedule,
                recomputation_mode=case.recomputation,
            )

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(program, [])
        dequeued = out.dequeue()
        with tf1.Session() as session:
            session.run([tf1.global_variables_initializer(), queue.initializer])
            session.run(run)
            return np.ravel(session.run(dequeued)), {v.op.name: session.run(v) for v in tf1.global_variables()}


def plain(model: str, count: int, replicas: int, dropped: int | None = None) -> tuple[np.ndarray, Values]:
    """The same in plain TensorFlow: micro-batch by micro-batch, sums of gradients, momentum written out.

    Args:
        model: which.
        count: micro-batches to an update.
        replicas: how many take turns; their gradients are averaged, and moving averages are those of the first.
        dropped: a micro-batch of each update whose gradient is left out.
    """
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, MODELS[model][1])
        loss: Any = x
        for stage in stages(model):
            loss = stage(loss)
        trained = tf1.trainable_variables()
        moving = [v for v in tf1.global_variables() if v not in trained]
        gradients = tf.gradients(loss, trained)
        session.run(tf1.global_variables_initializer())
        data = samples(model, UPDATES * count * replicas).reshape(UPDATES, count, replicas, *MODELS[model][1])
        slots = [np.zeros(v.shape, np.float32) for v in trained]
        losses, norms = [], []
        for update in data:
            sums = [np.zeros(v.shape, np.float32) for v in trained]
            for number, replica in itertools.product(range(count), range(replicas)):
                before = session.run(moving)
                shown, found = session.run([loss, gradients], {x: update[number, replica]})
                losses.append(shown)
                sums = [a + g / replicas * (number != dropped) for a, g in zip(sums, found, strict=True)]
                for variable, value in zip(moving, before, strict=True):
                    if replica:
                        variable.load(value, session)
            norms.append(np.sqrt(sum(np.sum(np.square(s)) for s in sums)))
            for place, variable in enumerate(trained):
                slots[place] = 0.9 * slots[place] + sums[place]
                variable.load(session.run(variable) - RATE / count * slots[place], session)
        values = {v.op.name: session.run(v) for v in tf1.global_variables()}
        values |= {f"{v.op.name}/Momentum": slot for v, slot in zip(trained, slots, strict=True)}
        return np.array(losses), {**values, "model/norms": np.array(norms)}


plain_once = functools.lru_cache(maxsize=None)(plain)


def differences(found: tuple[np.ndarray, Values], wanted: tuple[np.ndarray, Values]) -> dict[str, float]:
    """By what share of its largest number each variable, and the losses, differ; the names have to be the same."""
    assert set(found[1]) == set(wanted[1]), set(found[1]) ^ set(wanted[1])
    pairs = {name: (found[1][name], wanted[1][name]) for name in wanted[1]} | {"losses": (found[0], wanted[0])}
    return {
        name: float(np.max(np.abs(one - other)) / max(np.max(np.abs(other)), 1e-30))
        for name, (one, other) in pairs.items()
    }


def worst(case: Case) -> tuple[float, str]:
    """The largest difference of a case from plain accumulation, and where: of losses, variables, and norms.

    Of momentum a tenth counts: what nearly cancels in the gradient of attention has fewer digits than float32 has.
    """
    found = differences(piped(case), plain_once(case.model, case.count, case.replicas))
    return max((size / (10 if name.endswith("/Momentum") else 1), name) for name, size in found.items())


def grid(models: Sequence[str] = tuple(MODELS)) -> list[Case]:
    """All cases: what a schedule does not support is left out."""
    cases = []
    for schedule, mapping in itertools.product(PipelineSchedule, [(0, 1, 2, 3), (0, 0, 0, 0), (0, 1, 1, 0)]):
        if schedule is PipelineSchedule.Interleaved and len(set(mapping)) < STAGES:
            continue
        divisor = overlap_length(Schedule(int(schedule)), PipelineShape(STAGES, mapping))
        counts = sorted({divisor, 4 * STAGES})
        rest = itertools.product(models, (None, THEN, WITH), (1, 2), counts)
        cases += [Case(model, schedule, mode, mapping, replicas, count) for model, mode, replicas, count in rest]
    return cases


def main() -> int:
    """Runs the grid, in an order that makes a part of it a sample; exit code 1 if a case differs by more than 1e-5."""
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.pipeline_numbers", description=__doc__)
    parser.add_argument("--model", choices=list(MODELS), action="append", help="only this model; may be repeated")
    parser.add_argument("--replicas", type=int, choices=[1, 2], help="only cases with so many replicas")
    parser.add_argument("--first", type=int, default=0, help="how many cases to leave out, from the first on (0)")
    chosen = parser.parse_args()
    if "--xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
        return subprocess.run(
            [sys.executable, "-m", "tests.helpers.pipeline_numbers", *sys.argv[1:]], env=environment
        ).returncode
    cases = [c for c in grid(chosen.model or tuple(MODELS)) if chosen.replicas in (None, c.replicas)]
    bad, start, largest = 0, time.monotonic(), 0.0
    random.Random(0).shuffle(cases)
    for number, case in list(enumerate(cases, 1))[chosen.first :]:
        size, name = worst(case)
        bad, largest = bad + (size > 1e-5), max(largest, size)
        if size > 1e-5 or number % 10 == 0:
            print(f"{time.monotonic() - start:7.1f} s  {number}/{len(cases)}  {size:.1e} in {name}  {case}", flush=True)
    print(f"{max(0, len(cases) - chosen.first)} cases, {bad} beyond 1e-5, the largest difference is {largest:.1e}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
