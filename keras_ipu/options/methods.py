"""The `set_..._options` methods of IPU models."""

from __future__ import annotations

import types
from typing import Any

from keras_ipu.options import checks as option_checks
from keras_ipu.options.model_state import options_of, set_options
from keras_ipu.options.option_table import METHODS, checked_arguments
from keras_ipu.options.options import ReplicatedMetricReductionMethod


class OptionMethods:
    """Methods that every model made in the scope of an `IPUStrategy` has.

    Each replaces the model's options and makes it compile its functions anew. An argument left at None, or not given,
    keeps what was set before, except reduction methods, which are "sum" where they are not given, and the keyword
    arguments, which are replaced as a whole.
    """

    def set_asynchronous_callbacks(self, asynchronous: bool = False) -> None:
        """Sets whether callbacks run for every step while an execution is still under way.

        Args:
            asynchronous: True for a call a step; False for a call an execution of `steps_per_execution` steps.

        Raises:
            TypeError: unless it is a bool.
        """
        given = checked_arguments("set_asynchronous_callbacks", {"asynchronous": asynchronous})
        set_options(self, asynchronous_callbacks=given["asynchronous"])

    def set_replication_options(
        self, replicated_metric_reduction_method: str | ReplicatedMetricReductionMethod = "NONE"
    ) -> None:
        """Sets how metrics of several replicas are reduced. Where it is not called, they count all batches.

        Args:
            replicated_metric_reduction_method: NONE, LIST, SUM or MEAN.

        Raises:
            ValueError: if there is no such method.
        """
        name = "replicated_metric_reduction_method"
        given = checked_arguments("set_replication_options", {name: replicated_metric_reduction_method})
        set_options(self, replicated_metric_reduction=given[name])

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
        given = checked_arguments(
            "set_gradient_accumulation_options",
            {
                "gradient_accumulation_steps_per_replica": gradient_accumulation_steps_per_replica,
                "gradient_accumulation_reduction_method": gradient_accumulation_reduction_method,
                "use_v2_gradient_accumulation_optimizer": use_v2_gradient_accumulation_optimizer,
            },
        )
        steps = given["gradient_accumulation_steps_per_replica"]
        kwargs = option_checks.checked_accumulation_kwargs(gradient_accumulation_optimizer_kwargs)
        v2 = given["use_v2_gradient_accumulation_optimizer"]
        told = {"use_v2_gradient_accumulation_optimizer": True} if v2 else {}
        METHODS["set_gradient_accumulation_options"].record({**gradient_accumulation_optimizer_kwargs, **told})
        set_options(
            self,
            gradient_accumulation_reduction=given["gradient_accumulation_reduction_method"],
            gradient_accumulation_steps=_kept(steps, options_of(self).gradient_accumulation_steps),
            gradient_accumulation_kwargs=types.MappingProxyType(dict(kwargs)),
            use_v2_gradient_accumulation_optimizer=v2,
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
        given = checked_arguments(
            "set_pipelining_options",
            {
                "gradient_accumulation_steps_per_replica": gradient_accumulation_steps_per_replica,
                "device_mapping": device_mapping,
                "accumulate_outfeed": accumulate_outfeed,
                "gradient_accumulation_reduction_method": gradient_accumulation_reduction_method,
            },
        )
        kwargs = option_checks.checked_pipelining_kwargs(pipelining_kwargs)
        METHODS["set_pipelining_options"].record(pipelining_kwargs)
        old = options_of(self)
        set_options(
            self,
            gradient_accumulation_reduction=given["gradient_accumulation_reduction_method"],
            pipelining_gradient_accumulation_steps=_kept(
                given["gradient_accumulation_steps_per_replica"], old.pipelining_gradient_accumulation_steps
            ),
            pipelining_device_mapping=_kept(given["device_mapping"], old.pipelining_device_mapping),
            pipelining_accumulate_outfeed=_kept(given["accumulate_outfeed"], old.pipelining_accumulate_outfeed),
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
        given = option_checks.checked_infeed_kwargs(kwargs)
        METHODS["set_infeed_queue_options"].record(given)
        set_options(self, infeed_kwargs=types.MappingProxyType(dict(given)))

    def set_outfeed_queue_options(self, **kwargs: Any) -> None:
        """Sets arguments of the outfeed queues, such as `buffer_depth`. None of them changes results.

        Args:
            **kwargs: as for `IPUOutfeedQueue`.

        Raises:
            ValueError: for arguments that make no sense with Keras.
            TypeError: for arguments that the queue does not have.
        """
        given = option_checks.checked_outfeed_kwargs(kwargs)
        METHODS["set_outfeed_queue_options"].record(given)
        set_options(self, outfeed_kwargs=types.MappingProxyType(dict(given)))


def _kept(new: Any, old: Any) -> Any:
    """Returns a new value, or the old one where None was given."""
    return old if new is None else new
