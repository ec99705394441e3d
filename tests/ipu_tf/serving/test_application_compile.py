"""`experimental_application_compile_op`: functions as files, in eager mode and in sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.config import DeviceConnectionType
from ipu_tf.device.files.executable_file import SUFFIX
from ipu_tf.device.files.executable_reading import ExecutableFile, read
from ipu_tf.emulation import EmulationError
from ipu_tf.ops.application_compile_op import experimental_application_compile_op
from ipu_tf.poplar.driver.poplar_executable_pb2 import PoplarExecutableProto
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]
pytestmark = pytest.mark.usefixtures("strategy")


def compiled(function: Any, *inputs: Any, freeze: bool = False) -> ExecutableFile:
    """Compiles a function in eager mode."""
    path = experimental_application_compile_op(function, list(inputs), freeze_variables=freeze)
    return read(path.numpy().decode())


def sizes(file: ExecutableFile) -> tuple[int, int, int, int]:
    """Counts inputs, streamed inputs, outputs and streamed outputs."""
    signature = file.signature
    roles = (signature.inputs, signature.streamed_inputs, signature.outputs, signature.streamed_outputs)
    return tuple(map(len, roles))  # type: ignore[return-value]


def queues() -> tuple[Any, Any]:
    """A queue of vectors, and one for results."""
    dataset = tf.data.Dataset.from_tensors(tf.ones([3])).repeat()
    return ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def test_a_temporary_file_is_made() -> None:
    with device_work() as work:
        path = experimental_application_compile_op(lambda: tf.ones([2]), name="scope/mine").numpy().decode()
    assert Path(path).name.startswith("mine_")
    assert path.endswith(SUFFIX)
    assert work.counts.executions == 0
    Path(path).unlink()


@pytest.mark.parametrize("freeze", [False, True])
def test_variables_are_inputs_or_weights(freeze: bool) -> None:
    variable, constant = tf.Variable([2.0, 3.0], name="v"), tf.constant([1.0, 1.0])

    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        return variable * constant + x

    file = compiled(function, tf.ones([2]), freeze=freeze)
    assert sizes(file) == (0 if freeze else 1, 0, 1, 0)
    assert [t.name for t in file.signature.inputs] == ([] if freeze else ["XLA_Args/v"])
    values = [value.tolist() for value in file.weights.values()]
    assert ([2.0, 3.0] in values) is freeze


@pytest.mark.parametrize("freeze", [False, True])
def test_loops_with_feeds(freeze: bool) -> None:
    variable = tf.Variable(3.0)
    infeed, outfeed = queues()

    def program() -> tf.Operation:
        return ipu.loops.repeat(5, lambda x: outfeed.enqueue({"y": x * variable, "z": x}), [], infeed)

    file = compiled(program, freeze=freeze)
    assert sizes(file) == (0 if freeze else 1, 1, 0, 2)
    assert [t.shape for t in file.signature.streamed_inputs] == [(3,)]


def test_pipelines() -> None:
    infeed, outfeed = queues()
    weights = tf.Variable([1.0, 2.0, 3.0])

    def program() -> tf.Operation:
        return ipu.pipelining_ops.pipeline(
            [lambda c, x: c * x * weights, tf.reduce_sum],
            gradient_accumulation_count=4,
            inputs=[2.0],
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            device_mapping=[0, 0],
        )

    assert sizes(compiled(program, freeze=True)) == (0, 1, 0, 1)


def test_variables_that_are_written_are_outputs_too() -> None:
    variable = tf.Variable([1.0])

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        variable.assign_add(x)
        return variable * 2

    file = compiled(step, tf.ones([1]))
    assert sizes(file) == (1, 0, 2, 0)
    assert list(file.aliases.items()) == [(1, file.signature.inputs[0].place)]


def test_in_a_session(tmp_path: Path) -> None:
    path = tmp_path / "here.bin"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [2], "x")

        def function(x: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
            with tf.compat.v1.variable_scope("vs"):
                return tf.compat.v1.get_variable("w", [2], initializer=tf.ones_initializer()) * x * factor

        result = experimental_application_compile_op(function, [x, 42.0], output_path=path)
        assert result.dtype == tf.string
        session.run(tf.compat.v1.global_variables_initializer())
        assert not path.exists()
        assert session.run(result, {x: [0.0, 0.0]}).decode() == str(path)
    file = read(path)
    assert [t.name for t in file.signature.inputs] == ["XLA_Args/x", "XLA_Args/vs/w"]
    assert [value.tolist() for value in file.weights.values()] == [42.0]


def test_frozen_in_a_session_with_the_values_of_that_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", [2], initializer=tf.ones_initializer(), use_resource=True)
        result = experimental_application_compile_op(
            lambda: variable * 2, output_path=path, freeze_variables=True, name="frozen"
        )
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(variable.assign([5.0, 6.0]))
        session.run(result)
    assert sizes(read(path)) == (0, 0, 1, 0)
    assert [value.tolist() for value in read(path).weights.values()] == [[5.0, 6.0]]


def test_it_compiles_where_nothing_runs() -> None:
    ipu.config.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.device_connection.type = DeviceConnectionType.NEVER
    config.device_connection.version = "ipu2"
    config.configure_ipu_system()
    assert sizes(compiled(lambda: tf.ones([2]))) == (0, 0, 1, 0)


def test_an_argument_that_is_missing_is_named_by_python() -> None:
    with pytest.raises(TypeError, match="missing 2 required positional arguments"):
        experimental_application_compile_op(tf.function(lambda x, y: x * y))


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(tf.errors.NotFoundError, match="Failed to open file for writing"):
        experimental_application_compile_op(lambda: tf.ones([2]), output_path=tmp_path / "no" / "file")


def test_a_dtype_that_the_device_has_not() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="Detected unsupported operations when trying to compile"):
        experimental_application_compile_op(lambda x: x * x, [tf.ones([2], tf.float64)])


def test_several_replicas_are_refused() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    with pytest.raises(EmulationError, match="has 2 replicas"):
        experimental_application_compile_op(lambda: tf.ones([2]))


def test_without_a_configuration() -> None:
    ipu.config.reset_ipu_configuration()
    with pytest.raises(tf.errors.FailedPreconditionError, match="No device target has been configured"):
        experimental_application_compile_op(lambda: tf.ones([2]))


def test_the_stand_in_for_the_executable_message() -> None:
    from ipu_tf.ops.embedded_runtime import _find_opaque_blob

    infeed, outfeed = queues()
    path = experimental_application_compile_op(
        lambda: ipu.loops.repeat(5, lambda x: outfeed.enqueue(x + 1), [], infeed), freeze_variables=True
    )
    message = PoplarExecutableProto()
    assert message.ParseFromString(_find_opaque_blob(path)) > 0
    signature = message.embedded_runtime_config.signature
    assert (len(signature.inputs), len(signature.streamed_inputs), len(signature.streamed_outputs)) == (0, 1, 1)
    assert np.dtype(signature.streamed_outputs[0].dtype) == np.float32
