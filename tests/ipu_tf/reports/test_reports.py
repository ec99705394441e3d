"""Reports: bytes by category add up at each operation, peaks lie between bounds, less is alive with recomputation."""

from __future__ import annotations

import gc
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax.ad_checkpoint import print_saved_residuals

import ipu_tf as ipu
from ipu_tf.device.program.program import Program, StraightLinePart
from ipu_tf.reports import Category, Operation, Part, Report, report_of
from ipu_tf.reports.liveness import Input, part_of
from tests.helpers.device_counts import device_work

#: A thousand numbers that the caller keeps.
X = Input("x", Category.READ, 4000, kept=True)


def configure() -> None:
    """Configures one IPU."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()


def trained(accumulation: int = 1) -> tuple[tf.keras.Model, Report]:
    """A network that was trained on the device, with the report on its training step."""
    configure()
    x = np.random.default_rng(1).random((32, 8, 8, 3), np.float32)
    with ipu.ipu_strategy.IPUStrategy().scope(), device_work() as work:
        layers = tf.keras.layers
        network = [layers.Conv2D(4, 3, activation="relu", name="eyes"), layers.Flatten(), layers.Dense(1, name="head")]
        model = tf.keras.Sequential([tf.keras.Input((8, 8, 3)), *network])
        if accumulation > 1:
            model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=accumulation)
        model.compile("adam", "mse", steps_per_execution=4)
        model.fit(x, x[:, 0, 0, :1], batch_size=8, verbose=0)
    assert work.counts.executions == 1
    return model, ipu.reports.last()


def bytes_of(part: Part, category: Category) -> int:
    """The bytes of the values of a category that are there when a part begins."""
    return sum(value.bytes for value in part.values if value.category is category and value.first == 0)


def check_sums(part: Part) -> None:
    """Checks at each operation that the values alive add up to the total, whole and by category."""
    assert part.operations
    for index, operation in enumerate(part.operations):
        sums = dict.fromkeys(Category, 0)
        for value in part.alive_at(index):
            sums[value.category] += value.bytes
        sums[Category.TEMPORARIES] += operation.inside
        assert dict(operation.live) == sums
        assert operation.total == sum(sums.values())


def test_values_that_are_alive_add_up_at_each_operation() -> None:
    model, report = trained()
    (part,) = report.parts
    assert part.kind == "loop"
    check_sums(part)
    weights = sum(4 * weight.numpy().size for weight in model.trainable_variables)
    assert bytes_of(part, Category.WEIGHTS) == weights
    # Adam keeps two values for each weight, its own count (8 bytes) and learning rate (4).
    assert bytes_of(part, Category.OPTIMIZER) == 2 * weights + 12
    assert bytes_of(part, Category.STATE) == 8  # the mean loss: total and count
    feeds = [value.bytes for value in part.values if value.category is Category.FEEDS and value.first == 0]
    assert sorted(feeds) == [8 * 4, 8 * 8 * 8 * 3 * 4]
    assert part.peak < sum(value.bytes for value in part.values)


def test_stashes_are_what_jax_saves_for_gradients(capsys: pytest.CaptureFixture[str]) -> None:
    def loss(weights: tuple[jax.Array, ...], x: jax.Array) -> jax.Array:
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return jnp.sum(x * x)

    given = (jnp.ones((8, 8)), jnp.ones((8, 8))), jnp.ones((4, 8))
    print_saved_residuals(loss, *given)
    saved = [line for line in capsys.readouterr().out.splitlines() if "from the argument" not in line]
    jaxpr = jax.make_jaxpr(jax.value_and_grad(loss))(*given).jaxpr
    part = part_of("step", jaxpr, [X, X, X], [Category.TEMPORARIES] * 3)
    check_sums(part)
    stashes = [value for value in part.values if value.category is Category.STASHES]
    assert [value.bytes for value in stashes] == [4 * 4 * 8] * len(saved) == [4 * 4 * 8] * 4


def test_accumulators_are_a_category() -> None:
    model, report = trained(accumulation=2)
    (part,) = report.parts
    check_sums(part)
    weights = sum(4 * weight.numpy().size for weight in model.trainable_variables)
    values = [value for value in part.values if value.category is Category.ACCUMULATORS and value.first == 0]
    assert sum(value.bytes for value in values) == weights
    assert sorted(value.name for value in values) == [
        f"accumulator of {model.name}/{name}" for name in ("eyes/bias", "eyes/kernel", "head/bias", "head/kernel")
    ]


def test_programs_in_sessions_name_their_variables() -> None:
    configure()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            x = tf.compat.v1.placeholder(tf.float32, [4, 8], name="images")
            weight = tf.compat.v1.get_variable("dense/kernel", [8, 1], use_resource=True)
            loss = tf.reduce_sum((x @ weight) ** 2)
            step = tf.compat.v1.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
        session.run(tf.compat.v1.global_variables_initializer())
        with device_work() as work:
            session.run([loss, step], {x: np.ones((4, 8))})
        (part,) = ipu.reports.last().parts
    assert work.counts.executions == 1
    check_sums(part)
    assert {(value.name, value.category) for value in part.values if value.first == 0 and value.bytes >= 32} >= {
        ("images", Category.READ),
        ("dense/kernel", Category.WEIGHTS),
        ("dense/kernel/Momentum", Category.STATE),
    }


def test_operations_have_the_names_of_layers() -> None:
    _, report = trained()
    names = [operation.name for operation in report.parts[0].operations]
    for layer in ("eyes", "head"):  # TensorFlow numbers a scope's name when it comes again
        assert any(re.match(rf"sequential\w*/{layer}(_\d+)?/", name) for name in names)
        assert any(re.match(rf"gradient_tape/sequential\w*/{layer}(_\d+)?/", name) for name in names)


def test_text_has_peak_and_largest_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _, report = trained()
    text = str(report)
    assert "modelled" in text
    assert f"peak {report.peak / 1024:.1f} KiB" in text
    assert "infeed step_infeed" in text
    assert "eyes" in text
    names = [value.name for value in report.parts[0].values if value.category is Category.WEIGHTS]
    assert any(name.endswith("eyes/kernel") for name in names), names
    assert report._repr_html_().startswith("<pre") and "modelled" in report._repr_html_()


def test_peak_lies_between_xlas_arguments_with_results_and_all_values() -> None:
    def function(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        product = jnp.tanh(a @ b)
        return product @ b, jnp.sum(product, axis=0)

    types = (jax.ShapeDtypeStruct((64, 32), np.float32), jax.ShapeDtypeStruct((32, 32), np.float32))
    part = StraightLinePart(lambda live, hidden, _: (function(*live), hidden, {}), (0, 1), (2, 3))
    report = report_of(Program("straight", types, (part,), (2, 3), {}))
    check_sums(report.parts[0])
    analysis = jax.jit(function).lower(*types).compile().memory_analysis()
    assert analysis is not None
    least = analysis.argument_size_in_bytes + analysis.output_size_in_bytes
    assert least <= report.peak <= sum(value.bytes for value in report.parts[0].values)


def test_what_later_parts_read_is_alive_in_earlier_ones() -> None:
    def first(live: tuple[jax.Array, ...], hidden: Any, _: Any) -> Any:
        return (jnp.outer(live[0], live[0]),), hidden, {}

    def second(live: tuple[jax.Array, ...], hidden: Any, _: Any) -> Any:
        return (live[0] + 1,), hidden, {}

    def third(live: tuple[jax.Array, ...], hidden: Any, _: Any) -> Any:
        return (jnp.sum(live[0]) + live[1],), hidden, {}

    parts = (
        StraightLinePart(first, (0,), (2,)),
        StraightLinePart(second, (1,), (3,)),
        StraightLinePart(third, (2, 3), (4,)),
    )
    types = (jax.ShapeDtypeStruct((100,), np.float32), jax.ShapeDtypeStruct((), np.float32))
    report = report_of(Program("three parts", types, parts, (4,), {0: 1}))
    for part in report.parts:
        check_sums(part)
        assert part.peak >= 100 * 100 * 4 + 400
    held = next(value for value in report.parts[1].values if value.name == "slot 2")
    assert held.bytes == 100 * 100 * 4 and held.last == len(report.parts[1].operations) - 1


def test_what_results_are_is_worked_out_once_a_program() -> None:
    class Watched(dict[int, int]):
        """Results and their parameters, and how often all were read."""

        read = 0

        def items(self) -> Any:
            self.read += 1
            return super().items()

    def added(live: tuple[jax.Array, ...], hidden: Any, _: Any) -> Any:
        return tuple(each + 1 for each in live), hidden, {}

    slots = range(20)
    part = StraightLinePart(added, tuple(slots), tuple(slot + 20 for slot in slots))
    types = (jax.ShapeDtypeStruct((4,), np.float32),) * 20
    aliases = Watched({slot: slot for slot in slots})
    (listed,) = report_of(Program("state", types, (part,), part.live_out, aliases)).parts
    assert aliases.read == 1
    assert sum(value.category is Category.STATE for value in listed.values) == 40


def test_recomputation_lowers_the_peak() -> None:
    def layers(x: jax.Array) -> jax.Array:
        for _ in range(6):
            x = jnp.sin(jnp.cos(jnp.sin(jnp.cos(x))))
        return x

    def checkpointed(x: jax.Array) -> jax.Array:
        for _ in range(6):
            x = jax.checkpoint(lambda x: jnp.sin(jnp.cos(jnp.sin(jnp.cos(x)))))(x)
        return x

    def peak(function: object) -> int:
        jaxpr = jax.make_jaxpr(jax.grad(lambda x: jnp.sum(function(x))))(jnp.zeros(1000, jnp.float32)).jaxpr  # type: ignore[operator]
        part = part_of("step", jaxpr, [X], [Category.TEMPORARIES])
        check_sums(part)
        return part.peak

    assert peak(checkpointed) < 0.6 * peak(layers)


def test_bodies_of_loops_and_branches_count_while_they_run() -> None:
    def function(x: jax.Array) -> jax.Array:
        def grown(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
            return carry + jnp.sum(jnp.outer(carry, carry)), None

        x = jax.lax.scan(grown, x, None, length=3)[0]
        return jax.lax.cond(x[0] > 0, lambda x: x * 2, lambda x: jnp.sum(jnp.outer(x, x)) * x, x)

    jaxpr = jax.make_jaxpr(function)(jnp.zeros(100, jnp.float32)).jaxpr
    part = part_of("step", jaxpr, [Input("x", Category.READ, 400, kept=True)], [Category.TEMPORARIES])
    check_sums(part)

    def named(name: str) -> Operation:
        return next(each for each in part.operations if each.name.split("/")[-1] == name)

    assert named("scan").trips == 3 and named("cond").trips is None
    for name in ("scan", "cond"):
        assert 100 * 100 * 4 <= named(name).inside < 4 * 100 * 100 * 4
        assert named(name).body
    assert [len(branch) for branch in named("cond").branches] == [5, 1]  # JAX has that of False first
    # 3 times: a product and a sum of 10,000 numbers, and an addition of 100.
    assert named("scan").flops == 3 * (10_000 + 9_999 + 100)


def test_no_program_is_an_error() -> None:
    ipu.emulation.clear_session()
    with pytest.raises(LookupError, match="There is no program to report on: wanted one that was executed"):
        ipu.reports.last()


def test_a_report_keeps_no_program_alive() -> None:
    configure()
    strategy = ipu.ipu_strategy.IPUStrategy()
    function = tf.function(lambda x: x + 1)
    assert float(strategy.run(function, args=[tf.constant(1.0)])) == 2.0
    assert ipu.reports.last().parts
    del function
    gc.collect()
    with pytest.raises(LookupError):
        ipu.reports.last()


def test_replicas_report_the_bytes_of_one() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    x = np.ones((32, 4), np.float32)
    with ipu.ipu_strategy.IPUStrategy().scope(), device_work() as work:
        model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1, use_bias=False)])
        model.compile("sgd", "mse", steps_per_execution=4)
        model.fit(x, x[:, :1], batch_size=4, verbose=0)
    assert (work.counts.executions, work.counts.replicas) == (1, 2)
    report = ipu.reports.last()
    assert report.replicas == 2
    check_sums(report.parts[0])
    feeds = [each.bytes for each in report.parts[0].values if each.name.startswith("infeed")]
    assert sorted(feeds) == [4 * 4, 4 * 4 * 4]
