"""Raw ops of Graphcore's plugin that public programs call: thin names over the ops of `ipu_tf`.

Modules that hold nothing of use here can be imported, and refuse each name with what to use instead.
"""

from __future__ import annotations

from ipu_tf.poplar.refusal import refused_modules

_INSTEAD = {
    "gen_dataset_benchmark": "ipu.dataset_benchmark",
    "gen_dataset_exporters": "ipu.dataset_extractor",
    "gen_dataset_ops": "ipu.data.ops.dataset_ops",
    "gen_functional_ops": "ipu.functional_ops or ipu.pipelining_ops",
    "gen_grad_util_ops": "ipu.grad_util_ops",
    "gen_popdist_ops": "ipu.distributed",
    "gen_popfloat_ops": "ipu.ops.experimental.popfloat_cast_to_gfloat",
    "gen_popnn_ops": "ipu.nn_ops, ipu.normalization_ops or the layers of ipu_tensorflow_addons",
    "gen_sendrecv_ops": "ipu.scopes.outside_compilation_scope",
}

__getattr__ = refused_modules(
    __name__,
    {
        module: f"this raw op of Graphcore's plugin is not emulated. Use {instead}."
        for module, instead in _INSTEAD.items()
    },
)
