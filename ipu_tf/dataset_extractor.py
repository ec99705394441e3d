"""Exports dataset elements and variables to NumPy `.npz` files, and imports variables from them.

The files are not in Poplar's binary format: `numpy.load` reads them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._arguments.counts import checked_integer
from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf._data.array_files import read_arrays, write_arrays
from ipu_tf._data.dataset_reading import Elements, check_dataset, read_dataset
from ipu_tf.emulation import EmulationError
from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.lowering.tensorflow.host_op import HostOp, host_op


def dataset_extractor(
    dataset: tf.data.Dataset, num_elements: int, filename: str, feed_name: str, print_stats: bool = True
) -> tf.Operation | None:
    """Saves the first elements of a dataset: array `<feed_name>.<i>` of the file has tensor i of every element.

    Args:
        dataset: the dataset.
        num_elements: how many elements to save.
        filename: the file, written anew.
        feed_name: the name that arrays are saved under.
        print_stats: whether to print what was saved.

    Returns:
        The op that saves them, in a graph; None in eager mode, where it is done.

    Raises:
        ValueError: if `num_elements` is below 1.
        TypeError: if `dataset` is none.
        tf.errors.OutOfRangeError: when it runs, if the dataset has too few elements.
    """
    if checked_integer("num_elements", num_elements) < 1:
        raise ValueError(f"Expected `num_elements` to be at least 1. Received: {num_elements}.")
    check_dataset(dataset)

    def save(elements: Elements) -> list[np.ndarray]:
        taken = list(itertools.islice(elements, num_elements))
        if len(taken) < num_elements:
            raise tf.errors.OutOfRangeError(
                None, None, f"The dataset ended: wanted {num_elements} elements, got {len(taken)}."
            )
        columns = {f"{feed_name}.{i}": np.stack(column) for i, column in enumerate(zip(*taken, strict=True))}
        write_arrays(filename, columns)
        _say(print_stats, f"Saved {num_elements} elements of {len(columns)} tensors each to {filename}.")
        return []

    result = read_dataset(dataset, save, [], "dataset_extractor")
    return result.operation if isinstance(result, HostOp) else None


def get_variable_handles(variables: Sequence[tf.Variable]) -> list[str]:
    """The names of variables, as `export_variables` takes them: of Keras's variables their paths.

    Args:
        variables: the variables.
    """
    return [getattr(variable, "path", variable.name).removesuffix(":0") for variable in variables]


def export_variables(
    variables: Sequence[tf.Variable],
    names: Sequence[str],
    filename: str,
    metadata: str | None = None,
    print_stats: bool = True,
) -> tf.Operation | None:
    """Saves the values of variables.

    Args:
        variables: the variables.
        names: what each is saved as, see `get_variable_handles`.
        filename: the file, written anew.
        metadata: a file that describes a Poplar executable: there is none here.
        print_stats: whether to print what was saved.

    Returns:
        The op that saves them, in a graph; None in eager mode, where it is done.

    Raises:
        ValueError: unless there is one name for each variable, and no other has it.
        EmulationError: if `metadata` is given.
    """
    if len(names) != len(variables):
        raise ValueError(
            f"Expected a name for each variable. Received: {len(names)} names, {len(variables)} variables."
        )
    _check_names(names)
    if metadata:
        raise EmulationError(
            f"export_variables(metadata={metadata!r}): metadata of Poplar executables is not read here. Leave it out."
        )

    def save(*values: np.ndarray) -> None:
        write_arrays(filename, dict(zip(names, values, strict=True)))
        _say(print_stats, f"Saved {len(values)} variables to {filename}.")

    tensors = [tf.convert_to_tensor(variable) for variable in variables]
    if tf_values.executing_eagerly():
        save(*(tensor.numpy() for tensor in tensors))
        return None
    return host_op(save, tensors, [], "export_variables").operation


def import_variables(
    variables: Sequence[tf.Variable],
    filenames: str | Sequence[str],
    is_input: bool = True,
    strict: bool = True,
    print_stats: bool = True,
) -> list[Any]:
    """Assigns variables the values that were saved under their names.

    Args:
        variables: the variables.
        filenames: files that `export_variables` wrote.
        is_input: whether they are inputs or parameters of an executable; without effect here.
        strict: whether the files must have exactly these variables. Otherwise, those they lack keep their values.
        print_stats: whether to print what was read.

    Returns:
        The assignments: ops to run in a graph; in eager mode they are done.

    Raises:
        ValueError: for variables of one name; and when it runs, for variables that the files lack, arrays that are no
            variables (if `strict`), and arrays of another shape or dtype.
        FileNotFoundError: when it runs, if there is no such file.
    """
    record_ignored("import_variables.is_input", None if is_input else False)
    files = [filenames] if isinstance(filenames, str) else list(filenames)
    specs = [tf.TensorSpec(variable.shape, tf.as_dtype(variable.dtype).base_dtype) for variable in variables]
    names = get_variable_handles(variables)
    _check_names(names)

    def load(*present: np.ndarray) -> list[np.ndarray]:
        saved = {name.removesuffix(":0"): array for file in files for name, array in read_arrays(file).items()}
        values = [saved.get(name, value if not strict else None) for name, value in zip(names, present, strict=True)]
        _check_import(dict(zip(names, specs, strict=True)), saved, strict)
        _say(print_stats, f"Read {len(set(names) & set(saved))} variables from {', '.join(files)}.")
        return [np.asarray(value) for value in values]

    tensors = [tf.convert_to_tensor(variable) for variable in variables]
    if tf_values.executing_eagerly():
        values: list[Any] = load(*(tensor.numpy() for tensor in tensors))
    else:
        values = host_op(load, tensors, specs, "import_variables").results
    return [variable.assign(value) for variable, value in zip(variables, values, strict=True)]


def _check_names(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise ValueError(f"Variables need different names to be told apart. Received: {list(names)}.")


def _check_import(wanted: dict[str, tf.TensorSpec], saved: dict[str, np.ndarray], strict: bool) -> None:
    if strict and set(wanted) != set(saved):
        raise ValueError(
            f"The files must have exactly the variables. Missing: {sorted(set(wanted) - set(saved))}. Not asked for: "
            f"{sorted(set(saved) - set(wanted))}. Pass strict=False to read what there is."
        )
    for name in set(wanted) & set(saved):
        spec, array = wanted[name], saved[name]
        if tuple(spec.shape) != array.shape or spec.dtype.as_numpy_dtype != array.dtype:
            raise ValueError(
                f"The variable '{name}' has the shape {spec.shape} and dtype {spec.dtype.name}. Saved is: shape "
                f"{array.shape}, dtype {array.dtype}."
            )


def _say(print_stats: bool, text: str) -> None:
    if print_stats:
        print(text)
