"""A program for Keras 2 that `tests/keras_ipu/legacy/test_keras_2.py` runs under the launcher."""

from __future__ import annotations

import importlib
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.engine import base_layer
from keras.mixed_precision import policy
from keras.optimizer_v2 import gradient_descent
from tensorflow.python import ipu

X, Y = np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)


def refused(kind: type[Exception], words: str, run: Callable[[], Any]) -> None:
    try:
        run()
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"Nothing was raised. Wanted: {words}")


def two_outputs() -> keras.Model:
    x = keras.Input(4)
    return keras.Model(x, [keras.layers.Dense(1, name="first")(x), keras.layers.Dense(1, name="second")(x)])


def names() -> None:
    x = keras.Input(4)
    layer = keras.layers.Dense(3, name="inner")
    model = keras.Model(x, layer(x))
    assert x.name == x._keras_history.operation.name
    assert layer.get_output_at(0).name.partition("/")[0] == "inner"
    assert layer.get_input_at(0).get_shape().as_list() == [None, 4]
    assert [each.name for each in model._output_layers] == ["inner"]
    assert model._input_layers[0].get_output_at(0) is x
    model.compile("sgd", "mse")
    model.fit({x.name: X}, np.ones((8, 3), np.float32), 4, verbose=0)


def wordings() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    uncompiled: tuple[type[Exception], ...] = (RuntimeError, ValueError)
    for kind in uncompiled:
        refused(kind, "You must compile your model before training/testing", lambda: model.evaluate(X, Y))
    no_layer: tuple[type[Exception], ...] = (TypeError, ValueError)
    for kind in no_layer:
        refused(kind, "The added layer must be an instance", lambda: keras.Sequential([[keras.layers.Dense(1)]]))


def metrics() -> None:
    model = two_outputs()
    model.compile("sgd", ["mse", "mse"], metrics=["mae"])
    shown = model.fit(X, (Y, Y), 4, verbose=0, validation_data=(X, (Y, Y))).history
    assert next(iter(shown)) == "loss"
    assert {"first_mae", "second_mae", "val_first_mae"} <= set(shown)
    assert [name.startswith("val_") for name in shown] == [False] * 5 + [True] * 5


def optimizers() -> None:
    optimizer = gradient_descent.SGD(0.5)
    models = [keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones")]) for _ in range(3)]
    models[0].compile(optimizer, "mse")
    models[1].compile(optimizer, "mse")
    assert models[0].optimizer is optimizer
    models[2].compile(tf.compat.v1.train.GradientDescentOptimizer(0.5), "mse")
    for model in models:
        model.fit(X, Y, 4, verbose=0)
        assert int(model.optimizer.iterations) == 2
        np.testing.assert_array_equal(model.get_weights()[0], models[0].get_weights()[0])


def trained(optimizer: Any, accumulation: int = 1) -> list[Any]:
    """A model's weights after two updates by an optimizer; its gradients are of both dense and sparse kinds."""
    layers = [keras.layers.Embedding(8, 2, embeddings_initializer="ones"), keras.layers.Flatten()]
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(optimizer, "mse", steps_per_execution=2 * accumulation)
    model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=accumulation)
    ids = np.arange(32 * accumulation, dtype=np.float32).reshape(-1, 4) % 8
    model.fit(ids, np.arange(len(ids), dtype=np.float32), 4, verbose=0, shuffle=False)
    return [np.asarray(each) for each in model.get_weights()]


def like(wanted: Any, *optimizers: Any, accumulation: int = 1) -> None:
    expected = trained(wanted, accumulation)
    for optimizer in optimizers:
        for ours, theirs in zip(trained(optimizer, accumulation), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def halved(pairs: Any) -> Any:
    return [(tf.convert_to_tensor(gradient) * 0.5, variable) for gradient, variable in pairs]


class Momentum(tf.keras.optimizers.Optimizer):
    """Momentum as a program for Keras 2 writes it."""

    def __init__(self, learning_rate: float = 0.01, momentum: float = 0.5, name: str = "Mine", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._set_hyper("learning_rate", kwargs.get("lr", learning_rate))
        self._set_hyper("momentum", momentum)

    def _create_slots(self, var_list: Any) -> None:
        for variable in var_list:
            self.add_slot(variable, "velocity")

    def _prepare_local(self, var_device: Any, var_dtype: Any, apply_state: Any) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        apply_state[var_device, var_dtype]["momentum"] = tf.identity(self._get_hyper("momentum", var_dtype))

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        of = apply_state[var.device, var.dtype.base_dtype]
        velocity = self.get_slot(var, "velocity")
        velocity.assign(of["momentum"] * velocity + grad)
        return var.assign_sub(of["lr_t"] * velocity)

    def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any, apply_state: Any = None) -> Any:
        dense = tf.scatter_nd(tf.cast(indices, "int32")[:, None], grad, var.shape)
        return self._resource_apply_dense(dense, var, apply_state)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "momentum": self._serialize_hyperparameter("momentum")}


class Halving(gradient_descent.SGD):
    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        return super()._resource_apply_dense(grad * 0.5, var, apply_state)

    def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any, apply_state: Any = None) -> Any:
        return super()._resource_apply_sparse(grad * 0.5, var, indices, apply_state)


class Transforming(gradient_descent.SGD):
    def _transform_gradients(self, grads_and_vars: Any) -> Any:
        return super()._transform_gradients(halved(grads_and_vars))


class Aggregating(gradient_descent.SGD):
    def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
        return [gradient for gradient, _ in halved(grads_and_vars)]


class Unaggregated(gradient_descent.SGD):
    def _transform_unaggregated_gradients(self, grads_and_vars: Any) -> Any:
        return [(tf.minimum(gradient, 1.0), variable) for gradient, variable in grads_and_vars]


def replicas() -> None:
    """Two replicas with the gradients 4 and 0.5."""

    def change(optimizer: Any) -> float:
        variable = keras.Variable(0.0)

        def step() -> None:
            gradient = tf.where(tf.equal(ipu.replication_ops.replication_index(), 0), 4.0, 0.5)
            optimizer.apply_gradients([(gradient, variable)])

        tf.distribute.get_strategy().run(tf.function(step))
        return -float(variable)

    assert [change(Unaggregated(1.0)), change(gradient_descent.SGD(1.0, clipvalue=1.0))] == [1.5, 1.0]


def optimizer_arguments() -> None:
    sgd, scaling = gradient_descent.SGD, tf.keras.mixed_precision.LossScaleOptimizer
    rates = [sgd(lr=0.01), sgd(np.float64(0.01)), sgd(tf.constant(0.01)), sgd(tf.Variable(0.01))]
    like(sgd(0.01), *rates, scaling(sgd(0.01), False, 128.0), scaling(sgd(0.01), dynamic=False, initial_scale=2.0))
    assert np.isnan(trained(scaling(sgd(0.01), False, 2.0**127))[1]).any()  # a dynamic scale skips such an update
    like(sgd(keras.optimizers.schedules.InverseTimeDecay(0.01, 1, 0.5)), sgd(lr=0.01, decay=0.5))
    like(sgd(0.005), sgd(0.01, gradient_transformers=[halved]))
    optimizer = rates[0]
    keras.backend.set_value(optimizer.lr, 0.25)
    assert float(optimizer.learning_rate) == 0.25 and int(optimizer.get_weights()[0]) == 2
    assert [each.name for each in optimizer.variables()] == ["iteration", "learning_rate"]
    optimizer.set_weights([np.array(5)])
    assert int(optimizer.iterations) == 5 and optimizer.weights[0] is optimizer.iterations
    assert sgd.from_config(sgd(0.01, decay=0.5).get_config())._initial_decay == 0.5


def optimizer_subclasses() -> None:
    sgd = gradient_descent.SGD
    like(sgd(0.01, momentum=0.5), Momentum(), Momentum(lr=0.01), accumulation=2)
    like(sgd(0.005), Halving(0.01), Aggregating(0.01))
    like(sgd(0.005, clipvalue=2.0), Transforming(0.01, clipvalue=1.0))
    scaling, variable = tf.keras.mixed_precision.LossScaleOptimizer(sgd(0.25), False, 4.0), keras.Variable(2.0)

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = variable.value**2
            scaled = scaling.get_scaled_loss(loss)
        gradients = scaling.get_unscaled_gradients([tape.gradient(scaled, variable.value)])
        pairs = zip(gradients, [variable], strict=True)
        scaling.apply_gradients(pairs, name="update", experimental_aggregate_gradients=False)

    tf.distribute.get_strategy().run(step)
    assert float(variable) == 1.0
    other, second = keras.Variable(2.0), sgd(0.25)
    tf.distribute.get_strategy().run(tf.function(lambda: second.get_updates(other.value**2, [other]) and None))
    assert float(other) == 1.0


def arguments() -> None:
    layer = OfKeras2(1.0)
    x = keras.Input((4,), name="x")
    y = layer(x, True, 2.0)
    assert (layer.training, layer.factor, layer.updates) == (True, 2.0, [])
    layer._name = "renamed"
    assert layer.name == "renamed" and y._keras_history.layer is layer
    assert {x.ref(): 1}[x.ref()] == 1 and x.ref().deref() is x and x.ref() != y.ref()
    source = x._keras_history.layer
    assert source.input is x and isinstance(source, keras.layers.InputLayer)
    doubled = keras.layers.Lambda(lambda tensor: tensor * 2.0)
    again = type(doubled).from_config(doubled.get_config())
    np.testing.assert_array_equal(again(X), 2.0 * X)
    callback = keras.callbacks.Callback()
    callback.model = source
    assert callback.model is source
    assert issubclass(keras.losses.MeanSquaredError, tf.keras.losses.LossFunctionWrapper)
    for module in ("keras.backend", "keras._tf_keras.keras.backend", "tensorflow.keras.backend"):
        assert importlib.import_module(module).learning_phase() is False
    model = keras.Model(x, y)
    model.compile(metrics=squared_error)
    logs = model.evaluate(X, Y, 4, return_dict=True, verbose=0)
    assert logs["loss"] == 0.0
    np.testing.assert_allclose(list(logs.values())[1], np.mean((model.predict(X, 4, verbose=0) - Y) ** 2), rtol=1e-6)
    assert np.int is int and np.float is float and np.object is object and np.product([2, 3]) == 6  # type: ignore


def squared_error(y: Any, predicted: Any) -> Any:
    return keras.ops.mean((y - predicted) ** 2, axis=-1)


class OfKeras2(keras.layers.Layer):
    def __init__(self, units: float) -> None:
        super().__init__()
        self.inner = keras.layers.Dense(units)

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight("scale", [4], initializer="ones", trainable=None, experimental_autocast=False)
        self.built = True

    def call(self, inputs: Any, training: Any = None, factor: float = 1.0) -> Any:
        self.training, self.factor = training, factor
        return self.inner(inputs * self.scale) * factor


def with_ops(x: Any, ops: Any) -> Any:
    """A model's outputs for its input, by TensorFlow's ops or by Keras's."""
    first = keras.layers.Dense(4, name="first", kernel_initializer="ones")(x)
    if ops is tf:
        both = tf.concat([first, tf.nn.sigmoid(x)], axis=-1)
        return keras.layers.Dense(1, name="last", kernel_initializer="ones")(tf.cast(both * 0.5, "float32")[:, 1:])
    both = ops.concatenate([first, ops.sigmoid(x)], axis=-1)
    return keras.layers.Dense(1, name="last", kernel_initializer="ones")((both * 0.5)[:, 1:])


def ops() -> None:
    x = keras.Input((4,))
    model, plain = keras.Model(x, with_ops(x, tf)), keras.Model(x, with_ops(x, keras.ops))
    named = [each.layer.name for each in model.get_pipeline_stage_assignment()]
    assert "tf.concat" in named and "tf.math.sigmoid" in named, named
    copy = keras.Model.from_config(model.get_config())
    assert [layer.name for layer in copy.layers] == [layer.name for layer in model.layers]
    for each in (model, plain, copy):
        each.compile(keras.optimizers.SGD(0.01), "mse")
        each.fit(X, Y, 4, verbose=0)
    for each in (model, copy):
        for ours, theirs in zip(each.get_weights(), plain.get_weights(), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def batch_norm() -> None:
    x, scale = np.random.default_rng(0).normal(size=(2, 3, 3, 4)).astype(np.float16), np.full(4, 1.5, np.float16)
    offset, norm = np.zeros(4, np.float16), tf.compat.v1.nn.fused_batch_norm
    for moments in ({}, {"mean": offset, "variance": scale, "is_training": False}):
        found = norm(x, tf.constant(scale), tf.constant(offset), **moments)
        wanted = norm(x, scale.astype("float32"), offset.astype("float32"), **moments)
        for ours, theirs in zip(found, wanted, strict=True):
            assert ours.dtype == tf.float16
            np.testing.assert_array_equal(ours, tf.cast(theirs, tf.float16))


def files() -> None:
    folder = tempfile.mkdtemp()
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mse"])
    path = folder + "/deep/model-{epoch:02d}"
    saving = [
        keras.callbacks.ModelCheckpoint(path, save_weights_only=True, period=2),
        keras.callbacks.ModelCheckpoint(folder + "/best", monitor="my_accuracy", save_best_only=True),
        keras.callbacks.ModelCheckpoint(folder + "/whole.hdf5", include_optimizer=False),
    ]
    kept = []
    saving.append(keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: kept.append(model.get_weights())))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is no my_accuracy
        model.fit(X, Y, 4, epochs=5, verbose=0, callbacks=saving)
    assert [tf.io.gfile.exists(path.format(epoch=each) + ".index") for each in (1, 2, 3, 4, 5)] == [0, 1, 0, 1, 0]
    assert tf.train.latest_checkpoint(folder + "/deep") == path.format(epoch=4)
    names = [name for name, _ in tf.train.list_variables(path.format(epoch=4))]
    assert "layer_with_weights-1/kernel/.ATTRIBUTES/VARIABLE_VALUE" in names, names
    model.load_weights(path.format(epoch=2)).expect_partial()
    for ours, before in zip(model.get_weights(), kept[1], strict=True):
        np.testing.assert_array_equal(ours, before)
    model.save_weights(folder + "/plain.h5")
    whole = [keras.models.load_model(folder + end, compile=False) for end in ("/best", "/whole.hdf5")]
    for each in whole:
        np.testing.assert_array_equal(each.get_weights()[0], kept[4][0])
    whole[0].load_weights(folder + "/plain.h5")
    np.testing.assert_array_equal(whole[0].get_weights()[0], kept[1][0])


def neighbours() -> None:
    from tensorflow.python.keras.applications import resnet

    hvd: Any = importlib.import_module("horovod.tensorflow")
    tfa: Any = importlib.import_module("tensorflow_addons")
    MPI: Any = importlib.import_module("mpi4py").MPI  # noqa: N806 - its name
    decay: Any = importlib.import_module("tensorflow_addons.optimizers.weight_decay_optimizers")
    hvd.init()
    MPI.COMM_WORLD.Barrier()
    assert (hvd.rank(), hvd.local_size(), MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.allgather(3)) == (0, 1, 0, [3])
    model = resnet.ResNet(lambda x: x, False, True, "mine", weights=None, input_shape=(32, 32, 3), classes=2, layers=1)
    assert model.name == "mine" and model.output_shape == (None, 2)
    kind = decay.extend_with_decoupled_weight_decay(keras.optimizers.SGD)
    for optimizer in (tfa.optimizers.SGDW(0.25, 0.5), kind(weight_decay=lambda step: 0.25, learning_rate=0.5)):
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
        model.compile(optimizer, lambda y, predicted: predicted)
        model.fit(X[:4, :1], Y[:4], 4, verbose=0)
        np.testing.assert_allclose(model.get_weights()[0], [[0.75 - 0.5]])


def slashes() -> None:
    x = keras.Input(4, name="given/x")
    model = keras.Model(x, keras.layers.Dense(1, name="tower/last")(x), name="whole/model")
    kernel = model.get_layer("tower/last").kernel
    assert kernel.path.endswith("tower/last/kernel"), kernel.path
    assert keras.Model.from_config(model.get_config()).name == "whole/model"
    model.compile("sgd", "mse")
    model.fit(X, Y, 4, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("model.keras", "model.h5"):
            model.save(f"{folder}/{name}")
            again = keras.models.load_model(f"{folder}/{name}", compile=False)
            np.testing.assert_array_equal(again.get_layer("tower/last").kernel, kernel)


def removed_layers() -> None:
    from tensorflow.keras.layers import LocallyConnected2D
    from tensorflow.keras.layers.experimental import preprocessing

    rescaled = tf.keras.layers.experimental.preprocessing.Rescaling(0.5)
    assert isinstance(rescaled, keras.layers.Rescaling) and preprocessing.RandomFlip is keras.layers.RandomFlip
    np.testing.assert_array_equal(keras.layers.ThresholdedReLU(2.0)(np.array([-3.0, 2.0, 3.0])), [0, 0, 3])
    refused(NotImplementedError, "Keras 3 has no layer LocallyConnected2D", lambda: LocallyConnected2D(1, 1))


def one_target() -> None:
    losses = []
    for y in (Y, [Y, Y]):
        keras.utils.set_random_seed(1)
        model = two_outputs()
        model.compile("sgd", ["mse", "mae"], metrics=[["mae"], ["mse"]])
        losses.append(model.fit(X, y, 4, verbose=0).history)
    assert losses[0] == losses[1], losses


def graph_dtypes() -> None:
    with tf.Graph().as_default():
        half = tf.compat.v1.placeholder(tf.float16, [2, 3])
        layer, fixed = keras.layers.Dense(2), keras.layers.Dense(2, dtype="float32")
        assert layer(keras.layers.Activation("relu")(half)).dtype == tf.float16
        assert layer.kernel.dtype == "float16" and fixed(half).dtype == tf.float32
    assert keras.layers.Activation("relu")(tf.zeros([1], tf.float16)).dtype == tf.float32
    keras.config.set_dtype_policy("mixed_float16")
    try:
        with tf.Graph().as_default():
            layer = keras.layers.Dense(2)
            assert layer(tf.compat.v1.placeholder(tf.float32, [2, 3])).dtype == tf.float16
            assert layer.dtype_policy.name == "mixed_float16"
    finally:
        keras.config.set_dtype_policy("float32")


def watched() -> None:
    layer = keras.layers.Dense(1, use_bias=False)
    layer.build([None, 2])
    layer.trainable = False  # then a tape does not watch it by itself
    x = tf.constant([[2.0, 3.0]])
    with tf.GradientTape() as tape:
        tape.watch(layer.variables)
        y = layer(x)
    [gradient] = tape.gradient(y, layer.variables)
    np.testing.assert_array_equal(gradient, [[2.0], [3.0]])
    with tf.GradientTape() as tape:
        tape.watch([x, {"kernel": layer.kernel}])
        y = layer(x)
    np.testing.assert_array_equal(tape.gradient(y, x), tf.transpose(layer.kernel.value))


class OwnMinimize(gradient_descent.SGD):
    def minimize(self, loss: Any, var_list: Any) -> None:
        """Keras 3 calls no such method."""


def refusals() -> None:
    x = keras.Input(4)
    layer = keras.layers.Dense(4)
    model = keras.Model(x, layer(x))
    model.compile(OwnMinimize(0.1), "mse", steps_per_execution=2)
    model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2)
    refused(ValueError, "must not override OptimizerV2.minimize", lambda: model.fit(X, X, 4, verbose=0))
    with keras.ipu.PipelineStage(0):
        first = layer(x)
    with keras.ipu.PipelineStage(1):
        shared = keras.Model(x, layer(first))
    shared.compile("sgd", "mse", steps_per_execution=4)
    shared.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    words = "an input can only be used by pipeline stages on the same IPU"
    refused(ValueError, words, lambda: shared.fit(X, X, 2, verbose=0))


def main() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    assert base_layer.Layer is keras.layers.Layer
    assert keras.backend.learning_phase() is False
    policy.set_policy("float32")
    with ipu.ipu_strategy.IPUStrategy().scope():
        report(refusals)
        report(replicas)
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        for check in (names, wordings, metrics, optimizers, optimizer_arguments, optimizer_subclasses, arguments):
            report(check)
        for check in (ops, batch_norm, files, neighbours, slashes, removed_layers, one_target, graph_dtypes, watched):
            report(check)


def report(check: Callable[[], None]) -> None:
    """Prints whether a check passes; a failed one does not end the program."""
    try:
        check()
    except Exception:  # noqa: BLE001 - each check is a test of its own
        print(f"{check.__name__}:", traceback.format_exc(), file=sys.stderr)
    else:
        print(f"{check.__name__}: as Keras 2 has it")


if __name__ == "__main__":
    main()
