"""The `set_..._options` methods of IPU models."""

from __future__ import annotations

import types
from typing import Any

from ipu_tf.emulation import record_ignored
from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
from ipu_tf.ipu_outfeed_queue import IPUOutfeedQueue
from keras_ipu.options import checks as option_checks
from keras_ipu.options.model_state import options_of, set_options
from keras_ipu.options.options import ReplicatedMetricReductionMethod

_NO_EFFECT_ACCUMULATION = ("offload_weight_update_variables", "replicated_optimizer_state_sharding")
_NO_EFFECT_PIPELINING = (
    "forward_propagation_stages_poplar_options",
    "backward_propagation_stages_poplar_options",
    "weight_update_poplar_options",
    "offload_weight_update_variables",
    "replicated_optimizer_state_sharding",
    "offload_activations",
    "offload_gradient_accumulation_buffers",
    "replicated_weight_sharding",
    "offload_weights",
)


class OptionMethods:
    """Methods that every model made in the scope of an `IPUStrategy` has.

    Each replaces the model's options and makes it compile its functions anew. An argument left at None, or not given,
    keeps what was set before, except the keyword arguments, which are replaced as a whole.
    """

    def set_asynchronous_callbacks(self, asynchronous: bool = False) -> None:
        """Sets whether callbacks run for every step while an execution is still under way.

        Args:
            asynchronous: True for a call a step; False for a call an execution of `steps_per_execution` steps.
        """
        set_options(self, asynchronous_callbacks=bool(asynchronous))

    def set_replication_options(
        self, replicated_metric_reduction_method: str | ReplicatedMetricReductionMethod = "NONE"
    ) -> None:
        """Sets how metrics of several replicas are reduced.

        Args:
            replicated_metric_reduction_method: NONE, LIST, SUM or MEAN.

        Raises:
            ValueError: if there is no such method.
        """
        method = ReplicatedMetricReductionMethod.parse(replicated_metric_reduction_method)
        set_options(self, replicated_metric_reduction=method)

    def set_gradient_accumulation_options(
        self,
        gradient_accumulation_steps_per_replica: int | None = None,
        gradient_accumulation_reduction_method: Any = "sum",
        use_v2_gradient_accumulation_optimizer: bool = False,
        **gradient_accumulation_optimizer_kwargs: Any,
    ) -> None:
        """Sets how `fit` accumulates gradients, where the model is not pipelined.

        Args:
            gradient_accumulation_steps_per_replica: steps a weight update accumulates over. It must divide
                `steps_per_execution`.
            gradient_accumulation_reduction_method: "sum", "mean" or "running_mean".
            use_v2_gradient_accumulation_optimizer: whether Keras's optimizer itself is wrapped; the numbers are the
                same.
            **gradient_accumulation_optimizer_kwargs: further arguments of the accumulating optimizer. They are not
                saved with the model.

        Raises:
            ValueError: for a value that cannot be, or an argument that is set in another way.
        """
        steps = option_checks.checked_steps(gradient_accumulation_steps_per_replica)
        kwargs = option_checks.checked_accumulation_kwargs(gradient_accumulation_optimizer_kwargs)
        _record("set_gradient_accumulation_options", _NO_EFFECT_ACCUMULATION, kwargs)
        set_options(
            self,
            gradient_accumulation_reduction=option_checks.checked_reduction(gradient_accumulation_reduction_method),
            gradient_accumulation_steps=options_of(self).gradient_accumulation_steps if steps is None else steps,
            gradient_accumulation_kwargs=types.MappingProxyType(dict(kwargs)),
            use_v2_gradient_accumulation_optimizer=bool(use_v2_gradient_accumulation_optimizer),
        )

    def set_pipelining_options(
        self,
        gradient_accumulation_steps_per_replica: int | None = None,
        device_mapping: list[int] | None = None,
        accumulate_outfeed: bool | None = None,
        gradient_accumulation_reduction_method: Any = "sum",
        **pipelining_kwargs: Any,
    ) -> None:
        """Sets how a pipelined model runs.

        Args:
            gradient_accumulation_steps_per_replica: steps a weight update accumulates over. `fit` of a pipelined
                model needs it, and it must divide `steps_per_execution`.
            device_mapping: the IPU of each stage.
            accumulate_outfeed: whether metrics are averaged on the device over an execution.
            gradient_accumulation_reduction_method: "sum", "mean" or "running_mean".
            **pipelining_kwargs: further arguments of `pipelining_ops.pipeline`. They are not saved with the model.

        Raises:
            ValueError: for a value that cannot be, or an argument that is set in another way.
        """
        steps = option_checks.checked_steps(gradient_accumulation_steps_per_replica)
        mapping = option_checks.checked_device_mapping(device_mapping)
        kwargs = option_checks.checked_pipelining_kwargs(pipelining_kwargs)
        _record("set_pipelining_options", _NO_EFFECT_PIPELINING, kwargs)
        old = options_of(self)
        set_options(
            self,
            gradient_accumulation_reduction=option_checks.checked_reduction(gradient_accumulation_reduction_method),
            pipelining_gradient_accumulation_steps=(
                old.pipelining_gradient_accumulation_steps if steps is None else steps
            ),
            pipelining_device_mapping=old.pipelining_device_mapping if mapping is None else mapping,
            pipelining_accumulate_outfeed=(
                old.pipelining_accumulate_outfeed if accumulate_outfeed is None else bool(accumulate_outfeed)
            ),
            pipelining_kwargs=types.MappingProxyType(dict(kwargs)),
        )

    def set_infeed_queue_options(self, **kwargs: Any) -> None:
        """Sets arguments of the infeed queues, such as `prefetch_depth`. None of them changes results.

        Args:
            **kwargs: as for `IPUInfeedQueue`.

        Raises:
            ValueError: for arguments that Keras sets itself.
            TypeError: for arguments that the queue does not have.
        """
        checked = option_checks.checked_infeed_kwargs(kwargs, IPUInfeedQueue)
        _record("set_infeed_queue_options", tuple(checked), checked)
        set_options(self, infeed_kwargs=types.MappingProxyType(dict(checked)))

    def set_outfeed_queue_options(self, **kwargs: Any) -> None:
        """Sets arguments of the outfeed queues, such as `buffer_depth`. None of them changes results.

        Args:
            **kwargs: as for `IPUOutfeedQueue`.

        Raises:
            ValueError: for arguments that make no sense with Keras.
            TypeError: for arguments that the queue does not have.
        """
        checked = option_checks.checked_outfeed_kwargs(kwargs, IPUOutfeedQueue)
        _record("set_outfeed_queue_options", tuple(checked), checked)
        set_options(self, outfeed_kwargs=types.MappingProxyType(dict(checked)))


def _record(method: str, names: tuple[str, ...], kwargs: Any) -> None:
    for name in names:
        if name in kwargs:
            record_ignored(f"{method}.{name}", kwargs[name])
