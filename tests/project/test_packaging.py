"""The package: metadata, entry points, and a wheel and an sdist that can be installed and used."""

from __future__ import annotations

import configparser
import importlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import ipu_tf
from tests.project.test_typed_interface import FAULTS
from tests.project.test_typed_interface import PROGRAM as TYPED

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("ipu_tf", "keras_ipu", "pytest_ipu")
BUILD_FILES = ("README", "LICENSE", "MANIFEST", "setup.", "pyproject")
PROGRAM = """\
import numpy as np
import keras
import ipu_tf as ipu

cfg = ipu.config.IPUConfig()
cfg.auto_select_ipus = 1
cfg.configure_ipu_system()
x = np.ones((64, 4), np.float32)
with ipu.ipu_strategy.IPUStrategy().scope():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=8)
    model.fit(x, x[:, :1], batch_size=8, verbose=0)
print(ipu.__file__, ipu.emulation.device_counts().steps)
"""


@pytest.fixture(scope="module")
def setup() -> configparser.ConfigParser:
    """The package's metadata."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_metadata_is_complete(setup: configparser.ConfigParser) -> None:
    metadata = setup["metadata"]
    assert metadata["version"] == ipu_tf.__version__
    for field in ("author", "description", "long_description", "license", "keywords", "classifiers"):
        assert metadata[field].strip(), field
    versions = re.findall(r"Python :: (3\.\d+)", metadata["classifiers"])
    assert versions and setup["options"]["python_requires"] == f">={versions[0]}"
    assert {"jax-cuda", "hub", "docs", "test", "examples"} <= set(setup["options.extras_require"])


def test_the_documented_window_is_that_of_the_metadata(setup: configparser.ConfigParser) -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    for library, name in (("tensorflow", "TensorFlow"), ("keras", "Keras"), ("jax", "JAX")):
        (wanted,) = re.findall(rf"^{library} >=([\d.]+),", setup["options"]["install_requires"], re.MULTILINE)
        assert f"| {name} | {wanted} |" in page
    versions = re.findall(r"Python :: (3\.\d+)", setup["metadata"]["classifiers"])
    assert f"| Python | {versions[0]} to {versions[-1]} |" in page


def test_entry_points_lead_somewhere(setup: configparser.ConfigParser) -> None:
    for line in "\n".join(setup["options.entry_points"].values()).split("\n"):
        if "=" in line:
            module, _, attribute = line.partition("=")[2].strip().partition(":")
            found = importlib.import_module(module)
            assert not attribute or callable(getattr(found, attribute))


def test_every_package_is_found_and_typed(setup: configparser.ConfigParser) -> None:
    included = setup["options.packages.find"]["include"].split()
    for package in PACKAGES:
        assert f"{package}*" in included
        assert (ROOT / package / "py.typed").exists() and "py.typed" in setup["options.package_data"][package]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and an sdist, built by the installed setuptools from a copy of the sources."""
    folder = tmp_path_factory.mktemp("package")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if name.startswith((*PACKAGES, *BUILD_FILES)) and (ROOT / name).exists():
            (folder / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "src" / name).write_bytes((ROOT / name).read_bytes())
    code = "from setuptools import build_meta as b; b.build_sdist('../dist'); b.build_wheel('../dist')"
    subprocess.run([sys.executable, "-c", code], cwd=folder / "src", check=True, capture_output=True)
    return folder / "dist"


@pytest.mark.slow
def test_wheel_and_sdist_have_every_module(built: Path) -> None:
    listed = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    sources = {name for name in listed.split() if (ROOT / name).exists()}
    modules = {name for name in sources if name.endswith((".py", "py.typed"))}
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        assert modules - set(wheel.namelist()) == set()
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        assert sources - {name.partition("/")[2] for name in sdist.getnames()} == set()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_what_was_installed_works(built: Path, tmp_path: Path, kind: str) -> None:
    """The command and the three lines, from a folder that has nothing of the repository."""
    site = tmp_path / "site"
    package = next(built.glob(kind))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(site),
    ]
    subprocess.run([*pip, str(package)], check=True, capture_output=True)
    environment = dict(os.environ, PYTHONPATH=str(site))

    def output(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert output(sys.executable, str(site / "bin" / "ipu-tf"), "--version") == f"ipu-tf {ipu_tf.__version__}\n"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert output(sys.executable, str(program)).split() == [str(site / "ipu_tf" / "__init__.py"), "8"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz", "--editable"])
def test_type_checkers_know_what_was_installed(built: Path, tmp_path: Path, kind: str) -> None:
    """An editable install is a path: type checkers do not follow the import hook that it may be as well."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    # What this project needs is there from this environment.
    (Path(site) / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    source = str(built.parent / "src") if kind == "--editable" else str(next(built.glob(kind)))
    options = f"--python {python} install --quiet --no-deps --no-build-isolation --force-reinstall".split()
    editable = [kind] if kind == "--editable" else []
    subprocess.run([sys.executable, "-m", "pip", *options, *editable, source], check=True, capture_output=True)
    (tmp_path / "program.py").write_text(TYPED)
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-tensorflow.*,keras.*]\nignore_missing_imports = True\n")
    settings = {"typeCheckingMode": "standard", "reportMissingModuleSource": False}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}

    def output(*command: str) -> str:
        command = (sys.executable, "-m", *command, "program.py")
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout

    said = output("mypy", "--python-executable", str(python))
    assert set(map(int, re.findall(r"^program\.py:(\d+): error: ", said, re.MULTILINE))) == FAULTS, said
    said = output("basedpyright", "--outputjson", "--pythonpath", str(python))
    found = json.loads(said)["generalDiagnostics"]
    assert {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"} == FAULTS, said
