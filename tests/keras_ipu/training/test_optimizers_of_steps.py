"""Own training steps that call several optimizers, or one several times, on replicas.

What they train is what stock Keras trains on the joined batches, up to the last batches of the data. On both backends.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from concurrent import futures
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

from ipu_tf.emulation import EmulationError
from keras_ipu.training.common.optimizer_calls import optimizer_calls
from tests.helpers.device_counts import device_work
from tests.helpers.random_fits import assert_close
from tests.helpers.some_ipus import ipus

BATCH = 8
ON_JAX = keras.backend.backend() == "jax"
X = np.random.default_rng(0).normal(size=(29, 4)).astype(np.float32)


class Autoencoder(keras.Model):
    """Two models, whose weights a step updates one after the other.

    Args:
        calls: the optimizers of both updates.
        late: whether the gradients of the second update are those after the first.

    Attributes:
        second_for: the size of batches that make the second update; 0 for all.
    """

    second_for = 0

    def __init__(self, calls: list[Any], late: bool) -> None:
        super().__init__()
        self.encoder = keras.Sequential([keras.Input((4,)), layers.Dense(2, "tanh")])
        self.decoder = keras.Sequential([keras.Input((2,)), layers.Dense(4)])
        self.calls, self.late, self.built = calls, late, True
        for optimizer in self.calls:
            optimizer.build(self.trainable_variables)

    def train_step(self, *given: Any) -> Any:
        return self._jax_step(*given) if ON_JAX else self._tensorflow_step(*given)

    def _tensorflow_step(self, data: Any) -> Any:
        first, second = self.calls
        weights = self.trainable_variables
        gradients = self.gradients(data)
        first.apply(gradients[:2], weights[:2])
        if self.second_for not in (0, data.shape[0]):
            return {"loss": ops.mean(data)}
        second.apply((self.gradients(data) if self.late else gradients)[2:], weights[2:])
        return {"loss": ops.mean(data)}

    def gradients(self, data: Any) -> Any:
        """Returns the gradients of all weights."""
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = ops.mean((self.decoder(self.encoder(data)) - data) ** 2)
        return tape.gradient(loss, self.trainable_variables)

    def _jax_step(self, state: Any, data: Any) -> Any:
        import jax

        def loss_of(weights: Any) -> Any:
            code, _ = self.encoder.stateless_call(weights[:2], [], data[0])
            return ops.mean((self.decoder.stateless_call(weights[2:], [], code)[0] - data[0]) ** 2)

        weights, others, slots, metrics = state
        first, second = self.calls
        gradients, nothing = jax.grad(loss_of)(weights), [ops.zeros_like(each) for each in weights]
        weights, slots = first.stateless_apply(slots, [*gradients[:2], *nothing[2:]], weights)
        if self.second_for not in (0, len(data[0])):
            return {"loss": ops.mean(data[0])}, (weights, others, slots, metrics)
        gradients = jax.grad(loss_of)(weights) if self.late else gradients
        own = slots if second is first else [variable.value for variable in second.variables]
        weights, own = second.stateless_apply(own, [*nothing[:2], *gradients[2:]], weights)
        return {"loss": ops.mean(data[0])}, (weights, others, own if second is first else slots, metrics)


class Clipping(keras.optimizers.SGD):
    """Clips gradients itself, by an `apply` of its own."""

    def __init__(self, rate: float, limit: float) -> None:
        super().__init__(rate)
        self.limit = limit

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        return super().apply([ops.clip(each, -self.limit, self.limit) for each in grads], trainable_variables)


CALLS: dict[str, Callable[[float], list[Any]]] = {
    "one optimizer twice": lambda scale: [keras.optimizers.SGD(0.2 / scale)] * 2,
    "two optimizers": lambda scale: [
        keras.optimizers.SGD(0.2 / scale),
        keras.optimizers.SGD(0.4 / scale, clipnorm=0.1 * scale),
    ],
    "a class with an apply of its own": lambda scale: [
        keras.optimizers.SGD(0.2 / scale),
        Clipping(0.4 / scale, 0.05 * scale),
    ],
}
"""The optimizers of both updates, the first of which is the model's.

The gradients of replicas are sums of as many means as `scale` says: rates and limits are scaled.
"""


def compiled(name: str, scale: float = 1.0, late: bool = False) -> Autoencoder:
    """Returns a model that is ready to be trained."""
    keras.utils.set_random_seed(1)
    model = Autoencoder(CALLS[name](scale), late)
    model.compile(model.calls[0])
    return model


def trained(model: Autoencoder, batch_size: int, *parts: np.ndarray) -> Any:
    """Returns the weights after an epoch on each part, and how many updates optimizers made: on JAX, the model's."""
    for part in parts:
        model.fit(part, part if ON_JAX else None, batch_size=batch_size, shuffle=False, verbose=0)
    return model.get_weights(), [int(each.iterations) for each in model.calls[: 1 if ON_JAX else 2]]


@pytest.mark.parametrize(("late", "samples"), [(True, 21), (False, 21), (False, 29)])
@pytest.mark.parametrize("name", CALLS)
def test_every_call_gets_the_gradients_of_all_replicas(name: str, late: bool, samples: int) -> None:
    """The last 5 samples are one batch, the last 13 two: these make one update of each call too."""
    wanted = trained(compiled(name, 1.0, late), 16, X[:16], X[16:samples])
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        found = trained(compiled(name, 2.0, late), BATCH, X[:samples])
    assert work.counts.steps == 2
    assert_close(found, wanted)


@pytest.mark.parametrize("name", CALLS)
def test_gradients_after_an_update_of_the_last_batches(name: str) -> None:
    """Keras on JAX computes them from the weights after it; TensorFlow's step has assigned nothing yet."""
    wanted = trained(compiled(name, late=True), 16, X[:16], X[16:])
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        model = compiled(name, 2.0, late=True)
        if ON_JAX:
            assert_close(trained(model, BATCH, X), wanted)
        else:
            with pytest.raises(
                EmulationError, match=r"depend on weights which \w+ has updated before, in the same step"
            ):
                trained(model, BATCH, X)
    assert work.counts.steps == (2 if ON_JAX else 1)


def test_calls_that_depend_on_the_batch_are_refused() -> None:
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        model = compiled("two optimizers")
        model.second_for = BATCH  # the other one of the last batches has 5 samples
        with pytest.raises(
            EmulationError, match=r"as for the first one\. Received for batch 2: \w+ with \d gradients\."
        ):
            trained(model, BATCH, X)
    assert work.counts.steps == 1


def halving() -> Any:
    """Returns weights that an optimizer with an `apply` of the object's own has trained, and whether it still has it.

    The last 5 samples need a program of their own.
    """
    keras.utils.set_random_seed(1)
    optimizer = keras.optimizers.SGD(0.1)
    stock = optimizer.apply
    optimizer.apply = ours = lambda grads, variables=None: stock([0.5 * each for each in grads], variables)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    model.compile(optimizer, "mse")
    model.fit(X[:21], X[:21, :1], batch_size=16, shuffle=False, verbose=0)
    model.fit(X[:21], X[:21, :1], batch_size=16, shuffle=False, verbose=0)
    return model.get_weights(), vars(optimizer).get("apply") is ours


def test_an_apply_of_the_object_s_own_is_called_in_every_program() -> None:
    wanted = halving()
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        found = halving()
    assert work.counts.programs == 2
    assert_close(found[0], wanted[0])
    assert (found[1], wanted[1]) == (True, True)


def looked_up(optimizer: keras.optimizers.Optimizer) -> None:
    """Has the step call a method that it has from before."""
    name = "stateless_apply" if ON_JAX else "apply"
    object.__setattr__(optimizer, name, functools.partial(getattr(optimizer, name)))


def within_a_function(optimizer: keras.optimizers.Optimizer) -> None:
    """Has an optimizer's updates traced in a function of its own."""
    import tensorflow as tf

    stock = type(optimizer).apply
    object.__setattr__(optimizer, "apply", lambda *given: tf.function(lambda: stock(optimizer, *given))())


CHANGES = [looked_up] if ON_JAX else [within_a_function, looked_up]


@pytest.mark.parametrize("change", CHANGES)
def test_a_call_by_other_means_gets_the_gradients_of_all_replicas(change: Callable[[Any], None]) -> None:
    wanted = trained(compiled("two optimizers"), 16, X[:16], X[16:21])
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        model = compiled("two optimizers", 2.0)
        change(model.calls[1])
        found = trained(model, BATCH, X[:21])
    assert work.counts.steps == 2
    assert_close(found, wanted)


@pytest.mark.parametrize("change", CHANGES)
def test_a_call_by_other_means_is_refused_in_the_last_batches(change: Callable[[Any], None]) -> None:
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        model = compiled("two optimizers")
        change(model.calls[1])
        with pytest.raises(Exception, match=r"Received: a call of \w+ in a function that is traced for itself"):
            trained(model, BATCH, X)
    assert work.counts.steps == 1


def test_methods_of_optimizers_are_handled_in_one_thread_and_are_their_own_afterwards() -> None:
    """So they are where two steps are traced at once."""
    before = [vars(kind).get("build") for kind in keras.optimizers.SGD.__mro__]
    optimizers, handled = [keras.optimizers.SGD() for _ in range(3)], list[Any]()
    with contextlib.ExitStack() as outer, futures.ThreadPoolExecutor(1) as thread:
        outer.enter_context(optimizer_calls({"build": lambda optimizer, stock, given: handled.append(optimizer)}))
        with optimizer_calls({"build": lambda optimizer, stock, given: stock(given)}):
            optimizers[0].build([])
        optimizers[1].build([])
        thread.submit(optimizers[2].build, []).result()
    assert handled == optimizers[1:2]
    assert [optimizer.built for optimizer in optimizers] == [True, False, True]
    assert [vars(kind).get("build") for kind in keras.optimizers.SGD.__mro__] == before
