"""Builds the native kernels, an optional extension: without a C compiler, the package is installed without them.

The rest of the metadata is in setup.cfg. The library is loaded by ctypes and needs no headers but C's own.
"""

from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("ipu_tf/device/convolution/native")
FLAGS = ["-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"]

setup(
    ext_modules=[
        Extension(
            "ipu_tf.device.convolution.native._kernels",
            [str(path) for path in sorted(FOLDER.glob("*.c"))],
            depends=[str(path) for path in sorted(FOLDER.glob("*.h"))],
            extra_compile_args=FLAGS,
            optional=True,
        )
    ]
)
