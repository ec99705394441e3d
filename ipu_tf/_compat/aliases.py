"""Import hook that resolves Graphcore's module names (`tensorflow.python.ipu`, `keras.ipu`, ...).

`install_aliases()` makes these imports give the very module objects of `ipu_tf` and `keras_ipu`:

    from tensorflow.python import ipu
    from tensorflow.python.ipu.config import IPUConfig
    from tensorflow.keras import ipu as keras_ipu

The launcher (`python -m ipu_tf SCRIPT`) calls it before it runs a script.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from ipu_tf._compat.alias_names import (
    ALIASES,
    FOLDERS,
    YIELDING,
    alias_entry,
    aliased_module,
    graphcore_name,
    real_name,
)
from ipu_tf._compat.batch_ranks import add_last_dimensions
from ipu_tf._compat.float16_batch_norm import patch_batch_norm
from ipu_tf._compat.initial_weights import draw_initial_weights_by_tensorflow
from ipu_tf._compat.removed_names import add_numpy_names, add_older_loss_scaling, add_older_optimizers
from ipu_tf._compat.shared_metrics import allow_shared_metrics
from ipu_tf._config.default_rules import use_rules_by_default
from ipu_tf._patches.import_hooks import add_fallback, after_import, find_spec_elsewhere, install_finder
from ipu_tf._state.registry import register_state
from ipu_tf.device import environment


class GraphcoreModuleMissing(ModuleNotFoundError):
    """Error for the import of a Graphcore module which this project does not provide."""

    def __init__(self, name: str, real: str) -> None:
        # No `name=`: `from package import x` replaces the message of an error that names the module it wants.
        super().__init__(
            f"No module named {name!r}: this Graphcore module is not (yet) provided. "
            f"It would be {real!r} here, and there is none. Check the spelling, or do without it."
        )


class _AliasLoader(importlib.abc.Loader):
    """Loader that registers `module` and its submodules in `sys.modules` under the alias as well.

    Submodules for whose names a longer entry of `aliases` decides are left to that.
    """

    def __init__(self, module: ModuleType, aliases: dict[str, str]) -> None:
        self._module = module
        self._aliases = aliases

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # A module may replace itself in sys.modules while it is executed; the replacement keeps its own spec.
        assert module.__spec__ is not None
        alias, real = module.__spec__.name, self._module.__name__
        sys.modules[alias] = self._module
        for name in [name for name in sys.modules if name.startswith(real + ".")]:
            below = alias + name[len(real) :]
            if alias_entry(below, self._aliases) == alias_entry(alias, self._aliases):
                sys.modules.setdefault(below, sys.modules[name])


class _FolderLoader(importlib.abc.Loader):
    """Loader of an empty package."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


class AliasFinder(importlib.abc.MetaPathFinder):
    """Import finder of aliased modules.

    Args:
        aliases: alias -> real module; names below an entry are aliased too.
        yielding: entries that yield to a module which another finder has.
        folders: names of empty packages to make when no other finder has them.
    """

    def __init__(
        self,
        aliases: dict[str, str],
        yielding: frozenset[str] = frozenset(),
        folders: frozenset[str] = frozenset(),
    ) -> None:
        self.aliases = aliases
        self._yielding = yielding
        self._folders = folders
        self._asking = threading.local()
        self._checkouts: dict[str, str] = {}
        self._helpers: dict[str, str] = {}

    def add_checkout(self, package: str, folder: str) -> None:
        """Imports the modules of a package from a folder, although the package lies under an alias."""
        self._checkouts[package] = folder

    def add_helper(self, name: str, file: str) -> None:
        """Imports a module of this package, by its name here, from a file of the program."""
        self._helpers[name] = file

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of an alias; None for names this finder has nothing to do with.

        Raises:
            GraphcoreModuleMissing: `fullname` is an alias of a module that does not exist, or that module.
        """
        if getattr(self._asking, "name", None) == fullname:
            return None
        checkout = alias_entry(fullname, self._checkouts)
        if checkout == fullname:
            package = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            package.submodule_search_locations = [self._checkouts[fullname]]
            return package
        if checkout is not None:
            return importlib.machinery.PathFinder.find_spec(fullname, path)
        entry = alias_entry(fullname, self.aliases)
        if entry is None:
            return self._find_unaliased(fullname, path)
        if entry in self._yielding and not self._below_alias(fullname):
            spec = self._elsewhere(fullname, path)
            if spec is not None:
                return spec
        real = aliased_module(fullname, self.aliases, environment.legacy_keras())
        module = self._import_real(real)
        if module is None:
            raise GraphcoreModuleMissing(fullname, real)
        return importlib.machinery.ModuleSpec(fullname, _AliasLoader(module, self.aliases), origin=real)

    def _below_alias(self, name: str) -> bool:
        """Returns whether a module's package is another by its own name, whose files would be loaded once more."""
        package = name.rpartition(".")[0]
        above = sys.modules.get(package)
        return alias_entry(package, self.aliases) is not None and above is not None and above.__name__ != package

    def _find_unaliased(self, name: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
        """Finds a folder as a package; raises an error with Graphcore's name for a module that does not exist here."""
        graphcore = graphcore_name(name, self.aliases)
        if name not in self._folders and graphcore is None:
            return None
        spec = self._elsewhere(name, path)
        if spec is not None:
            return spec
        if name in self._helpers:
            return importlib.util.spec_from_file_location(name, self._helpers[name])
        if graphcore is None:
            return importlib.machinery.ModuleSpec(name, _FolderLoader(), is_package=True)
        # `from tensorflow.python.ipu import x` looks for `ipu_tf.x`, and would only say "cannot import name".
        raise GraphcoreModuleMissing(graphcore, name)

    def _import_real(self, real: str) -> ModuleType | None:
        """Imports the module `real`, or the attribute of its package that is a module; None if neither exists."""
        if real in sys.modules:
            return sys.modules[real]
        parent, _, leaf = real.rpartition(".")
        package = self._import_real(parent) if parent else None
        path = getattr(package, "__path__", None)
        if (path is not None or not parent) and self._elsewhere(real, path) is not None:
            return importlib.import_module(real)
        attribute = getattr(package, leaf, None)
        return attribute if isinstance(attribute, ModuleType) else None

    def _elsewhere(self, name: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
        """Finds a module with the other finders of `sys.meta_path`, this one excluded."""
        outer = getattr(self._asking, "name", None)
        self._asking.name = name
        try:
            return find_spec_elsewhere(self, name, path)
        finally:
            self._asking.name = outer


_FINDER = register_state("finder of aliases", AliasFinder(ALIASES, YIELDING, FOLDERS), kept="patches stay")


def install_aliases() -> None:
    """Makes Graphcore's module names importable. Calling it again changes nothing.

    Keras and NumPy get what Keras 2 and NumPy 1 had, where a program imports them.
    Keras data then has to be as Graphcore's Keras wants it, unless the program sets `IPUConfig.graphcore_rules`.
    TensorFlow and Keras are not imported by this call. Modules that are already imported get their new
    attributes (`keras.ipu`, `tensorflow.estimator`, ...) at once, others when they are imported.
    Importing a Graphcore module that is not provided raises an ImportError that names it.
    """
    if _FINDER in sys.meta_path:
        return
    # First, for an alias's parent has a __path__, where the ordinary finder would load the file once more.
    install_finder(_FINDER)
    use_rules_by_default()
    after_import("numpy", add_numpy_names)
    after_import("keras", _add_keras_2_before_use)
    after_import("keras_ipu", _add_keras_2)
    add_older_optimizers()
    add_older_loss_scaling()
    draw_initial_weights_by_tensorflow()
    add_last_dimensions()
    allow_shared_metrics()
    after_import("tensorflow.python.ops.gen_nn_ops", patch_batch_norm)
    for alias in _FINDER.aliases:
        owner = alias.rpartition(".")[0]
        if owner:
            after_import(real_name(owner, _FINDER.aliases) or owner, _attribute_adder(alias))


def _add_keras_2_before_use(_: ModuleType) -> None:
    # Where `keras_ipu` imports Keras first, its modules are not complete before it is.
    if "keras_ipu" not in sys.modules:
        importlib.import_module("keras_ipu.legacy").install()


def _add_keras_2(_: ModuleType) -> None:
    importlib.import_module("keras_ipu.legacy").install()


def provide_checkout(script: Path) -> None:
    """Makes the modules beside a script importable by Graphcore's name of their folder.

    Graphcore's own tests import helpers that lie beside them in a checkout, as `tensorflow.python.ipu.tests`.
    """
    folder = script.absolute().parent
    package = ".".join(folder.parts[-4:])
    if package == "tensorflow.python.ipu.tests":
        _FINDER.add_checkout(package, str(folder))
    if package.endswith("keras.ipu.optimizers"):
        for helper in folder.glob("*_test_utils.py"):
            _FINDER.add_helper(f"keras_ipu.optimizers.{helper.stem}", str(helper))


def _attribute_adder(alias: str) -> Callable[[ModuleType], None]:
    """Adds the attribute to the module that owns `alias`, imported at the first access."""

    def load(name: str) -> object:
        try:
            return importlib.import_module(alias)
        except GraphcoreModuleMissing as error:
            raise AttributeError(str(error)) from None

    def add(owner: ModuleType) -> None:
        add_fallback(owner, alias.rpartition(".")[2].__eq__, load)

    return add
