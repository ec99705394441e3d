"""Gradient accumulation in stock Keras: the optimizer is called with the sum or mean of several steps' gradients."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def install(model: Any) -> None:
    """Gives a class of models the options with which programs for IPUs set the accumulation count."""
    make = model.make_train_function

    def make_train_function(self: Any, *args: Any, **options: Any) -> Any:
        count, method = getattr(self, "_accumulation", (1, "SUM"))
        if count > 1 and not hasattr(self.optimizer, "accumulated"):
            accumulate(self.optimizer, count, mean=method != "SUM")
        return make(self, *args, **options)

    model.make_train_function = make_train_function
    model.set_gradient_accumulation_options = model.set_pipelining_options = _set_options


def _set_options(
    self: Any,
    gradient_accumulation_steps_per_replica: int | None = None,
    gradient_accumulation_reduction_method: Any = "SUM",
    **options: Any,
) -> None:
    method = getattr(gradient_accumulation_reduction_method, "name", gradient_accumulation_reduction_method)
    self._accumulation = gradient_accumulation_steps_per_replica or 1, str(method).upper()


def accumulate(optimizer: Any, count: int, mean: bool) -> None:
    """Has an optimizer update weights in each `count`th call, by the gradients of as many."""
    apply = optimizer.apply_gradients
    steps = tf.Variable(0, trainable=False)
    sums: list[tf.Variable] = []

    def apply_gradients(grads_and_vars: Any, **options: Any) -> None:
        pairs = list(grads_and_vars)
        with tf.init_scope():
            if not sums:
                sums.extend(tf.Variable(tf.zeros(v.shape, v.dtype), trainable=False) for _, v in pairs)
        for accumulated, (gradient, _) in zip(sums, pairs, strict=True):
            accumulated.assign_add(tf.convert_to_tensor(gradient))
        steps.assign_add(1)

        def update() -> None:
            scale = 1 / count if mean else 1.0
            apply([(scale * s, v) for s, (_, v) in zip(sums, pairs, strict=True)], **options)
            for accumulated in sums:
                accumulated.assign(tf.zeros_like(accumulated))

        tf.cond(tf.equal(steps % count, 0), update, lambda: None)

    optimizer.apply_gradients = apply_gradients
    optimizer.accumulated = True
