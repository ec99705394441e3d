"""Families of models by tasks, tiny and with random weights: what `test_keras_hub.py` trains and docs/garden.md lists.

The page is written by `python -m tests.helpers.garden > docs/garden.md`.
"""

from __future__ import annotations

from tests.helpers.garden_cells import TASKS, Cell
from tests.helpers.garden_images import IMAGES
from tests.helpers.garden_texts import TEXTS

CELLS: tuple[Cell, ...] = (*TEXTS, *IMAGES)
_HEAD = """# Models by tasks

Families of models, tiny and with random weights, that train as in stock Keras: updates of 4 or 6 micro-batches, without
stages and in a pipeline on 2 IPUs. Losses, weights and predictions are within 1e-5 of those of stock Keras, which
accumulates too: of an array's largest value, or within 1e-7 where that is about 0.

- Each cell is a test: `python -m pytest -m "slow or not slow" tests/keras_ipu/training/test_keras_hub.py -k masked`.
- All cells were run with Keras on TensorFlow and on JAX (`KERAS_BACKEND=jax`) on 25 November 2026, and pass.
- *hub*: the task's model is KerasHub's; *garden*: it is in `examples/garden`, on KerasHub's backbone. ConvNeXt is in
  `examples/garden` as a whole: KerasHub has none, and `keras.applications` has it in full size.
- *shared*: the first and the last of three stages share variables, and are on one of the IPUs. Others have two stages.
- An empty cell: there is no test of it.
- This page is written by `python -m tests.helpers.garden`.
"""
_TAIL = """
[Optimum Graphcore](https://github.com/huggingface/optimum-graphcore) has a table of 14 families, with 37 cells of tasks
and 9 of pre-training. Of the tasks, 28 are here. The others:

- GroupBERT at five tasks, and LXMERT at question answering on images: KerasHub has no such model.
- HuBERT at audio classification and CTC, Wav2Vec2 at CTC: KerasHub has no such model; of audio it has Whisper and
  Moonshine.
- Pre-training is masked, causal or sequence to sequence LM here, and ConvNeXt's image classification. That of GroupBERT
  and Wav2Vec2 is not here.
"""


def page() -> str:
    """The text of docs/garden.md."""
    cells = {(cell.family, cell.task): cell for cell in CELLS}
    families = dict.fromkeys(family for family, _ in cells)
    rows = [f"| | {' | '.join(TASKS)} |", "|---" * (len(TASKS) + 1) + "|"]
    for family in families:
        rows.append(f"| {family} | {' | '.join(_text_of(cells.get((family, task))) for task in TASKS)} |")
    return "\n".join([_HEAD, *rows, "", f"{len(CELLS)} cells, {len(families)} families.", _TAIL])


def _text_of(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return cell.source + (", shared" if cell.shared else "")


if __name__ == "__main__":
    print(page(), end="")
