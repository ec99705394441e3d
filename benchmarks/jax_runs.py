"""The workloads written in JAX by hand: a jitted step in a Python loop, and `lax.scan` over the steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.workload import CLASSES, Workload, random_batches

State = dict[str, Any]
"""`params`, `moments` (Adam's, else empty), `step`, `key`, and the sums of the losses and of the right answers."""
Run = Callable[[], float]


def python_loop(workload: Workload) -> Run:
    """One call of a jitted step for each batch; the state is donated, so that it is updated in place."""
    step = jax.jit(step_of(workload), donate_argnums=0)
    images, labels = random_batches(workload)
    state = first_state(workload)

    def run() -> float:
        nonlocal state
        for i in range(workload.steps):
            state, loss = step(state, (images[i % workload.batches], labels[i % workload.batches]))
        return float(loss)

    return run


def scan(workload: Workload) -> Run:
    """One call of a jitted `lax.scan` for each pass over the batches, which lie on the device."""
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


def step_of(workload: Workload) -> Callable[[State, Any], tuple[State, jax.Array]]:
    """A training step: `(state, (images, labels)) -> (state, loss)`."""
    forward, update = FORWARD[workload.name], UPDATE[workload.name]

    def loss_of(params: Any, key: jax.Array, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = forward(params, key, images)
        loss = -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(logits), axis=-1))
        return loss, jnp.sum(jnp.argmax(logits, -1) == jnp.argmax(labels, -1))

    def step(state: State, batch: Any) -> tuple[State, jax.Array]:
        key, dropout_key = jax.random.split(state["key"])
        (loss, right), gradients = jax.value_and_grad(loss_of, has_aux=True)(state["params"], dropout_key, *batch)
        number = state["step"] + 1
        params, moments = update(state["params"], gradients, state["moments"], number)
        sums = {"losses": state["losses"] + loss, "right": state["right"] + right}
        return {"params": params, "moments": moments, "step": number, "key": key, **sums}, loss

    return step


def first_state(workload: Workload) -> State:
    """Where training starts: Glorot's uniform weights, biases of zero."""
    random = np.random.default_rng(0)
    params = []
    for shape in SHAPES[workload.name]:
        field = int(np.prod(shape[:-2]))
        limit = np.sqrt(6.0 / (field * (shape[-2] + shape[-1])))
        weights = random.uniform(-limit, limit, shape).astype(np.float32)
        params.append((jnp.asarray(weights), jnp.zeros(shape[-1], jnp.float32)))
    moments = [jax.tree.map(jnp.zeros_like, params) for _ in range(2)] if workload.name == "dense" else []
    zeros = {"step": jnp.int32(0), "losses": jnp.float32(0), "right": jnp.int32(0)}
    return {"params": params, "moments": moments, "key": jax.random.key(0), **zeros}


def cnn_forward(params: Any, key: jax.Array, images: jax.Array) -> jax.Array:
    """The logits of the reference network."""
    keys = jax.random.split(key, 3)
    x = jax.nn.relu(_convolution(images, params[0], "SAME"))
    x = jax.nn.relu(_convolution(x, params[1], "VALID"))
    x = _dropout(keys[0], _pooled(x), 0.25)
    x = jax.nn.relu(_convolution(x, params[2], "SAME"))
    x = jax.nn.relu(_convolution(x, params[3], "VALID"))
    x = _dropout(keys[1], _pooled(x), 0.25).reshape(len(images), -1)
    x = _dropout(keys[2], jax.nn.relu(x @ params[4][0] + params[4][1]), 0.5)
    return x @ params[5][0] + params[5][1]


def dense_forward(params: Any, key: jax.Array, images: jax.Array) -> jax.Array:
    """The logits of one hidden layer."""
    hidden = jax.nn.relu(images @ params[0][0] + params[0][1])
    return hidden @ params[1][0] + params[1][1]


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


def _convolution(x: jax.Array, layer: Any, padding: str) -> jax.Array:
    weights, biases = layer
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, weights, (1, 1), padding, dimension_numbers=layout) + biases


def _pooled(x: jax.Array) -> jax.Array:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _dropout(key: jax.Array, x: jax.Array, rate: float) -> jax.Array:
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0.0)


#: The weights' shapes, layer by layer.
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "cnn": [(3, 3, 3, 32), (3, 3, 32, 32), (3, 3, 32, 64), (3, 3, 64, 32), (1152, 512), (512, CLASSES)],
    "dense": [(784, 128), (128, CLASSES)],
}
FORWARD = {"cnn": cnn_forward, "dense": dense_forward}
UPDATE = {"cnn": sgd, "dense": adam}
