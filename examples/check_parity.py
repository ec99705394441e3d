"""Checks that a split model trains as plain Keras does, and prints how far the two runs differ.

The model is a small network on random samples; `keras_ipu.debug.check_parity` does the same for a model of yours.
"""

from __future__ import annotations

import argparse
import os
import sys

# TensorFlow reads this once, when it is imported: only errors are wanted beside the table.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import ipu_tf as ipu
from keras_ipu.debug import check_parity


def make_model(stages: int, accumulation: int) -> tf.keras.Model:
    """A compiled network of 4 dense layers, split into stages of as many layers each."""
    layers = tf.keras.layers
    sizes = [layers.Dense(n, activation="tanh") for n in (32, 32, 16)]
    model = tf.keras.Sequential([tf.keras.Input((20,)), *sizes, layers.Dense(5)])
    if stages > 1:
        model.set_pipeline_stage_assignment([place * stages // 4 for place in range(4)])
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=accumulation)
    else:
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=accumulation)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(0.01, momentum=0.9), loss)
    return model


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=2, help="copies of the model side by side (default: 2)")
    parser.add_argument("--accumulation", type=int, default=4, help="batches to a weight update (default: 4)")
    parser.add_argument("--stages", type=int, default=2, choices=(1, 2, 4), help="stages of the pipeline (default: 2)")
    parser.add_argument("--updates", type=int, default=3, help="weight updates to compare (default: 3)")
    return parser.parse_args()


def main() -> int:
    """Prints the report; returns 0 if both runs agree."""
    arguments = parse_arguments()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = arguments.replicas * arguments.stages
    config.configure_ipu_system()

    tf.keras.utils.set_random_seed(1)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = make_model(arguments.stages, arguments.accumulation)

    x = np.random.normal(size=(512, 20)).astype(np.float32)
    y = np.random.randint(0, 5, size=512).astype(np.int32)
    report = check_parity(model, (x, y), arguments.updates, batch_size=16)
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
