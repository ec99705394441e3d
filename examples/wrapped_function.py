"""Runs one function as one program on the emulated IPU, from TensorFlow 1 and from TensorFlow 2."""

from __future__ import annotations

import os

# TensorFlow reads this once, when it is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import ipu_tf as ipu

PA = np.array([1.0, 2.0, 3.0], np.float32)
PB = np.array([10.0, 20.0, 30.0], np.float32)
PC = np.array([100.0, 200.0, 300.0], np.float32)


def basic_graph(pa: tf.Tensor, pb: tf.Tensor, pc: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Two sums of three vectors: the program."""
    return pa + pb, pa + pc


def in_a_session() -> list[np.ndarray]:
    """TensorFlow 1: placeholders, and a session that feeds them and runs the program."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        pa, pb, pc = (tf.compat.v1.placeholder(tf.float32, [3], name) for name in ("pa", "pb", "pc"))
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            sums = ipu.ipu_compiler.compile(basic_graph, [pa, pb, pc])
        return session.run(sums, {pa: PA, pb: PB, pc: PC})


@tf.function
def wrapped(pa: tf.Tensor, pb: tf.Tensor, pc: tf.Tensor) -> list[tf.Tensor]:
    """TensorFlow 2: the program inside a `tf.function`."""
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        return ipu.ipu_compiler.compile(basic_graph, [pa, pb, pc])


def main() -> None:
    """Runs the program both ways and prints the sums."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    results = {
        "TF1 session": in_a_session(),
        "tf.function": [result.numpy() for result in wrapped(tf.constant(PA), tf.constant(PB), tf.constant(PC))],
    }
    print(f"{'':<12} {'pa + pb':<16} {'pa + pc'}")
    for way, (first, second) in results.items():
        print(f"{way:<12} {first!s:<16} {second}")


if __name__ == "__main__":
    main()
