"""What gnn/message_passing needs: sizes, its custom op."""

from __future__ import annotations

from tests.helpers.graphcore_applications.application import Application

SIZES = (
    "--dtype=float32 --generated_data=True --generated_batches_per_epoch=4 --epochs=3 --micro_batch_size=2 "
    "--n_latent=16 --n_hidden=32 --n_graph_layers=2 --n_embedding_channels=8 --generated_data_n_nodes=8 "
    "--generated_data_n_edges=20 --n_graphs_per_pack=1 --n_nodes_per_pack=8 --n_edges_per_pack=20 "
    "--wandb=False --lr=0.001"
)
#: The program's grouped gather and scatter, in Python.
GROUPED = """
import tensorflow as tf
import ipu_tf

def grouped(values, indices, attributes):
    _, operation, _, _, rows, _, _ = attributes.split()
    if operation == "gather":
        return tf.gather(values, indices, batch_dims=1)
    return tf.matmul(tf.one_hot(indices, int(rows), dtype=values.dtype), values, transpose_a=True)

ipu_tf.register_user_op("custom_grouped_gather_scatter.so", "Build", grouped)
"""

MESSAGE_PASSING = Application(
    "gnn/message_passing/tensorflow2",
    "run_training.py --micro_batch_size=24 --cosine_lr=True --epochs=150",
    SIZES,
    ("ogb", "torch", "tf_keras"),
    keras_2=True,
    data="open('static_ops/custom_grouped_gather_scatter.so', 'w').close()",
    user_ops=GROUPED,
    says="Test AUC",
    runs_without_ipu=True,
)
