"""What gnn/ogb_lsc_pcqm4mv2 needs: sizes, and Python in place of its Cython code."""

from __future__ import annotations

from tests.helpers.graphcore_applications.application import Application
from tests.helpers.graphcore_applications.message_passing import GROUPED

#: Arguments of the first of the program's own tests of its whole network, made smaller and without dropout.
_SIZES = (
    "--model.micro_batch_size=8 --model.n_nodes_per_pack=16 --model.n_edges_per_pack=40 --model.n_graphs_per_pack=2 "
    "--model.node_latent=16 --model.node_exp_ratio=2 --model.node_mlp_layers=2 --model.edge_latent=8 "
    "--model.global_latent=16 --model.n_embedding_channels=10 --model.ffn_dim=16 --model.n_attn_heads=4 "
    "--model.attention_dropout_rate=0 --model.ffn_dropout_rate=0 --model.mhsa_output_dropout_rate=0 "
    "--model.gnn_output_dropout_rate=0 --model.ffn_output_dropout_rate=0 --model.epochs=4 --model.opt=adam "
    "--model.adam_m_dtype=float32 --model.adam_v_dtype=float32 --model.lr=2e-3 --model.learning_rate_schedule=cosine "
    "--model.loss_scaling=16 --model.dtype=float32 --model.layer_output_scale=0.707 --layer.rn_multiplier=none "
    "--layer.decoder_mode=node_global --layer.activation_function=gelu --layer.mlp_norm=layer_hidden "
    "--layer.gather_scatter=grouped --layer.one_hot_embeddings=false --layer.direct_neighbour_aggregation=true "
    "--layer.scatter_to=both --dataset.dataset_name=generated --dataset.packing_strategy=streaming "
    "--dataset.normalize_labels=true --dataset.generated_data=false --dataset.generated_data_n_nodes=8 "
    "--dataset.generated_data_n_edges=20 --dataset.generated_data_n_graphs=128 --dataset.parallel_processes=1 "
    "--do_validation=false --wandb=False --ipu_opts.available_memory_proportion=[0.2] --ipu_opts.fp_exceptions=false "
    "--ipu_opts.nanoo=true --dataset.save_to_cache=False --model.use_edges=true --model.use_globals=true "
    "--model.layer_specs MPNN+MHSA+FFN --ipu_opts.replicas=1 "
    "\"--dataset.features={'senders_receivers':{},'graph_idxs':{},'laplacian_eig':{'max_freqs':3,'eigvec_norm':'L2'},"
    "'random_walk':{'k_steps':[1]},'shortest_path_distances':{}}\" "
    "\"--inputs=['node_feat','edge_feat','receivers','senders','node_graph_idx','edge_graph_idx','lap_eig_vals',"
    "'lap_eig_vecs','random_walk_landing_probs','shortest_path_distances']\""
)
_PATHS = """
import numpy as np

def floyd_warshall(adjacency):
    lengths = np.where(adjacency == 0, 510, adjacency).astype(np.int64)
    np.fill_diagonal(lengths, 0)
    path = np.full_like(lengths, -1)
    for k in range(len(lengths)):
        by = lengths[:, k, None] + lengths[None, k]
        path[by < lengths] = k
        lengths = np.minimum(lengths, by)
    path[lengths >= 510] = 510
    return np.minimum(lengths, 510), path
"""
#: Makes the libraries that the program compiles.
_LIBRARIES = f"""
open("static_ops/custom_grouped_gather_scatter.so", "w").close()
with open("data_utils/feature_generation/path_algorithms.py", "w") as file:
    file.write({_PATHS!r})
"""
#: SciPy refuses float16 in sparse matrices, which the one of the program's time took. The numbers are ones.
_CHANGES = {
    "data_utils/feature_generation/utils.py": {
        r"( +edge_weight = np\.ones\(.*)dtype=np\.float16": r"\g<1>dtype=np.float32",
    },
}
PCQM4MV2 = Application(
    "gnn/ogb_lsc_pcqm4mv2/tensorflow2",
    "run_training.py",
    _SIZES,
    ("ogb", "torch", "rdkit", "jsonargparse", "plotly", "tf_keras"),
    keras_2=True,
    changes=_CHANGES,
    data=_LIBRARIES,
    user_ops=GROUPED,
    says="Throughput",
    loss=r" - loss: ([\d.]+)",
    runs_without_ipu=True,
)
