"""Tries the next releases and pre-releases of TensorFlow, Keras and JAX: `python tests/next_releases.py`.

For each library it asks pip for the newest version, pre-releases included. One that is newer than what is installed is
put into a folder of its own, before the installed one on the path, and the tests of what this project relies on run
with it. The environment stays as it is. Ends with the number of libraries whose tests fail.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
#: A library and what is released together with it, in the same version.
LIBRARIES: dict[str, tuple[str, ...]] = {"tensorflow": (), "keras": (), "jax": ("jaxlib",)}
TESTS = (
    "tests/project/test_private_api.py",
    "tests/project/test_patches.py",
    "tests/keras_ipu/options/test_keras_options.py",
)


def newest(library: str) -> Version | None:
    """The newest version that pip finds, pre-releases included; None where its index has none."""
    command = [sys.executable, "-m", "pip", "index", "versions", "--pre", library]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    found = re.search(rf"^{library} \(([^)]+)\)", done.stdout, re.MULTILINE)
    return Version(found[1]) if found else None


def passes(library: str, version: Version, tests: list[str]) -> bool:
    """Runs the tests with that version before the installed one on the path; prints what pytest says at its end."""
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{name}=={version}" for name in (library, *LIBRARIES[library])]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, *names]
        subprocess.run(command, check=True, timeout=1800)
        surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, str(ROOT)])}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
    print("\n".join(done.stdout.splitlines()[-20:]), flush=True)
    return done.returncode == 0


def main() -> None:
    """Tries each library by itself, beside the installed versions of the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", default=list(LIBRARIES), help="tensorflow, keras, jax (all)")
    parser.add_argument("--tests", nargs="+", default=list(TESTS), metavar="PATH", help="what to run (%(default)s)")
    options = parser.parse_args()
    if unknown := set(options.libraries) - set(LIBRARIES):
        parser.error(f"wanted some of {', '.join(LIBRARIES)}; received {', '.join(sorted(unknown))}")
    failed = 0
    for library in options.libraries:
        installed, found = Version(importlib.metadata.version(library)), newest(library)
        if found is None or found <= installed:
            print(
                f"{library}: nothing newer than {installed} in the registry ({found or 'no version'} there)", flush=True
            )
            continue
        print(f"{library}: {found} in place of {installed}", flush=True)
        failed += not passes(library, found, options.tests)
    sys.exit(failed)


if __name__ == "__main__":
    main()
