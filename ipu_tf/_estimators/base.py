"""`IPUEstimatorBase`: builds one device program for each mode, and runs it step by step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._estimators.configure_device import BATCH_SIZE, configure, local_batch_size
from ipu_tf._estimators.hooks import FeedsHook, StepHook, free
from ipu_tf._estimators.model import EstimatorLoop, EstimatorModel
from ipu_tf.ipu_compiler import compile as compile_program
from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
from ipu_tf.ipu_run_config import RunConfig
from ipu_tf.scopes import ipu_scope
from ipu_tf.tf_estimator.built_model import BuiltModel
from ipu_tf.tf_estimator.calls import argument_names
from ipu_tf.tf_estimator.estimator import Estimator
from ipu_tf.tf_estimator.input_data import features_and_labels
from ipu_tf.tf_estimator.model_fn import ModeKeys
from ipu_tf.tf_estimator.prediction import examples

tf1 = tf.compat.v1
_RESERVED = ["input_fn"]


class IPUEstimatorBase(Estimator):
    """An estimator whose steps are iterations of a loop on the device.

    Args:
        model_fn: the user's function.
        model_dir: as for `Estimator`.
        config: an `ipu_run_config.RunConfig`.
        params: as for `Estimator`.
        warm_start_from: as for `Estimator`.
        train_batch_size: the batch size of all replicas together, for training; `input_fn` and `model_fn` get that of
            one as `params["batch_size"]`.
        eval_batch_size: so for evaluation.
        predict_batch_size: so for prediction.

    Raises:
        ValueError: for a wrong `config`, `params` or batch size.
    """

    #: By mode, the loop that a program is made of.
    loops: dict[str, Callable[[EstimatorModel, IPUInfeedQueue], EstimatorLoop]] = {}
    _config: RunConfig

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: Any = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        warm_start_from: Any = None,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
    ) -> None:
        if not isinstance(config, RunConfig):
            raise ValueError("`config` must be provided with type `ipu_run_config.RunConfig`")
        sizes = {ModeKeys.TRAIN: train_batch_size, ModeKeys.EVAL: eval_batch_size, ModeKeys.PREDICT: predict_batch_size}
        _check_params(params, any(size is not None for size in sizes.values()))
        self._batch_sizes = {mode: local_batch_size(size, mode, config) for mode, size in sizes.items()}
        super().__init__(model_fn, model_dir, config, params, warm_start_from)

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Sequence[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[Any] | None = None,
    ) -> Any:
        """Trains, from the newest checkpoint on if there is one, and saves.

        Args:
            input_fn: gives a `tf.data.Dataset` of (features, labels), in batches of a fixed size; called with `mode`,
                `params` and `config` if it names them.
            hooks: `SessionRunHook`s.
            steps: how many steps to train, a multiple of `iterations_per_loop`.
            max_steps: the global step to train up to, rounded up to whole loops; one of the two.
            saving_listeners: `CheckpointSaverListener`s.

        Returns:
            The estimator.

        Raises:
            ValueError: if none or both of the numbers are given, or `steps` is no multiple.
            tf.errors.OutOfRangeError: if the data ends before the steps do. What was trained is saved.
        """
        self._check_multiple(steps)
        return super().train(input_fn, hooks, steps, max_steps, saving_listeners)

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluates the model of a checkpoint.

        Args:
            input_fn: as for `train`.
            steps: how many steps, a multiple of `iterations_per_loop`.
            hooks: `SessionRunHook`s.
            checkpoint_path: the checkpoint, by default the newest; without any, the initial values are evaluated.
            name: tells evaluations of different data apart, in the folder of their summaries.

        Returns:
            The metrics by name, with `loss`, the mean loss, and `global_step`, that of the checkpoint.

        Raises:
            ValueError: if `steps` is missing, or no multiple.
            tf.errors.OutOfRangeError: if the data ends before the steps do.
        """
        self._check_multiple(steps)
        return super().evaluate(input_fn, steps, hooks, checkpoint_path, name)

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Sequence[str] | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
        num_predictions: int | None = None,
    ) -> Iterator[Any]:
        """Predicts, one example after the other.

        Args:
            input_fn: gives a `tf.data.Dataset` of features, or of tuples that begin with them.
            predict_keys: which predictions are wanted, where the model gives a dictionary.
            hooks: `SessionRunHook`s.
            checkpoint_path: as for `evaluate`.
            yield_single_examples: whether batches are taken apart.
            num_predictions: ends after so many; by default when the data does.

        Yields:
            Arrays, or dictionaries of arrays: of an example, or else of a batch. With several replicas there is one
            more dimension, as with Graphcore: an "example" is then what one replica predicts in a step, its batch, and
            otherwise it is that of all replicas, `[replicas, batch, ...]`. Concatenate the former to have the examples
            in order.
        """
        batches = examples(self._predicted(input_fn, predict_keys, hooks, checkpoint_path))
        yield from itertools.islice(examples(batches) if yield_single_examples else batches, num_predictions)

    def _params_for(self, mode: str) -> dict[str, Any]:
        size = self._batch_sizes[mode]
        return self.params if size is None else {**self.params, BATCH_SIZE: size}

    def _call_input_fn(self, input_fn: Callable[..., Any], mode: str) -> tf.data.Dataset:
        if self._batch_sizes[mode] is not None and "params" not in argument_names(input_fn):
            raise ValueError(f"input_fn must have params argument to receive params['{BATCH_SIZE}']")
        dataset = super()._call_input_fn(input_fn, mode)
        if not isinstance(dataset, tf.data.Dataset):
            raise ValueError(f"input_fn must return Dataset. Received: {dataset!r}.")
        features_and_labels(dataset.element_spec, mode)
        return dataset

    def _build(self, input_fn: Callable[..., Any], mode: str) -> BuiltModel:
        self._refuse_workers()
        dataset = self._call_input_fn(input_fn, mode)
        run = self._config.ipu_run_config
        device = configure(run)
        infeed = IPUInfeedQueue(dataset, device_ordinal=run.ordinal, prefetch_depth=run.prefetch_depth)
        model = EstimatorModel(self._model_fn, mode, self._params_for(mode), self._config)
        loop = self.loops[mode](model, infeed)
        try:
            with ipu_scope(device):
                compiled = compile_program(_placed(loop.program, device))
            spec = loop.finish(compiled)
        except Exception:
            if loop.outfeed is not None:
                free(loop.outfeed)
            raise
        feeds = FeedsHook(infeed, loop.outfeed)
        return BuiltModel(spec, (feeds,), endless=True, leftovers=loop.leftovers(), close=feeds.close)

    def _step_hook(self, steps: int | None, max_steps: int | None) -> StepHook:
        return StepHook(self._config.ipu_run_config.iterations_per_loop, steps, max_steps)

    def _evaluation_step_hooks(self, steps: int | None) -> list[Any]:
        return [self._step_hook(steps, None)]

    def _check_multiple(self, steps: int | None) -> None:
        iterations = self._config.ipu_run_config.iterations_per_loop
        if steps is not None and steps % iterations:
            raise ValueError(f"steps ({steps}) must be a multiple of iterations_per_loop ({iterations})")


def _placed(program: Callable[[], Any], device: str) -> Callable[[], Any]:
    """A program whose operations bear the name of their device, and its variables, which are the host's, the CPU's."""
    host = tf1.get_default_graph()

    def place(operation: tf.Operation) -> str:
        return "/device:CPU:0" if operation.graph is host else device

    def placed() -> Any:
        with tf1.device(place):
            return program()

    return placed


def _check_params(params: Any, sizes_given: bool) -> None:
    if params is None:
        return
    if not isinstance(params, dict):
        raise ValueError("`params` is expected to be of type `dict`")
    if any(key in params for key in _RESERVED):
        raise ValueError(f"{_RESERVED} are reserved keys but existed in params {params}.")
    if sizes_given and BATCH_SIZE in params:
        raise ValueError(f"{BATCH_SIZE} cannot be passed in params when a batch size argument is passed")
