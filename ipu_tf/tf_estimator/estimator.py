"""`Estimator`: trains, evaluates and predicts with a `model_fn`, each in its own graph and session."""

from __future__ import annotations

import contextlib
import copy
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._arguments.counts import checked_integer
from ipu_tf._strategy.hooks import standalone_graph_scope
from ipu_tf.emulation import EmulationError
from ipu_tf.lowering.tensorflow import tf_private
from ipu_tf.tf_estimator.built_model import BuiltModel
from ipu_tf.tf_estimator.calls import call_model_fn, call_with, check_model_fn
from ipu_tf.tf_estimator.evaluation import run_evaluation, write_summary
from ipu_tf.tf_estimator.hooks import StopAfterRunsHook
from ipu_tf.tf_estimator.input_data import make_input
from ipu_tf.tf_estimator.model_fn import EstimatorSpec, ModeKeys
from ipu_tf.tf_estimator.placement import refuse_uncompiled
from ipu_tf.tf_estimator.prediction import examples, predictions
from ipu_tf.tf_estimator.run_config import RunConfig
from ipu_tf.tf_estimator.spec_checks import checked_hooks
from ipu_tf.tf_estimator.training import Training, run_training
from ipu_tf.tf_estimator.warm_start import warm_start, warm_start_settings

tf1 = tf.compat.v1
ModelFn = Callable[..., Any]
InputFn = Callable[..., Any]


class Estimator:
    """Trains, evaluates and predicts with a model that a function builds. On the host; see `IPUEstimator`.

    Args:
        model_fn: takes `features` and, if it names them, `labels`, `mode`, `params` and `config`; gives an
            `EstimatorSpec`.
        model_dir: the folder of checkpoints and summaries; by default `config.model_dir`, else a temporary one.
        config: a `RunConfig`.
        params: hyper-parameters for `model_fn` and `input_fn`.
        warm_start_from: a checkpoint, a folder of some, or `WarmStartSettings`: what training starts from while
            `model_dir` has no checkpoint.

    Raises:
        ValueError: if `model_fn` cannot be called so, or `model_dir` differs from that of `config`.
    """

    def __init__(
        self,
        model_fn: ModelFn,
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        warm_start_from: Any = None,
    ) -> None:
        self._check_model_fn(model_fn, params)
        self._model_fn = model_fn
        self._config = _with_model_dir(config or RunConfig(), model_dir)
        self._params = copy.deepcopy(params or {})
        self._warm_start = warm_start_settings(warm_start_from)

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints and summaries."""
        assert self._config.model_dir is not None
        return self._config.model_dir

    @property
    def config(self) -> Any:
        """The configuration, with the folder filled in."""
        return self._config

    @property
    def params(self) -> dict[str, Any]:
        """A copy of the hyper-parameters."""
        return copy.deepcopy(self._params)

    @property
    def model_fn(self) -> ModelFn:
        """The model function with the hyper-parameters bound: takes `features`, `labels`, `mode` and `config`."""
        return lambda features, labels, mode, config: call_model_fn(
            self._model_fn, features, labels, mode, self._params, config
        )

    def latest_checkpoint(self) -> str | None:
        """The newest checkpoint's path; None before the first."""
        path: str | None = tf1.train.latest_checkpoint(self.model_dir)
        return path

    def get_variable_names(self) -> list[str]:
        """The names of all variables of the newest checkpoint.

        Raises:
            ValueError: if there is none.
        """
        return sorted(self._checkpoint_reader().get_variable_to_shape_map())

    def get_variable_value(self, name: str) -> np.ndarray:
        """The value of a variable in the newest checkpoint.

        Raises:
            ValueError: if there is no checkpoint.
        """
        value: np.ndarray = self._checkpoint_reader().get_tensor(name)
        return value

    def eval_dir(self, name: str | None = None) -> str:
        """The folder of the summaries of evaluations of this name."""
        return os.path.join(self.model_dir, f"eval_{name}" if name else "eval")

    def train(
        self,
        input_fn: InputFn,
        hooks: Sequence[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[Any] | None = None,
    ) -> Any:
        """Trains, from the newest checkpoint on if there is one, and saves.

        Args:
            input_fn: gives a `tf.data.Dataset` of (features, labels); called with `mode`, `params` and `config` if it
                names them.
            hooks: `SessionRunHook`s.
            steps: how many steps to train.
            max_steps: the global step to train up to. With neither, training ends with the data.
            saving_listeners: `CheckpointSaverListener`s.

        Returns:
            The estimator.

        Raises:
            ValueError: for both of `steps` and `max_steps`, or a number below 1.
        """
        if steps is not None and max_steps is not None:
            raise ValueError("Can not provide both steps and max_steps.")
        _check_steps(steps, "steps")
        _check_steps(max_steps, "max_steps")
        if max_steps is not None and self._saved_step() >= max_steps:
            tf_private.log_info("Skipping training since max_steps has already saved.")
            return self
        with self._graph(), contextlib.ExitStack() as stack:
            built = self._opened(stack, input_fn, ModeKeys.TRAIN)
            if self._warm_start is not None:
                warm_start(self._warm_start)
            step_hook = self._step_hook(steps, max_steps)
            training = Training(
                self._config, self.model_dir, step_hook, checked_hooks(hooks), tuple(saving_listeners or ())
            )
            loss = run_training(built, training)
        tf_private.log_info("Loss for final step: %s.", loss)
        return self

    def evaluate(
        self,
        input_fn: InputFn,
        steps: int | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluates the model of a checkpoint.

        Args:
            input_fn: as for `train`.
            steps: how many steps; None until the data ends.
            hooks: `SessionRunHook`s.
            checkpoint_path: the checkpoint, by default the newest; without any, the initial values are evaluated.
            name: tells evaluations of different data apart, in the folder of their summaries.

        Returns:
            The metrics by name, with `loss`, their mean loss, and `global_step`, that of the checkpoint.

        Raises:
            ValueError: for a number of steps below 1.
        """
        _check_steps(steps, "steps")
        with self._graph(), contextlib.ExitStack() as stack:
            built = self._opened(stack, input_fn, ModeKeys.EVAL)
            every = [*checked_hooks(hooks), *self._evaluation_step_hooks(steps)]
            results = run_evaluation(built, self._config, checkpoint_path or self.latest_checkpoint(), every)
        tf_private.log_info("Saving dict for global step %d: %s", results[tf1.GraphKeys.GLOBAL_STEP], results)
        write_summary(self.eval_dir(name), results)
        return results

    def predict(
        self,
        input_fn: InputFn,
        predict_keys: Sequence[str] | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Predicts, one example after the other, until the data ends.

        Args:
            input_fn: gives a `tf.data.Dataset` of features, or of tuples that begin with them.
            predict_keys: which predictions are wanted, where the model gives a dictionary.
            hooks: `SessionRunHook`s.
            checkpoint_path: as for `evaluate`.
            yield_single_examples: whether batches are taken apart.

        Yields:
            Arrays, or dictionaries of arrays.
        """
        runs = self._predicted(input_fn, predict_keys, hooks, checkpoint_path)
        yield from examples(runs) if yield_single_examples else runs

    def export_saved_model(self, *args: Any, **kwargs: Any) -> None:
        """Not provided.

        Raises:
            EmulationError: always.
        """
        raise EmulationError(
            f"{type(self).__name__}.export_saved_model is not provided. The model's variables are in the checkpoints "
            "of `model_dir`; to serve a model, build its function over them and use `ipu.serving`."
        )

    experimental_export_all_saved_models = export_saved_model

    # What other kinds of estimators do in another way:

    def _check_model_fn(self, model_fn: ModelFn, params: Any) -> None:
        check_model_fn(model_fn, params)

    def _params_for(self, mode: str) -> dict[str, Any]:
        return self.params  # a copy for each call, as functions may change what they are given

    def _call_input_fn(self, input_fn: InputFn, mode: str) -> Any:
        with tf.device("/device:CPU:0"):
            return call_with(input_fn, {"mode": mode, "params": self._params_for(mode), "config": self._config})

    def _build(self, input_fn: InputFn, mode: str) -> BuiltModel:
        self._refuse_workers()
        features, labels, hooks = make_input(self._call_input_fn(input_fn, mode), mode)
        spec = call_model_fn(self._model_fn, features, labels, mode, self._params_for(mode), self._config)
        if not isinstance(spec, EstimatorSpec):
            raise ValueError("model_fn should return an EstimatorSpec.")
        refuse_uncompiled(tf1.get_default_graph())
        return BuiltModel(spec, hooks)

    def _refuse_workers(self) -> None:
        for strategy in (self._config.train_distribute, self._config.eval_distribute):
            if strategy is not None and strategy.num_replicas_in_sync > 1:
                raise EmulationError(
                    f"RunConfig asks for {strategy.num_replicas_in_sync} workers with {type(strategy).__name__}. "
                    "Estimators run in one process, and emulated IPUs belong to it: use an IPUEstimator with "
                    "num_replicas of IPURunConfig instead."
                )

    def _step_hook(self, steps: int | None, max_steps: int | None) -> Any:
        if steps is None and max_steps is None:
            return tf1.train.SessionRunHook()
        return tf1.train.StopAtStepHook(steps, max_steps)

    def _evaluation_step_hooks(self, steps: int | None) -> list[Any]:
        return [] if steps is None else [StopAfterRunsHook(steps)]

    # What they share:

    @contextlib.contextmanager
    def _graph(self) -> Iterator[None]:
        """Context manager: a new graph with a global step, and layer names counted anew."""
        with tf.Graph().as_default(), standalone_graph_scope():
            tf1.set_random_seed(self._config.tf_random_seed)
            with tf.device("/device:CPU:0"):
                tf1.get_variable(
                    tf1.GraphKeys.GLOBAL_STEP,
                    shape=[],
                    dtype=tf.int64,
                    initializer=tf1.zeros_initializer(),
                    trainable=False,
                    use_resource=True,
                    collections=[tf1.GraphKeys.GLOBAL_VARIABLES, tf1.GraphKeys.GLOBAL_STEP],
                )
            yield

    def _opened(self, stack: contextlib.ExitStack, input_fn: InputFn, mode: str) -> BuiltModel:
        built = self._build(input_fn, mode)
        stack.callback(built.close)
        return built

    def _predicted(
        self,
        input_fn: InputFn,
        keys: Sequence[str] | None,
        hooks: Sequence[Any] | None,
        checkpoint_path: str | None,
    ) -> Iterator[Any]:
        with contextlib.ExitStack() as stack:
            # The caller's code runs between two examples: it must not find this graph to be the current one.
            with self._graph():
                built = self._opened(stack, input_fn, ModeKeys.PREDICT)
                checkpoint = checkpoint_path or self.latest_checkpoint()
                runs = predictions(built, self._config, checkpoint, checked_hooks(hooks), keys)
            yield from runs

    def _saved_step(self) -> int:
        return int(self.get_variable_value(tf1.GraphKeys.GLOBAL_STEP)) if self.latest_checkpoint() else 0

    def _checkpoint_reader(self) -> Any:
        if self.latest_checkpoint() is None:
            raise ValueError(f"Could not find a checkpoint in {self.model_dir}. Train the model first.")
        return tf1.train.load_checkpoint(self.model_dir)


def _with_model_dir(config: RunConfig, model_dir: str | os.PathLike[str] | None) -> RunConfig:
    own = None if model_dir is None else os.fspath(model_dir)
    if own is not None and config.model_dir is not None and own != config.model_dir:
        raise ValueError(
            "`model_dir` are set both in constructor and `RunConfig`, but with different values. In constructor: "
            f"'{own}', in `RunConfig`: '{config.model_dir}'"
        )
    changed: RunConfig = config.replace(model_dir=own or config.model_dir or tempfile.mkdtemp())
    return changed


def _check_steps(steps: int | None, name: str) -> None:
    if steps is not None and checked_integer(name, steps) <= 0:
        raise ValueError(f"Must specify {name} > 0, given: {steps}")
