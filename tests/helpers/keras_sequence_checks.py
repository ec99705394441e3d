"""Sequences of calls of a split Keras model, against stock Keras, with the back end and the devices of the process."""

from __future__ import annotations

import pytest

from tests.helpers.keras_sequences import Calls, sequences


@pytest.mark.parametrize("sequence", sequences(1, seed=4), ids=lambda sequence: "-".join(sequence.calls))
def test_calls_are_those_of_stock_keras(sequence: Calls) -> None:
    assert sequence.differing() == [], str(sequence)
