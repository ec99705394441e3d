"""Snapshot of the attributes of TensorFlow, Keras, JAX and NumPy, to find what a program changed in them."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

LIBRARIES = ("tensorflow", "keras", "keras_hub", "jax", "numpy")


def attributes() -> dict[str, int]:
    """The identity of what can be called in the libraries' imported modules, and in the classes in them.

    Other attributes are the libraries' own state; JAX's listeners are added, under the function that registers them.
    """
    found = {name: id(value) for name, value in _attributes() if callable(value) or hasattr(type(value), "__get__")}
    return found | _jax_listeners()


def _jax_listeners() -> dict[str, int]:
    """A number for the listeners of each kind that are registered with `jax.monitoring`."""
    from jax._src import monitoring

    return {
        f"jax.monitoring:register_{kind}": hash(tuple(getattr(monitoring, f"_{kind}s")))
        for kind in (
            "event_listener",
            "event_duration_secs_listener",
            "event_time_span_listener",
            "scalar_listener",
        )
    }


def _attributes() -> Iterator[tuple[str, object]]:
    for module in [module for name, module in sys.modules.items() if name.split(".")[0] in LIBRARIES]:
        for name, value in list(vars(module).items()):
            if isinstance(value, types.ModuleType):
                continue  # Python adds these to a package as its modules are imported
            yield f"{module.__name__}:{name}", value
            if isinstance(value, type) and value.__module__ == module.__name__:
                yield from ((f"{module.__name__}:{value.__qualname__}.{n}", v) for n, v in list(vars(value).items()))


def changed(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """Attributes of modules known before that are other objects now, new ones included."""
    modules = {name.partition(":")[0] for name in before}
    later = {name: value for name, value in after.items() if name.partition(":")[0] in modules}
    names = {name for name, value in later.items() if before.get(name) != value} | (set(before) - set(after))
    # A class that was replaced is named, and not its methods as well.
    return sorted(name for name in names if name.rpartition(".")[0] not in names)
