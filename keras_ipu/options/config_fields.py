"""Fields of `IPUModelConfig`, with Optimum's names: type, range, default, and what becomes of each."""

from __future__ import annotations

from typing import Any

from ipu_tf._config.argument_table import Argument, ArgumentTable
from ipu_tf._config.treatment import COMPILER, MEMORY, Treatment, modelled, no_effect, warns
from ipu_tf._config.types import FLAG, TEXT, ValueType, integer, sequence_of

CONFIG_NAME = "ipu_config.json"
"""Name of the file in a folder."""
BOOKKEEPING = ("optimum_version", "transformers_version", "_commit_hash", "_name_or_path")
"""Keys of a file that say who wrote it."""


def _ints_from(least: int) -> ValueType:
    return sequence_of(f"list of ints from {least} on", lambda value: type(value) is int and value >= least)


def _is_share(value: object) -> bool:
    return type(value) in (int, float)


def _is_share_or_shares(value: object) -> bool:
    return all(map(_is_share, value)) if isinstance(value, (list, tuple)) else _is_share(value)


_LAYERS, _SPLITS = _ints_from(-1), _ints_from(0)
_SHARES = ValueType("float or list of floats", None, _is_share_or_shares)
_KWARGS = ValueType("dictionary", dict, lambda value: isinstance(value, dict))
_WORKS = modelled("It works.")
_INFERENCE = no_effect("`evaluate` and `predict` run with the stages and replicas of training; results are the same.")
_IN_PARTS = no_effect("It takes a table in parts, to save memory of an IPU; results are the same.")
_OLD = no_effect("Optimum has no use for it any more.")
_KERAS_SEED = no_effect("That of `keras.utils.set_random_seed` holds.")
_PLACE = no_effect("It says where an IPU keeps data; results do not depend on it.")


def _field(name: str, kind: ValueType, default: Any, meaning: str, treatment: Treatment) -> Argument:
    return Argument(name, kind, default, meaning, treatment)


def _both(name: str, kind: ValueType, default: Any, meaning: str, treatment: Treatment) -> tuple[Argument, Argument]:
    """A field, and the same for inference, by default as in training."""
    return (
        _field(name, kind, default, meaning, treatment),
        _field(f"inference_{name}", kind, None, "The same for inference.", _INFERENCE),
    )


FIELDS = ArgumentTable(
    "IPUModelConfig",
    (
        *_both("layers_per_ipu", _LAYERS, (-1,), "Blocks on each IPU; -1 stands for a share of what is left.", _WORKS),
        *_both("ipus_per_replica", integer(1), None, "IPUs of a replica; as many as layers_per_ipu has.", _WORKS),
        *_both("replication_factor", integer(1), 1, "Replicas.", _WORKS),
        _field("gradient_accumulation_steps", integer(1), 1, "Micro-batches whose mean makes an update.", _WORKS),
        *_both("device_iterations", integer(1), 1, "Weight updates in an execution.", _WORKS),
        _field(
            "recompute_checkpoint_every_layer",
            FLAG,
            False,
            "Whether stages compute activations again for their backward pass.",
            _WORKS,
        ),
        *_both("embedding_serialization_factor", integer(1), None, "Parts of an embedding.", _IN_PARTS),
        *_both("serialized_embedding_splits_per_ipu", _SPLITS, None, "Parts of an embedding on each IPU.", _IN_PARTS),
        *_both("projection_serialization_factor", integer(1), None, "Parts of the head's product.", _IN_PARTS),
        *_both("serialized_projection_splits_per_ipu", _SPLITS, None, "Parts of the head on each IPU.", _IN_PARTS),
        *_both("matmul_proportion", _SHARES, 0.2, "Temporary memory of products.", MEMORY),
        _field(
            "enable_half_partials", FLAG, True, "Whether sums are float16.", no_effect("Sums of products are float32.")
        ),
        _field("optimizer_state_offchip", FLAG, False, "Whether slots are in remote memory.", _PLACE),
        _field("replicated_tensor_sharding", FLAG, False, "Whether replicas share the slots.", _PLACE),
        _field(
            "auto_loss_scaling",
            FLAG,
            False,
            "Whether the loss is scaled automatically.",
            warns("The optimizer decides that: `keras_ipu.optimizers.ALSOptimizer` scales the loss."),
        ),
        _field("output_mode", TEXT, "final", "Which outputs come back.", no_effect("Keras decides that.")),
        _field("seed", integer(), None, "Of random numbers.", _KERAS_SEED),
        _field(
            "executable_cache_dir",
            TEXT,
            "",
            "Folder of compiled programs.",
            no_effect("`IPU_TF_CACHE` names that of the process."),
        ),
        *_both("parallelize_kwargs", _KWARGS, None, "Arguments of `parallelize`.", COMPILER),
        _field("explicit_ir_inference", FLAG, False, "Of PopART's compiler.", COMPILER),
        _field("execute_encoder_on_cpu_for_generation", FLAG, False, "Optimum refuses it.", _OLD),
        _field("sharded_execution_for_inference", FLAG, None, "Deprecated.", _OLD),
        _field("enable_half_first_order_momentum", FLAG, None, "Deprecated.", _OLD),
    ),
)
"""Of Optimum's `IPUConfig`, and keys of older files."""
