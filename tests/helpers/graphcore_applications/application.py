"""One command of an application, and what it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

#: The Python of a notebook.
NOTEBOOK = "notebook.py"


@dataclasses.dataclass(frozen=True)
class Application:
    """One command of an application.

    Attributes:
        folder: of the application, within Graphcore's repository.
        command: of its README, or a notebook, of which the cells of Python are run.
        sizes: arguments that make it small, and give it generated data.
        packages: what it needs beside this project.
        keras_2: whether it needs Keras 2 itself, `tf_keras`.
        changes: file -> pairs of a pattern and its replacement: sizes that no argument sets.
        data: a program that makes its data in its folder.
        user_ops: functions for its custom ops, whose code is C++ for IPUs: the file of the launcher's `--user-ops`.
        says: what its output has when it has run to its end.
        loss: a pattern with one group, the loss of an epoch or of a part of the training.
        compared_loss: the same, where it is compared with stock TensorFlow: what `same_on_both.py` prints.
        environment: variables that it reads.
        runs_without_ipu: whether it runs without the IPU's modules as it is, where they cannot be imported.
    """

    folder: str
    command: str
    sizes: str = ""
    packages: Sequence[str] = ()
    keras_2: bool = False
    changes: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    data: str = ""
    user_ops: str = ""
    says: str = ""
    loss: str = ""
    compared_loss: str = r"logged loss ([\d.e+-]+)"
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    runs_without_ipu: bool = False

    @property
    def title(self) -> str:
        """Its folder, as tables name it."""
        return self.folder.removesuffix("/tensorflow2")
