"""Refusals by the device show the line of the user's program, however the op is run."""

from __future__ import annotations

import random
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.device.errors import InfeedExhausted
from ipu_tf.device.source_lines import user_lines
from ipu_tf.lowering.importer import interpreter
from ipu_tf.ops.pipelining_ops import OptimizerFunctionOutput, pipeline
from tests.helpers.some_ipus import ipus

tf1 = tf.compat.v1
Refused = Callable[[tf.Tensor], tf.Tensor]
FILE = Path(__file__)
SAMPLES = 48
"""Number of pairs of a refusal and a way to run it that are drawn."""


def python(x: tf.Tensor) -> tf.Tensor:
    y = tf.py_function(lambda value: value, [x], tf.float32)  # refused: python
    return x + tf.ensure_shape(y, x.shape)


def mask(x: tf.Tensor) -> tf.Tensor:
    some = tf.boolean_mask(x, x > 0.5)  # refused: mask
    return x + tf.cast(tf.size(some), tf.float32)


def unique(x: tf.Tensor) -> tf.Tensor:
    values, _ = tf.unique(tf.reshape(x, [-1]))  # refused: unique
    return x + tf.cast(tf.size(values), tf.float32)


def where(x: tf.Tensor) -> tf.Tensor:
    return x + tf.reduce_sum(
        tf.cast(tf.where(x > 0.5), tf.float32)  # refused: where
    )


def strings(x: tf.Tensor) -> tf.Tensor:
    return x + tf.strings.to_number(tf.strings.as_string(x))  # refused: strings


def eigenvalues(x: tf.Tensor) -> tf.Tensor:
    values, _ = tf.linalg.eig(tf.ones([2, 2]) * tf.reduce_sum(x))  # refused: eigenvalues
    return x + tf.reduce_sum(tf.math.real(values))


def steps(x: tf.Tensor) -> tf.Tensor:
    count = tf.cast(tf.reduce_sum(x), tf.int32)
    return x + tf.cast(tf.reduce_sum(tf.range(count)), tf.float32)  # refused: steps


def filled(x: tf.Tensor) -> tf.Tensor:
    return x + tf.reduce_sum(tf.fill([tf.cast(tf.reduce_sum(x), tf.int32)], 1.0))  # refused: filled


def table(x: tf.Tensor) -> tf.Tensor:
    pairs = tf.lookup.KeyValueTensorInitializer([1], [2])  # a program cannot make a table either
    found = tf.lookup.StaticHashTable(pairs, 0).lookup(tf.cast(x, tf.int32))  # refused: table
    return x + tf.cast(found, tf.float32)


REFUSED: dict[str, Refused] = {
    function.__name__: function
    for function in (python, mask, unique, where, strings, eigenvalues, steps, filled, table)
}


def line_of(name: str) -> int:
    """The line of this file that a refusal is marked at."""
    lines = FILE.read_text().splitlines()
    [found] = [number for number, line in enumerate(lines, 1) if line.endswith(f"# refused: {name}")]
    return found


X, Y = np.linspace(0.1, 0.9, 16, dtype=np.float32).reshape(8, 2), np.ones((8, 2), np.float32)
START = tf.constant([0.2, 0.8])


def as_run(function: Refused) -> None:
    ipu.ipu_strategy.IPUStrategy().run(tf.function(function), args=[START])


def in_function(function: Refused) -> None:
    inner = tf.function(lambda x: tf.function(function)(x) * 2.0)
    as_run(lambda x: inner(x) + 1.0)


def in_loop(function: Refused) -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            x = function(x)
        return x

    as_run(program)


def in_branch(function: Refused) -> None:
    as_run(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: function(x), lambda: x))


def in_repeat(function: Refused) -> None:
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(START).repeat())
    as_run(lambda x: ipu.loops.repeat(3, lambda total, y: total + function(y), [x], queue))


def compiled_in_function(function: Refused) -> None:
    @tf.function(autograph=False)
    def program(x: tf.Tensor) -> Any:
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            return ipu.ipu_compiler.compile(function, [x])

    program(START)


def compiled_in_session(function: Refused) -> None:
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [2])
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            result = ipu.ipu_compiler.compile(function, [x])
        session.run(tf1.global_variables_initializer())
        session.run(result, {x: [0.2, 0.8]})


def looped_in_session(function: Refused) -> None:
    compiled_in_session(lambda x: ipu.loops.repeat(3, function, [x]))


def layer_of(function: Refused) -> keras.layers.Layer:
    class Refuses(keras.layers.Layer):
        """Refuses in its call."""

        def call(self, x: Any) -> Any:
            return tf.ensure_shape(function(x), x.shape)

    return Refuses()


def fitted(model: keras.Model, method: str = "fit") -> None:
    arguments = (X,) if method == "predict" else (X, Y)
    getattr(model, method)(*arguments, batch_size=2, verbose=0)


def model_of(*layers: keras.layers.Layer, stages: list[int] | None = None, **options: Any) -> keras.Model:
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((2,)), *layers, keras.layers.Dense(2)])
        if stages is not None:
            model.set_pipeline_stage_assignment(stages)
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        model.compile("sgd", **{"loss": "mse", "steps_per_execution": 4, **options})
    return model


def in_loss(function: Refused) -> None:
    fitted(model_of(loss=lambda y, z: tf.reduce_mean(tf.square(y - function(z)))))


def in_metric(function: Refused) -> None:
    fitted(model_of(metrics=[lambda y, z: tf.reduce_mean(function(z))]), "evaluate")


def in_train_step(function: Refused) -> None:
    class Own(keras.Model):
        """Trains with a step of its own."""

        def train_step(self, data: Any) -> Any:
            function(data[0])
            return super().train_step((function(data[0]), data[1]))

    with ipu.ipu_strategy.IPUStrategy().scope():
        inputs = keras.Input((2,))
        model = Own(inputs, keras.layers.Dense(2)(inputs))
        model.compile("sgd", "mse")
    fitted(model)


def in_keras_stage(function: Refused) -> None:
    with ipus(2):
        fitted(model_of(keras.layers.Dense(2), layer_of(function), stages=[0, 0, 1]))


def in_stage(function: Refused) -> None:
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(START).repeat())
    rows = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    weight = tf.Variable([1.0, 2.0])

    def trained(loss: tf.Tensor) -> OptimizerFunctionOutput:
        return OptimizerFunctionOutput(tf1.train.GradientDescentOptimizer(0.1), loss)

    def program() -> None:
        stages = [lambda x: x * weight, lambda x: tf.reduce_sum(function(x))]
        pipeline(stages, 4, infeed_queue=queue, outfeed_queue=rows, optimizer_function=trained)

    with ipus(2) as strategy:
        strategy.run(tf.function(program, autograph=False))


RUNS: dict[str, Callable[[Refused], None]] = {
    **{
        function.__name__: function
        for function in (
            as_run,
            in_function,
            in_loop,
            in_branch,
            in_repeat,
            compiled_in_function,
            compiled_in_session,
            looped_in_session,
            in_loss,
            in_metric,
            in_train_step,
            in_keras_stage,
        )
    },
    "fit": lambda function: fitted(model_of(layer_of(function))),
    "evaluate": lambda function: fitted(model_of(layer_of(function)), "evaluate"),
    "predict": lambda function: fitted(model_of(layer_of(function)), "predict"),
}
PAIRS = [(refused, run) for refused in REFUSED for run in RUNS]
DRAWN = sorted(random.Random(8).sample(PAIRS, SAMPLES))


@pytest.mark.parametrize(("refused", "run"), DRAWN)
def test_a_refusal_shows_the_line(refused: str, run: str) -> None:
    with ipus(1), pytest.raises(Exception) as raised:  # noqa: PT011 - of many types
        RUNS[run](REFUSED[refused])
    line = FILE.read_text().splitlines()[line_of(refused) - 1].strip()
    assert f'File "{FILE}", line {line_of(refused)}, in {refused}\n' in str(raised.value)
    assert line in str(raised.value)


def marked(text: str, name: str) -> bool:
    """Whether a message shows the line of this file that is marked with a name."""
    return f'File "{FILE}", line {line_of(name)}, in ' in text


def captured_table() -> Any:
    found = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2]), 0)

    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(found.lookup(tf.cast(x, tf.int32)), tf.float32)  # refused: captured table

    as_run(program)


def captured_queue() -> None:
    numbers = tf.queue.FIFOQueue(3, [tf.float32], [[]])

    def program(x: tf.Tensor) -> tf.Tensor:
        return x + numbers.dequeue()  # refused: captured queue

    as_run(program)


def placed_by_hand() -> None:
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [2])
        with tf.device("/device:IPU:0"):
            y = x + tf.cast(tf.size(tf.unique(x)[0]), tf.float32)  # refused: placed by hand
        session.run(y, {x: [0.2, 0.8]})


def placed_apart() -> None:
    with tf.Graph().as_default(), tf1.Session() as session:
        tf1.disable_control_flow_v2()

        def body(x: tf.Tensor) -> tf.Tensor:
            with tf.device("/device:IPU:0"):
                y = x * 2.0
            with tf.device("/device:IPU:1"):
                return y + 1.0  # refused: placed apart

        try:
            session.run(tf.while_loop(lambda x: x < 9.0, body, [tf.constant(1.0)]))
        finally:
            tf1.enable_control_flow_v2()


def called_on_the_host() -> None:
    @tf.function
    def program(x: tf.Tensor) -> tf.Tensor:
        with tf.device("/device:IPU:0"):
            return x * 2.0  # refused: called on the host

    program(START)


def doubles() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(x, tf.float64)  # refused: doubles

    as_run(program)


def eagerly() -> None:
    with tf.device("/device:IPU:0"):
        tf.unique(START)  # refused: eagerly


def other_replicas() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        return ipu.ops.all_to_all_op.all_gather(x, 5)  # refused: other replicas

    as_run(program)


def no_loop() -> None:
    with tf.Graph().as_default(), tf1.Session() as session:

        def program() -> Any:
            weight = tf1.get_variable("weight", [], use_resource=True)
            optimizer = ipu.optimizers.GradientAccumulationOptimizerV2(tf1.train.GradientDescentOptimizer(0.1), 2)
            return optimizer.minimize(weight * 2.0)  # refused: no loop

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            train = ipu.ipu_compiler.compile(program, [])
        session.run(tf1.global_variables_initializer())
        session.run(train)


def of_gradient() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.exp(x) * tf.boolean_mask(x, x > 0.5)[0])  # refused: of gradient
        return tape.gradient(loss, x)

    as_run(program)


def of_keras() -> None:
    hashes = keras.Sequential([keras.layers.Hashing(4), keras.layers.Rescaling(1.0)])
    trained = keras.layers.Dense(2)  # what comes after it cannot run on the host
    model = model_of(trained, keras.layers.Lambda(lambda x: x + hashes(x)))  # refused: of keras
    model.fit(X, Y, batch_size=2, verbose=0)


def of_accumulated_gradients() -> None:
    rows = keras.layers.Lambda(
        lambda x: tf.reshape(tf.py_function(lambda y: y, [x], tf.float32), [-1, 2])  # refused: of accumulated gradients
    )
    model = model_of(keras.layers.Dense(2), rows)
    model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=4)
    model.fit(X, Y, batch_size=2, verbose=0)


OTHERS = (
    captured_table,
    captured_queue,
    placed_by_hand,
    placed_apart,
    called_on_the_host,
    doubles,
    eagerly,
    other_replicas,
    no_loop,
    of_gradient,
    of_keras,
    of_accumulated_gradients,
)


@pytest.mark.parametrize("run", OTHERS, ids=lambda run: run.__name__)
def test_other_refusals_show_the_line(run: Callable[[], None]) -> None:
    name = run.__name__.replace("_", " ")
    with ipus(1), pytest.raises(Exception) as raised:  # noqa: PT011 - of many types
        run()
    assert marked(str(raised.value), name), str(raised.value)


@pytest.mark.parametrize("error", [NotImplementedError, ValueError, InfeedExhausted])
def test_what_a_rule_raises_shows_the_line(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise InfeedExhausted("none", 0) if error is InfeedExhausted else error("not this one")

    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(2):
            x = tf.math.floor(x)  # refused: by a rule
        return x

    monkeypatch.setitem(interpreter.RULES, "stablehlo.floor", fails)
    wanted = tf.errors.OutOfRangeError if error is InfeedExhausted else error
    with ipus(1), pytest.raises(wanted) as raised:
        as_run(program)
    assert marked(str(raised.value), "by a rule")
    assert str(raised.value).count("File ") == 1  # once, however many ops are around it


UNCONFIGURED = {
    "run": lambda: as_run(lambda x: x),
    "compiled": lambda: compiled_in_session(lambda x: x),
    "placed": placed_by_hand,
    "fit": lambda: fitted(model_of()),
}
SENTENCE = "No device target has been configured. Did you configure the IPU devices by running "


@pytest.mark.parametrize("run", UNCONFIGURED)
def test_an_unconfigured_device_says_what_to_add_and_says_it_once(run: str) -> None:
    ipu.config.reset_ipu_configuration()
    with pytest.raises(tf.errors.FailedPreconditionError) as raised:
        UNCONFIGURED[run]()
    text = "".join(traceback.format_exception(raised.value))
    assert text.count(SENTENCE) == 1
    assert len(text.splitlines()) < 70
    wanted = ["cfg = ipu.config.IPUConfig()", "cfg.auto_select_ipus = 1", "cfg.configure_ipu_system()"]
    assert [line.strip() for line in str(raised.value).splitlines()[-3:]] == wanted


def test_a_session_that_fails_first_of_all_raises_the_error_itself() -> None:
    """In a process of its own: what `Session.run` raises does not depend on a program that ran before."""
    program = "import tests.ipu_tf.test_user_lines as t; t.ipu.config.reset_ipu_configuration(); t.placed_by_hand()"
    ran = subprocess.run([sys.executable, "-c", program], cwd=FILE.parents[2], capture_output=True, text=True)
    assert "FailedPreconditionError: " + SENTENCE in ran.stderr
    assert ran.stderr.count(SENTENCE) == 1


def test_a_line_of_an_installed_package_comes_with_the_line_that_called_it() -> None:
    library, keras_file = "/x/site-packages/hub/layer.py", keras.layers.Layer.__init__.__code__.co_filename
    frames = [("/home/me/train.py", 3, "main"), (keras_file, 5, "fit"), (library, 7, "call"), (tf.__file__, 9, "op")]
    frames += [(subprocess.__file__, 4, "run"), ("<frozen runpy>", 1, "_run_code")]
    assert [(line.file, line.line) for line in user_lines(frames)] == [(library, 7), ("/home/me/train.py", 3)]
    assert [line.function for line in user_lines(frames[:2])] == ["main"]
    assert user_lines(frames[-2:]) == ()
