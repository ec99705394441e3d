"""`use_synthetic_data_for`: whether `TF_POPLAR_FLAGS` requests synthetic data of a category."""

from __future__ import annotations

from ipu_tf._arguments.named_int_enum import NamedIntEnum
from ipu_tf._config.flags import flags
from ipu_tf.device.feeds.synthetic import TransferKind


class SyntheticDataCategory(NamedIntEnum):
    """A kind of data that moves between host and device, with the numbers that Graphcore gave them."""

    Seed = 0
    Infeed = 1
    Outfeed = 2
    HostEmbedding = 3
    Parameters = 4
    Unknown = 5


_CATEGORIES = {
    SyntheticDataCategory.Seed: TransferKind.SEED,
    SyntheticDataCategory.Infeed: TransferKind.INFEED,
    SyntheticDataCategory.Outfeed: TransferKind.OUTFEED,
    SyntheticDataCategory.HostEmbedding: TransferKind.HOST_EMBEDDING,
    SyntheticDataCategory.Parameters: TransferKind.PARAMETERS,
}


def use_synthetic_data_for(synthetic_data_category: SyntheticDataCategory | int) -> bool:
    """Returns whether TF_POPLAR_FLAGS makes data of a category synthetic.

    Args:
        synthetic_data_category: a `SyntheticDataCategory`, or its number. Nothing is of the category `Unknown`.

    Raises:
        ValueError: for a number that is none.

    Example:
        >>> use_synthetic_data_for(SyntheticDataCategory.Infeed)
        False
    """
    category = _CATEGORIES.get(SyntheticDataCategory(synthetic_data_category))
    return category is not None and flags().synthetic_data.uses(category)
