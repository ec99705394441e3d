"""The cut of a micro-batch into stages: from StableHLO with markers, without TensorFlow."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ipu_tf.device.errors import AccumulationCountError
from ipu_tf.device.program.stage_program import StageProgram
from ipu_tf.device.run.pipeline_passes import passes
from ipu_tf.device.run.pipeline_routes import routes
from ipu_tf.device.schedule.timetable import Recomputation, TaskKind
from ipu_tf.lowering.programs.build import program_function
from ipu_tf.lowering.stablehlo.module import Module, parse
from ipu_tf.lowering.stages.stage_loops import step_stages

HEAD = """module @jit attributes {{mhlo.input_output_alias = [{aliases}]}} {{
  func.func public @main({arguments}) -> ({results}) {{"""
ALIAS = (
    '{{alias = {{kind = "may_alias", parameter_index = array<i64>, parameter_number = {0} : i64}}, '
    "output_index = array<i64: {1}>}}"
)
SCALAR = "tensor<f32>"


def mark(name: str, value: str, stage: int, backward: bool = False, stages: int = 2, training: bool = True) -> str:
    """A marker after a stage."""
    about = {
        "stages": stages,
        "mapping": list(range(stages)),
        "schedule": 2,
        "training": training,
        "count": 2 if training else 0,
        "stage": stage,
        "backward": backward,
    }
    return call("ipu.stage_boundary", name, value, about)


def accumulate(name: str, value: str) -> str:
    """A sum over micro-batches."""
    return call("ipu.accumulate", name, value, {"key": f"sum {name}", "method": "SUM", "count": 2})


def call(target: str, name: str, value: str, about: dict[str, Any]) -> str:
    text = json.dumps(about).replace('"', "\\22")
    operand, kind = (f"%{value}", SCALAR) if value else ("", "")
    result = "tensor<i1>" if target == "ipu.update_due" else SCALAR
    return (
        f"%{name} = stablehlo.custom_call @{target}({operand}) "
        f'{{api_version = 3 : i32, backend_config = "{text}"}} : ({kind}) -> {result}'
    )


def op(name: str, kind: str, *values: str) -> str:
    return f"%{name} = stablehlo.{kind} {', '.join('%' + value for value in values)} : {SCALAR}"


def module(arguments: list[str], results: list[str], lines: list[str], changed: dict[str, str]) -> Module:
    """A step of scalars; `changed` says which result is the new value of which argument."""
    aliases = ", ".join(
        ALIAS.format(arguments.index(a), results.index(r)).replace("{{", "{").replace("}}", "}")
        for a, r in changed.items()
    )
    head = HEAD.format(
        aliases=aliases,
        arguments=", ".join(f"%{name}: {SCALAR}" for name in arguments),
        results=", ".join([SCALAR] * len(results)),
    )
    end = f"return {', '.join('%' + name for name in results)} : {', '.join([SCALAR] * len(results))}"
    return parse("\n".join([head, *lines, end, "}", "}"]))


FORWARD = [
    op("h", "multiply", "x", "w0"),
    mark("m0", "h", 0),
    op("y", "multiply", "m0", "w1"),
    mark("m1", "y", 1),
    op("loss", "multiply", "m1", "m1"),
]
BACKWARD = [
    op("dl", "add", "m1", "m1"),
    mark("d1", "dl", 1, backward=True),
    op("g1", "multiply", "d1", "m0"),
    op("dh", "multiply", "d1", "w1"),
    mark("d0", "dh", 0, backward=True),
    op("g0", "multiply", "d0", "x"),
]
UPDATE = [
    accumulate("a0", "g0"),
    accumulate("a1", "g1"),
    call("ipu.update_due", "due", "", {"count": 2}),
    '%new:2 = "stablehlo.if"(%due) ({',
    op("n0", "subtract", "w0", "a0"),
    op("n1", "subtract", "w1", "a1"),
    f"stablehlo.return %n0, %n1 : {SCALAR}, {SCALAR}",
    "}, {",
    f"stablehlo.return %w0, %w1 : {SCALAR}, {SCALAR}",
    f"}}) : (tensor<i1>) -> ({SCALAR}, {SCALAR})",
    f"%u0 = stablehlo.reshape %new#0 : ({SCALAR}) -> {SCALAR}",
    f"%u1 = stablehlo.reshape %new#1 : ({SCALAR}) -> {SCALAR}",
]


def trained(*more: str) -> Module:
    """Two stages with a weight each, trained."""
    lines = [*FORWARD, *more, *BACKWARD, *UPDATE]
    return module(["x", "w0", "w1"], ["loss", "u0", "u1"], lines, {"w0": "u0", "w1": "u1"})


def cut(step: Module, outputs: int = 1) -> StageProgram:
    """Its stages; raises why it has none."""
    found = step_stages(step, "in", "out", 1, outputs)
    assert isinstance(found, StageProgram), found
    return found


def test_a_training_step_has_a_pass_each_way_for_every_stage() -> None:
    program = cut(trained())
    assert [(s.kind, s.stage) for s in program.segments] == [
        (TaskKind.FORWARD, 0),
        (TaskKind.FORWARD, 1),
        (TaskKind.BACKWARD, 1),
        (TaskKind.BACKWARD, 0),
    ]
    x, w0, w1 = 0, 1, 2
    assert dict(program.homes) == {w0: 0, w1: 1}
    assert [s.constants for s in program.segments] == [(w0,), (w1,), (w1,), ()]
    assert [list(s.infeeds) for s in program.segments] == [["in"], [], [], []]
    assert [list(s.outfeeds) for s in program.segments] == [[], ["out"], [], []]
    assert [step.stage for step in program.updates] == [0, 1]
    assert sorted(program.accumulators.values()) == [(2, "sum a1"), (3, "sum a0")]
    # What is kept: of stage 0 its input, of stage 1 what came from stage 0 and its output's gradient.
    kept = routes(program).kept
    assert kept[0] == {x} and len(kept[1]) == 2


def test_what_the_stages_compute_is_what_the_step_computes() -> None:
    step = trained()
    program, function = cut(step), program_function(step)
    values = {1: jnp.float32(2), 2: jnp.float32(3)}
    hidden = {"sum a0": jnp.float32(0), "sum a1": jnp.float32(0), "iteration": jnp.int32(0)}
    results, after = function([jnp.float32(5), values[1], values[2]], hidden)
    held, sums, rows = dict(values), {}, {}
    for segment in program.segments:
        given = {key: jnp.zeros(kind.shape, kind.dtype) for key, kind in segment.hidden.items()}
        elements = {"in": (jnp.float32(5),)} if segment.infeeds else {}
        constants = tuple(held[value] for value in segment.constants)
        inputs = tuple(held[value] for value in segment.inputs)
        outputs, _, new, row = segment.run((), given, constants, inputs, (), elements)
        held.update(zip(segment.outputs, outputs, strict=True))
        sums.update(new)
        rows.update(row)
    assert float(rows["out"][0]) == float(results[0]) == (5 * 2 * 3) ** 2
    assert {key: float(sums[key]) for key in ("sum a0", "sum a1")} == {k: float(after[k]) for k in ("sum a0", "sum a1")}


def test_an_update_step_gives_up_what_it_replaces() -> None:
    program = cut(trained())
    for step, weight in zip(program.updates, (1, 2), strict=True):
        assert step.taken == {weight}
        assert step.outputs == (program.written[weight],)
        [accumulator] = set(step.inputs) - {weight}
        outputs, _ = jax.jit(step.run)({weight: jnp.float32(9)}, {accumulator: jnp.float32(4)})
        assert [float(value) for value in outputs] == [5]


def test_state_of_micro_batches_lives_with_the_stage_that_reads_it() -> None:
    more = [op("half", "add", "y", "mean"), op("next", "multiply", "half", "half")]
    lines = [*FORWARD[:3], *more, mark("m1", "half", 1), FORWARD[-1], *BACKWARD, *UPDATE]
    changed = {"w0": "u0", "w1": "u1", "mean": "next"}
    program = cut(module(["x", "w0", "w1", "mean"], ["loss", "u0", "u1", "next"], lines, changed))
    assert [s.states for s in program.segments] == [(), (3,), (), ()]
    assert program.homes[3] == 1


def test_inference_has_forward_passes_only() -> None:
    lines = [FORWARD[0], mark("m0", "h", 0, training=False), FORWARD[2], mark("m1", "y", 1, training=False)]
    program = cut(module(["x", "w0", "w1"], ["m1"], lines, {}))
    assert [s.kind for s in program.segments] == [TaskKind.FORWARD] * 2 and not program.updates
    assert program.only_readers() == {1: 0, 2: 1}
    assert [plan.micro_batches for plan in passes(program, 7)] == [7]
    grouped = dataclasses.replace(program, schedule=0)
    assert [plan.micro_batches for plan in passes(grouped, 7)] == [6, 1]


def test_updates_take_whole_numbers_of_micro_batches() -> None:
    program = cut(trained())
    assert len(passes(program, 6)) == 3
    with pytest.raises(AccumulationCountError):
        passes(program, 5)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (op("bad", "multiply", "m1", "w0"), "a variable of shape () and dtype float32 is used by stage 0 on device 0"),
        (mark("bad", "x", 0, stages=3), "one loop runs several pipelines"),
    ],
)
def test_what_cannot_be_cut(line: str, reason: str) -> None:
    lines = [*FORWARD, line, op("sum", "add", "loss", "bad"), *BACKWARD, *UPDATE]
    step = module(["x", "w0", "w1"], ["sum", "u0", "u1"], lines, {"w0": "u0", "w1": "u1"})
    found = step_stages(step, "in", "out", 1, 1)
    assert isinstance(found, str) and reason in found


def test_a_step_without_markers_is_no_pipeline() -> None:
    step = module(["x", "w0"], ["h"], [FORWARD[0]], {})
    assert step_stages(step, "in", "out", 1, 1) is None
    assert np.isclose(float(program_function(step)([jnp.float32(2), jnp.float32(3)], {})[0][0]), 6)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_is_computed_again_starts_from_what_is_kept(checkpoint: bool) -> None:
    inside = [op("s", "sine", "x"), op("p", "multiply", "c", "w0"), op("h", "exponential", "p")]
    kept = call("ipu.recomputation_checkpoint", "c", "s", {}) if checkpoint else op("c", "cosine", "s")
    back = [*BACKWARD[:-1], op("dp", "multiply", "d0", "p"), op("g0", "multiply", "dp", "s")]
    lines = [inside[0], kept, *inside[1:], *FORWARD[1:], *back, *UPDATE]
    lines = [
        line.replace("\\22training", "\\22recomputation\\22: \\22THEN_BACKPROPAGATE\\22, \\22training")
        for line in lines
    ]
    program = cut(module(["x", "w0", "w1"], ["loss", "u0", "u1"], lines, {"w0": "u0", "w1": "u1"}))
    assert program.recomputation is Recomputation.THEN_BACKPROPAGATE
    first, again = program.segments[0], program.segments[-1]
    assert (again.kind, again.stage, len(program.segments)) == (TaskKind.RECOMPUTE, 0, 5)
    assert not again.infeeds and not again.states and not again.hidden
    assert again.constants == (1,)
    assert routes(program).kept[0] == set(again.inputs)
    assert len(again.inputs) == 1 and (0 in again.inputs) is not checkpoint
    assert len(again.outputs) == (1 if checkpoint else 2)
    outputs, *_ = first.run((), {}, (jnp.float32(2),), (), (), {"in": (jnp.float32(5),)})
    made = dict(zip(first.outputs, outputs, strict=True))
    assert not set(again.outputs) & set(made)  # the forward pass gives nothing that is computed again
    values, *_ = again.run((), {}, (jnp.float32(2),), tuple(made[value] for value in again.inputs), (), {})
    sine = np.sin(np.float32(5))
    wanted = {float(2 * sine)} if checkpoint else {float(sine), float(2 * np.cos(sine))}
    np.testing.assert_allclose(sorted(map(float, values)), sorted(wanted), rtol=1e-6)
