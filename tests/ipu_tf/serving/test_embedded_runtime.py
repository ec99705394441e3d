"""The embedded runtime: programs from files, one element in and one element out."""

from __future__ import annotations

import io
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.device.cache.sealed_file import DamagedFile, ForeignFile, read_sealed
from ipu_tf.device.errors import DeviceError
from ipu_tf.device.files.executable_file import KIND, write
from ipu_tf.device.files.executable_reading import about_text
from ipu_tf.emulation import EmulationError, ignored_arguments
from ipu_tf.ops import embedded_runtime
from ipu_tf.ops.application_compile_op import experimental_application_compile_op
from ipu_tf.popef import Reader
from ipu_tf.poplar.ops import gen_application_runtime
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

#: Of the weights of the program `y = x @ w + b`, which also counts its calls.
SHAPES = {"w": [3, 2], "b": [2]}


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a program that takes weights, and for each vector gives a vector and the number of calls before."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    w, b = tf.Variable(tf.zeros(SHAPES["w"]), name="w"), tf.Variable(tf.zeros(SHAPES["b"]), name="b")
    calls = tf.Variable(0, name="calls")
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(tf.ones([1, 3])).repeat())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(x: tf.Tensor) -> Any:
        before = calls.read_value()
        calls.assign_add(1)
        return outfeed.enqueue((x @ w + b, before))

    path = tmp_path_factory.mktemp("dense") / "dense.bin"
    experimental_application_compile_op(lambda: ipu.loops.repeat(4, body, [], infeed), output_path=path)
    ipu.config.reset_ipu_configuration()
    return str(path)


def inputs() -> dict[str, np.ndarray]:
    """Weights for the program."""
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    named = {"w": w, "b": np.array([10, 20], np.float32), "calls": np.array(0, np.int32)}
    return {f"XLA_Args/{name}": value for name, value in named.items()}


def in_order(path: str) -> list[np.ndarray]:
    """The weights in the order that the program wants them."""
    tensors = embedded_runtime.read(path).signature.inputs
    return [inputs()[tensor.name] for tensor in tensors]


@pytest.mark.parametrize("form", ["dict", "list", "tuple"])
def test_calls_in_eager_mode(form: str, dense: str, request: pytest.FixtureRequest) -> None:
    """No device needs to be configured."""
    given: Any = {"dict": inputs(), "list": in_order(dense), "tuple": tuple(in_order(dense))}[form]
    with device_work() as work:
        context = embedded_runtime.embedded_runtime_start(dense, given, request.node.name)
        for number in range(6):  # longer than the loop: the program starts anew, its variables do not
            x = np.full([1, 3], number, np.float32)
            y, before = embedded_runtime.embedded_runtime_call([tf.constant(x)], context)
            np.testing.assert_allclose(y, x @ inputs()["XLA_Args/w"] + inputs()["XLA_Args/b"])
            assert int(before) == number
    assert work.counts.executions == 6


def test_seeded_numbers_are_those_of_programs(strategy: Any, tmp_path: Path) -> None:
    draw = tf.function(lambda seed: tf.random.stateless_uniform([5], seed))
    seed = tf.constant([7, 9])
    stock = draw(seed).numpy()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(seed).repeat())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    path = str(tmp_path / "draws.bin")
    program = lambda: ipu.loops.repeat(2, lambda seed: outfeed.enqueue(draw(seed)), [], infeed)  # noqa: E731
    experimental_application_compile_op(program, output_path=path)
    context = embedded_runtime.embedded_runtime_start(path, {}, "draws")
    [drawn] = embedded_runtime.embedded_runtime_call([seed], context)
    assert drawn.numpy().tobytes() == stock.tobytes()


def test_calls_in_a_session(dense: str) -> None:
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [1, 3])
        path = tf.constant(dense)
        result, context = embedded_runtime.embedded_runtime_start_and_call(path, inputs(), [x], "session")
        assert context.name() == "session"
        assert context.output_types() == [tf.float32, tf.int32]
        assert [t.name for t in context.signature().streamed_outputs][0].endswith(".0")
        for start in range(0, 6, 3):  # the instance outlives the session
            with tf.compat.v1.Session() as session:
                session.run(context.start_output())
                for number in range(start, start + 3):
                    y, before = session.run(result, {x: np.full([1, 3], number)})
                    np.testing.assert_allclose(y, [[10 + 6 * number, 20 + 9 * number]])
                    assert before == number


def test_threads_share_an_instance(dense: str) -> None:
    context = embedded_runtime.embedded_runtime_start(dense, inputs(), "threads")
    numbers: list[int] = []

    def call() -> None:
        for _ in range(10):
            numbers.append(int(embedded_runtime.embedded_runtime_call([np.ones([1, 3], np.float32)], context)[1]))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(40))


def test_a_pipeline_answers_each_call(strategy: Any, tmp_path: Path) -> None:
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(tf.ones([2, 2])).repeat())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    program = lambda: ipu.pipelining_ops.pipeline(  # noqa: E731
        [lambda x: x @ tf.ones([2, 2]), tf.reduce_sum],
        gradient_accumulation_count=12,
        infeed_queue=infeed,
        outfeed_queue=outfeed,
        device_mapping=[0, 0],
    )
    experimental_application_compile_op(program, output_path=tmp_path / "pipeline")
    context = embedded_runtime.embedded_runtime_start(tmp_path / "pipeline", [], "pipeline")
    for number in (1.0, 2.0):
        [result] = embedded_runtime.embedded_runtime_call([tf.fill([2, 2], number)], context)
        assert float(result) == 8 * number


def test_several_queues_make_one_call(strategy: Any, tmp_path: Path) -> None:
    infeeds = [
        ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors((tf.ones([2]), tf.ones([]))).repeat())
        for _ in range(2)
    ]
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(a: tf.Tensor, b: tf.Tensor) -> Any:
        c, d = infeeds[1]._dequeue()
        return outfeed.enqueue(a * 1000 + b * 100 + c * 10 + d)

    experimental_application_compile_op(lambda: ipu.loops.repeat(2, body, [], infeeds[0]), output_path=tmp_path / "x")
    context = embedded_runtime.embedded_runtime_start(tmp_path / "x", [], "queues")
    values = {queue.feed_name: np.float32(2 * index) for index, queue in enumerate(infeeds)}
    elements = [
        np.full(t.shape, values[str(t.place)] + t.name.endswith(".1"), np.float32)
        for t in context.signature().streamed_inputs
    ]
    [result] = embedded_runtime.embedded_runtime_call(elements, context)
    assert result.numpy().tolist() == [123.0, 123.0]


def test_a_failure_does_not_last(strategy: Any, tmp_path: Path) -> None:
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(tf.ones([2])).repeat())
    silent = lambda: ipu.loops.repeat(3, lambda x: None, [], infeed)  # noqa: E731
    experimental_application_compile_op(silent, output_path=tmp_path / "silent")
    context = embedded_runtime.embedded_runtime_start(tmp_path / "silent", [], "silent")
    for _ in range(2):
        with pytest.raises(DeviceError, match="one element for each element"):
            embedded_runtime.embedded_runtime_call([tf.ones([2])], context)


def wrong(**change: Any) -> dict[str, Any]:
    """The program's inputs with some of them changed."""
    return inputs() | {f"XLA_Args/{name}": value for name, value in change.items()}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, r"Failed to find input tensor with name 'XLA_Args/\w+' in input dictionary\."),
        (4, r"Expected the inputs to be a list\."),
        ([1.0], r"Embedded application runtime expects 3 inputs, but 1 were provided\."),
        ([1.0] * 4, r"Embedded application runtime expects 3 inputs, but 4 were provided\."),
        (
            wrong(b=np.ones([2, 5], np.float32)),
            r"Mismatched input shape at position \d \('XLA_Args/b'\). Expected \[2\], but input \d has shape "
            r"\[2, 5\]\.",
        ),
        (
            wrong(b=np.ones(2, np.int32)),
            r"Mismatched input dtype at position \d \('XLA_Args/b'\). Expected <dtype: 'float32'>, but input \d has "
            r"dtype int32\.",
        ),
    ],
)
def test_inputs_that_do_not_fit(given: Any, text: str, dense: str) -> None:
    with pytest.raises(Exception, match=text):
        embedded_runtime.embedded_runtime_start(dense, given, "wrong inputs")


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ([], Exception, r"Embedded application call expects 1 inputs, but 0 were provided\."),
        ([np.ones(3, np.float32)], Exception, r"Mismatched input shape at position 0 .* Expected \[1, 3\]"),
        ([np.ones([1, 3], np.int32)], TypeError, r"Mismatched input dtype at position 0 .* has dtype int32"),
    ],
)
def test_elements_that_do_not_fit(given: Any, kind: type[Exception], text: str, dense: str) -> None:
    context = embedded_runtime.embedded_runtime_start(dense, inputs(), "wrong elements")
    with pytest.raises(kind, match=text):
        embedded_runtime.embedded_runtime_call(given, context)


def test_it_cannot_be_stopped(dense: str) -> None:
    context = embedded_runtime.embedded_runtime_start(dense, inputs(), "stop")
    with pytest.raises(NotImplementedError, match=r"Embedded runtime doesn't support stopping an engine\."):
        embedded_runtime.embedded_runtime_stop(context)


def test_a_name_belongs_to_one_program(strategy: Any, dense: str, tmp_path: Path) -> None:
    embedded_runtime.embedded_runtime_start(dense, inputs(), "taken")
    embedded_runtime.embedded_runtime_start(dense, inputs(), "taken")
    experimental_application_compile_op(lambda: tf.ones([2]), output_path=tmp_path / "other")
    with pytest.raises(tf.errors.AlreadyExistsError, match="Give each program a name of its own"):
        embedded_runtime.embedded_runtime_start(tmp_path / "other", [], "taken")


def test_a_name_belongs_to_one_file(dense: str, tmp_path: Path) -> None:
    """Frozen weights and constants are not part of a program's description, by which two files may be equal."""
    embedded_runtime.embedded_runtime_start(dense, inputs(), "taken by a file")
    contents = io.BytesIO(read_sealed(dense, KIND))
    with zipfile.ZipFile(contents, "a") as archive:
        archive.writestr("more", b"other weights")
    write(tmp_path / "same", read_sealed(dense, KIND))
    write(tmp_path / "other", contents.getvalue())
    assert about_text(tmp_path / "other") == about_text(dense)
    embedded_runtime.embedded_runtime_start(tmp_path / "same", inputs(), "taken by a file")
    with pytest.raises(tf.errors.AlreadyExistsError, match="Give each program a name of its own"):
        embedded_runtime.embedded_runtime_start(tmp_path / "other", inputs(), "taken by a file")


def test_files_that_are_none(tmp_path: Path, dense: str) -> None:
    with pytest.raises(FileNotFoundError):
        embedded_runtime.embedded_runtime_start(tmp_path / "missing", [], "missing")
    (tmp_path / "a.popef").write_bytes(b"PopEF...")
    with pytest.raises(ForeignFile, match="is a PopEF file"):
        embedded_runtime.embedded_runtime_start(tmp_path / "a.popef", [], "popef")
    (tmp_path / "cut").write_bytes(Path(dense).read_bytes()[:-1])
    with pytest.raises(DamagedFile, match="other bytes than were written"):
        embedded_runtime.embedded_runtime_start(tmp_path / "cut", [], "cut")
    with pytest.raises(EmulationError, match="holds code for IPU hardware"):
        Reader()


def test_the_timeout_is_recorded(dense: str) -> None:
    embedded_runtime.embedded_runtime_start(dense, inputs(), "timeout", timeout=77)
    assert ("embedded_runtime_start.timeout", "77") in [(a.name, a.value) for a in ignored_arguments()]


def test_the_raw_ops(dense: str) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        anchor = gen_application_runtime.application_runtime(in_order(dense), tf.constant(dense), "raw", timeout_us=5)
        x = tf.compat.v1.placeholder(tf.float32, [1, 3])
        result = gen_application_runtime.application_call([x], anchor, [tf.float32, tf.int32], "raw")
        assert session.run(result, {x: np.zeros([1, 3])})[0].tolist() == [[10, 20]]
