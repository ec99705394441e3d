"""Saves and loads variables of a live session or model as NumPy `.npz` files."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._data.array_files import read_arrays, write_arrays
from ipu_tf.device.memory.residency import RESIDENCY
from ipu_tf.emulation import EmulationError

Files = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def export_variables_from_live_session(
    session: tf.compat.v1.Session, output_file: str | os.PathLike[str], gc_metadata: str | None = None
) -> None:
    """Writes the values of a session's global variables to a file, in numpy's `.npz` form.

    Args:
        session: a TF1 session, its variables initialised.
        output_file: where to; folders on its path are made.
        gc_metadata: a description of a program of Poplar's to compare with; must be None.

    Raises:
        EmulationError: if `gc_metadata` is given: there are no such descriptions here.
        ValueError: if variables share a name.
        tf.errors.FailedPreconditionError: if a variable is not initialised.
    """
    _check_metadata(gc_metadata)
    variables = _variables_of(session)
    values = session.run(variables)
    _save(output_file, _by_name(variables, values))


def export_variables_from_live_model(
    model: Any, output_file: str | os.PathLike[str], gc_metadata: str | None = None
) -> None:
    """Writes the values of a model's variables to a file, in numpy's `.npz` form.

    Args:
        model: a built Keras model, or anything else with `variables`.
        output_file: where to; folders on its path are made.
        gc_metadata: a description of a program of Poplar's to compare with; must be None.

    Raises:
        EmulationError: if `gc_metadata` is given: there are no such descriptions here.
        ValueError: if variables share a name.
    """
    _check_metadata(gc_metadata)
    RESIDENCY.flush()
    _save(output_file, _by_name(model.variables, [np.asarray(variable.numpy()) for variable in model.variables]))


def import_data_in_live_session(
    session: tf.compat.v1.Session, data_files: Files, output_folder: str | None = None
) -> None:
    """Assigns the values of files to a session's global variables; variables not in the files are unchanged.

    Args:
        session: a TF1 session.
        data_files: a file or files that `export_variables_from_live_session` or `..._model` wrote.
        output_folder: where to save a checkpoint of the session afterwards, a prefix as `Saver.save` takes; not if
            None.

    Raises:
        EmulationError: if a file is none of these.
        ValueError: if a value has another shape or dtype than its variable, or no variable has a value.
    """
    variables = _variables_of(session)
    found = _found(variables, data_files)
    with session.graph.as_default():
        for variable in variables:
            if _name(variable) in found:
                # Fed through the initialiser: an assignment of its own would grow the graph.
                session.run(variable.initializer, {variable.initializer.inputs[1]: found[_name(variable)]})
        if output_folder:
            tf.compat.v1.train.Saver(variables).save(session, output_folder)


def import_data_in_live_model(model: Any, data_files: Files, output_folder: str | None = None) -> None:
    """Assigns the values of files to a model's variables; variables not in the files are unchanged.

    Args:
        model: a built Keras model, or anything else with `variables`.
        data_files: a file or files that `export_variables_from_live_session` or `..._model` wrote.
        output_folder: where to save the model as a SavedModel afterwards; not if None.

    Raises:
        EmulationError: if a file is none of these.
        ValueError: if a value has another shape or dtype than its variable, or no variable has a value.
    """
    RESIDENCY.flush()
    found = _found(model.variables, data_files)
    for variable in model.variables:
        if _name(variable) in found:
            variable.assign(found[_name(variable)])
    if output_folder:
        tf.saved_model.save(model, output_folder)


def export_inputs_to_file(
    inputs: Sequence[tf.Tensor], output_filename: str | os.PathLike[str], feed_dict: dict[Any, Any]
) -> None:
    """Writes the values of tensors of a TF1 graph to a file, in numpy's `.npz` form, under the tensors' names.

    Args:
        inputs: tensors of one graph, such as placeholders.
        output_filename: where to; folders on its path are made.
        feed_dict: the values of placeholders.

    Raises:
        ValueError: without tensors.
    """
    if not inputs:
        raise ValueError("`inputs` must have one tensor or more. Received: none.")
    with tf.compat.v1.Session(graph=inputs[0].graph) as session:
        values = session.run(list(inputs), feed_dict)
    _save(output_filename, {tensor.name: value for tensor, value in zip(inputs, values, strict=True)})


def _by_name(variables: Sequence[Any], values: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    named = dict(zip(map(_name, variables), values, strict=True))
    if len(named) < len(variables):
        raise ValueError(f"Variables need different names to be told apart. Received: {[*map(_name, variables)]}.")
    return named


def _save(path: str | os.PathLike[str], values: dict[str, np.ndarray]) -> None:
    """Writes arrays to a file, in a folder that is made if there is none."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    write_arrays(path, values)


def _loaded(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    with open(path, "rb") as file:
        ours = zipfile.is_zipfile(file)
    if not ours:
        raise EmulationError(
            f"{os.fspath(path)} is no file of this project (Poplar's binary files cannot be read here). Write it "
            "again with `ipu.utils.export_variables_from_live_session` or `..._live_model`."
        )
    return read_arrays(os.fspath(path))


def _found(variables: Sequence[Any], data_files: Files) -> dict[str, np.ndarray]:
    """Reads the values of variables from files, by name; the last file wins."""
    files = [data_files] if isinstance(data_files, (str, os.PathLike)) else list(data_files)
    values = {name: array for file in files for name, array in _loaded(file).items()}
    wanted = {_name(v): (tuple(v.shape), np.dtype(tf.as_dtype(v.dtype).as_numpy_dtype)) for v in variables}
    found = {name: values[name] for name in wanted if name in values}
    for name, array in found.items():
        if (array.shape, array.dtype) != wanted[name]:
            shape, dtype = wanted[name]
            raise ValueError(
                f"The variable '{name}' has the shape {shape} and the dtype {dtype}. Received: values of shape "
                f"{array.shape} and dtype {array.dtype}."
            )
    if wanted and not found:
        raise ValueError(
            f"None of the variables has a value in these files. Wanted some of {list(wanted)}. Received: "
            f"{sorted(values)}."
        )
    return found


def _variables_of(session: tf.compat.v1.Session) -> list[tf.Variable]:
    with session.graph.as_default():
        return list(tf.compat.v1.global_variables())


def _name(variable: Any) -> str:
    """A Keras variable's path; the name of any other, without the number of its output."""
    return str(getattr(variable, "path", None) or variable.name.removesuffix(":0"))


def _check_metadata(gc_metadata: str | None) -> None:
    if gc_metadata is not None:
        raise EmulationError(
            f"gc_metadata describes a program that Poplar compiled, and there are none here. Leave it out. Received: "
            f"{gc_metadata!r}."
        )
