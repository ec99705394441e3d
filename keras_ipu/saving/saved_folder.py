"""Saves a model in a folder, with its assets, by Keras's own `save`."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def save_in_folder(stock: Any, model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
    """Saves a model in a folder by Keras's own `save`.

    Raises:
        FileExistsError: if the folder has assets of something else.
    """
    if "://" in str(filepath):  # elsewhere: "gs://", "hf://"
        return stock(model, filepath, *args, zipped=False, **kwargs)
    # By a relative path Keras writes assets to a temporary folder, and loses them.
    folder = Path(os.fspath(filepath)).absolute()
    with _room_for_assets(folder):
        return stock(model, str(folder), *args, zipped=False, **kwargs)


@contextlib.contextmanager
def _room_for_assets(folder: Path) -> Iterator[None]:
    """Context in which a folder has no assets of the model before: Keras does not overwrite them.

    They come back if Keras fails, or is told not to overwrite.
    """
    assets = folder / "assets"
    if not assets.exists():
        yield
        return
    _check_assets(folder)
    with tempfile.TemporaryDirectory(prefix=".assets-", dir=folder) as aside:
        before = assets.rename(Path(aside) / "assets")
        try:
            yield
        except BaseException:
            shutil.rmtree(assets, ignore_errors=True)
            raise
        finally:
            if not assets.exists():
                before.rename(assets)


def _check_assets(folder: Path) -> None:
    if not all((folder / name).is_file() for name in ("metadata.json", "config.json", "model.weights.h5")):
        raise FileExistsError(
            f"'{folder}' must be a new folder, or one in which Keras saved a model. Received: a folder that has "
            "'assets' of something else. Save the model in another one, or as a file that ends in '.keras'."
        )
