"""Names that inner modules of TensorFlow and Keras no longer have are found there under the launcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipu_tf._compat.removed_names import FORMER
from tests.ipu_tf.compat.test_launcher import launch, write

#: What a program imports; it prints the value of each expression, which has to be true.
PROGRAM = '''
import tensorflow as tf
import keras
from tensorflow import pywrap_tensorflow
import tensorflow.compat.v1 as v1
from tensorflow.compat.v1.keras.utils import to_categorical
from tensorflow.python.distribute import distribution_strategy_context
from tensorflow.python.eager import tape
from tensorflow.python.framework import graph_util
from tensorflow.python.keras.preprocessing import sequence
from tensorflow.python.ops import array_ops, control_flow_ops
from tensorflow.python.training import training_ops
from tensorflow.python.training.tracking.data_structures import NoDependency
from tensorflow.python.util import nest
from tensorflow.python.keras import optimizers as former_optimizers, utils as former_utils
from keras.engine.keras_tensor import KerasTensor
from keras.engine.input_spec import InputSpec
from keras.engine.topology import Layer
from keras.layers.core import Lambda, SlicingOpLambda, TFOpLambda
from keras.utils import losses_utils, tf_inspect
from keras.utils.layer_utils import count_params
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
dense = keras.layers.Dense(2)
dense.build((None, 3))

EXPRESSIONS = """
pywrap_tensorflow is tf.pywrap_tensorflow
pywrap_tensorflow.NewCheckpointReader is tf.compat.v1.train.NewCheckpointReader
to_categorical is tf.keras.utils.to_categorical
not distribution_strategy_context.has_strategy()
tape.stop_recording().__enter__() is None
graph_util.convert_variables_to_constants is v1.graph_util.convert_variables_to_constants
sequence.pad_sequences is keras.utils.pad_sequences
former_optimizers.SGD is keras.optimizers.SGD
former_utils.get_file is keras.utils.get_file
array_ops.unstack(array_ops.stack([1, 2]))[1] == 2
control_flow_ops.cond is v1.cond and control_flow_ops.Assert is tf.debugging.Assert
callable(training_ops.resource_apply_momentum) and NoDependency(1).value == 1
nest.is_sequence([1]) and not nest.is_sequence(1)
KerasTensor is keras.KerasTensor and InputSpec is keras.InputSpec and Layer is keras.layers.Layer
Lambda is keras.layers.Lambda and issubclass(SlicingOpLambda, TFOpLambda) and not isinstance(dense, TFOpLambda)
keras.losses.losses_utils.ReductionV2.SUM == "sum" and losses_utils.ReductionV2.NONE == "none"
keras.losses.MeanSquaredError(reduction=losses_utils.ReductionV2.SUM)([[1.0], [2.0]], [[0.0], [0.0]]) == 5.0
tf_inspect.getfullargspec(lambda x: x).args == ["x"]
count_params(dense.weights + dense.weights) == 8
float(keras.backend.sum([1.0, 2.0])) == 3.0
v1.layers.dense is tf.compat.v1.layers.dense and callable(v1.layers.batch_normalization)
tf.compat.v1.nn.rnn_cell.LSTMStateTuple(1, 2).h == 2 and v1.nn.rnn_cell.GRUCell is tf.compat.v1.nn.rnn_cell.GRUCell
tf.estimator.train_and_evaluate is tf.compat.v1.estimator.train_and_evaluate
ipu.optimizers.GradientAccumulationReductionMethod is ipu.gradient_accumulation.GradientAccumulationReductionMethod
"""
import tensorflow.python.ipu.gradient_accumulation
for expression in EXPRESSIONS.strip().splitlines():
    assert eval(expression), expression
for expression, says in {
    "keras.backend.nothing": "module 'keras.backend' has no attribute 'nothing'",
    "keras.layers.core.Nothing": "has no attribute 'Nothing'",
    "TFOpLambda('nothing')": "TensorFlow must have an op `tf.nothing`",
    "v1.layers.nothing": "tf.layers.nothing is not there",
}.items():
    try:
        eval(expression)
    except (AttributeError, ValueError) as error:
        assert says in str(error), error
    else:
        raise AssertionError(expression)
with tf.device("/device:IPU:0"):
    print(float(tf.add(1.0, 2.0)))
'''


def test_former_names(tmp_path: Path) -> None:
    done = launch("--stats", write(tmp_path, PROGRAM), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    value, stats = done.stdout.splitlines()[-2:]
    assert value == "3.0"
    assert stats.startswith("ipu_tf: 1 program compiled, 1 execution")


TF1_PROGRAM = """
    import tensorflow as tf
    import tensorflow.contrib.compiler.xla as xla
    from tensorflow.contrib.framework.python.framework import checkpoint_utils
    from tensorflow.contrib.ipu import config, scopes

    options = config.IPUConfig()
    options.auto_select_ipus = 1
    options.configure_ipu_system()
    x = tf.placeholder(tf.float32, [2, 8 / 2])
    with scopes.ipu_scope("/device:IPU:0"):
        [y] = xla.compile(lambda x: tf.layers.dense(x, 3, kernel_initializer=tf.ones_initializer()), [x])
    weight = tf.get_variable("w", [2, 2], initializer=tf.contrib.layers.xavier_initializer(uniform=False))
    sizes = [tf.contrib.layers.l1_regularizer(0.5)(-y), tf.contrib.layers.l2_regularizer(0.5)(y)]
    he = tf.contrib.layers.variance_scaling_initializer()([2, 3])
    first = tf.contrib.layers.variance_scaling_initializer(seed=3)([100, 100])
    ratio = first / tf.truncated_normal([100, 100], 0.0, (1.3 * 2 / 100) ** 0.5, seed=3)
    try:
        tf.contrib.layers.variance_scaling_initializer(mode="fan_in")
    except TypeError as error:
        print(error)
    assert tf.contrib.rnn.LSTMStateTuple is tf.nn.rnn_cell.LSTMStateTuple
    assert checkpoint_utils.load_variable is tf.contrib.framework.load_variable is tf.train.load_variable
    assert tf.contrib.data.AUTOTUNE == tf.data.AUTOTUNE and tf.contrib.util.make_ndarray is tf.make_ndarray
    try:
        tf.contrib.slim
    except AttributeError as error:
        print(error)
    dense = tf.keras.layers.Dense(1)
    loss = tf.reduce_sum(dense(x))
    optimizer = tf.train.GradientDescentOptimizer(0.25)
    steps = [
        optimizer.minimize(loss, var_list=dense.trainable_weights),
        optimizer.apply_gradients(optimizer.compute_gradients(loss, dense.trainable_weights)),
    ]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        print([float(value) for value in session.run(sizes, {x: [[1.0] * 4] * 2})])
        for step in steps:
            session.run(step, {x: [[1.0] * 4] * 2})
        print(session.run({"bias": dense.bias})["bias"], session.run(he).shape, tf.executing_eagerly())
        assert abs(session.run(ratio) - 1.0).max() < 1e-5
        print([variable.name for variable in tf.global_variables()][:3])
"""


def test_former_names_in_a_program_for_tensorflow_1(tmp_path: Path) -> None:
    done = launch("--stats", write(tmp_path, TF1_PROGRAM), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    mode, slim, *rest, stats = done.stdout.splitlines()[-6:]
    assert mode == "Unknown mode fan_in [FAN_IN, FAN_OUT, FAN_AVG]"
    assert slim.startswith("tf.contrib.slim is not there: TensorFlow 2 dropped tf.contrib.")
    assert rest == ["[12.0, 24.0]", "[-1.] (2, 3) False", "['dense/kernel:0', 'dense/bias:0', 'w:0']"]
    assert stats.startswith("ipu_tf: 1 program compiled, 1 execution")


STRATEGY_PROGRAM = """
    import numpy as np
    import tensorflow.compat.v1 as tf
    from tensorflow.python import ipu

    tf.disable_v2_behavior()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    dataset = tf.data.Dataset.from_tensors(np.ones([2, 3], np.float32)).repeat()
    with strategy.scope():
        flat = tf.keras.layers.Flatten()
        model = tf.keras.Sequential([flat, tf.keras.layers.Dense(1, kernel_initializer="zeros"), flat])
        model.build((None, 3))
        assert len(model.layers) == 2
        optimizer = tf.keras.optimizers.SGD(0.5, momentum=0.5)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)

        def step(total, x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(x))
            gradients = tape.gradient(loss, model.trainable_variables)
            return total + loss, optimizer.apply_gradients(zip(gradients, model.trainable_variables))

        def run():
            loss = strategy.experimental_run_v2(lambda: ipu.loops.repeat(3, step, infeed_queue=infeed, inputs=[0.0]))
            return strategy.reduce(tf.distribute.ReduceOp.SUM, loss)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            compiled = ipu.ipu_compiler.compile(run)
        with tf.Session() as session:
            session.run(infeed.initializer)
            session.run(tf.global_variables_initializer())
            print(session.run(compiled)[0], session.run(model.weights[1]))
"""


def test_a_keras_optimizer_in_a_graph_of_tensorflow_1(tmp_path: Path) -> None:
    """Each weight has the gradient 2: it moves by 1, 1.5 and 1.75, and the loss by eight times that."""
    done = launch("--stats", write(tmp_path, STRATEGY_PROGRAM), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    value, stats = done.stdout.splitlines()[-2:]
    assert value == "-28.0 [-4.25]"
    assert stats.startswith("ipu_tf: 1 program compiled, 1 execution, 3 steps")


@pytest.mark.parametrize("module", sorted(FORMER))
def test_the_former_names_are_gone_without_the_launcher(module: str) -> None:
    """Once TensorFlow has such a name again, its patch is removed."""
    import importlib

    importlib.import_module("tensorflow")
    assert not set(FORMER[module]) & set(vars(importlib.import_module(module)))
