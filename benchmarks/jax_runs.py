"""Benchmark workloads in hand-written JAX: a jitted step in a Python loop, and `lax.scan` over the steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.jax_models import forward, stats_of, weights_of
from benchmarks.workload import Workload, random_batches

State = dict[str, Any]
"""`params`, `moments` (Adam's, else empty), `stats`, `step`, `key`, and the sums of the losses and right answers."""
Run = Callable[[], float]


def python_loop(workload: Workload, task: str) -> Run:
    """One call of a jitted step for each batch; "train" donates the state, so that it is updated in place."""
    return {"train": training, "predict": predictions}[task](workload)


def training(workload: Workload) -> Run:
    """A call of a jitted training step for each batch."""
    step = jax.jit(step_of(workload), donate_argnums=0)
    samples, labels = random_batches(workload)
    state = first_state(workload)

    def run() -> float:
        nonlocal state
        for i in range(workload.steps):
            state, loss = step(state, (samples[i % workload.batches], labels[i % workload.batches]))
        return float(loss)

    return run


def scan(workload: Workload, task: str) -> Run:
    """One call of a jitted `lax.scan` for each pass over the batches, which lie on the device."""
    assert task == "train", f"By hand, a scan only trains. Wanted: {task}."
    step = step_of(workload)
    passed = jax.jit(lambda state, batches: jax.lax.scan(step, state, batches), donate_argnums=0)
    batches = jax.device_put(random_batches(workload))
    state = first_state(workload)

    def run() -> float:
        nonlocal state
        for _ in range(workload.scan_steps // workload.batches):
            state, losses = passed(state, batches)
        return float(losses[-1])

    return run


def predictions(workload: Workload) -> Run:
    """A call of a jitted forward pass for each batch; the probabilities are brought to the host."""
    logits, params, stats = forward(workload), weights_of(workload), stats_of(workload)
    passed = jax.jit(lambda p, x: jax.nn.softmax(logits(p, stats, jax.random.key(0), x)[0]))
    samples, _ = random_batches(workload)

    def run() -> float:
        given = [passed(params, samples[i % workload.batches]) for i in range(workload.steps)]
        return float(jax.device_get(given)[-1].sum())

    return run


def step_of(workload: Workload) -> Callable[[State, Any], tuple[State, jax.Array]]:
    """A training step: `(state, (samples, labels)) -> (state, loss)`."""
    logits_of, update = forward(workload), UPDATE[workload.optimizer]

    def loss_of(params: Any, stats: Any, key: jax.Array, samples: jax.Array, labels: jax.Array) -> Any:
        logits, stats = logits_of(params, stats, key, samples)
        loss = -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(logits), axis=-1))
        return loss, (stats, jnp.sum(jnp.argmax(logits, -1) == jnp.argmax(labels, -1)))

    def step(state: State, batch: Any) -> tuple[State, jax.Array]:
        key, dropout_key = jax.random.split(state["key"])
        (loss, (stats, right)), gradients = jax.value_and_grad(loss_of, has_aux=True)(
            state["params"], state["stats"], dropout_key, *batch
        )
        number = state["step"] + 1
        params, moments = update(state["params"], gradients, state["moments"], number)
        sums = {"losses": state["losses"] + loss, "right": state["right"] + right}
        return {"params": params, "moments": moments, "stats": stats, "step": number, "key": key, **sums}, loss

    return step


def first_state(workload: Workload) -> State:
    """Returns the initial state: Glorot uniform weights, biases of zero."""
    params = weights_of(workload)
    moments = [jax.tree.map(jnp.zeros_like, params) for _ in range(2)] if workload.optimizer == "adam" else []
    zeros = {"step": jnp.int32(0), "losses": jnp.float32(0), "right": jnp.int32(0)}
    return {"params": params, "moments": moments, "stats": stats_of(workload), "key": jax.random.key(0), **zeros}


def sgd(params: Any, gradients: Any, moments: Any, number: jax.Array) -> tuple[Any, Any]:
    """Plain gradient descent at the reference's rate."""
    return jax.tree.map(lambda p, g: p - 0.016 * g, params, gradients), moments


def adam(params: Any, gradients: Any, moments: Any, number: jax.Array) -> tuple[Any, Any]:
    """Adam with Keras's default settings."""
    first = jax.tree.map(lambda m, g: m + 0.1 * (g - m), moments[0], gradients)
    second = jax.tree.map(lambda v, g: v + 0.001 * (g * g - v), moments[1], gradients)
    rate = 0.001 * jnp.sqrt(1 - 0.999**number) / (1 - 0.9**number)
    params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-7), params, first, second)
    return params, [first, second]


UPDATE = {"sgd": sgd, "adam": adam}
