"""Messages and enumerations of Graphcore's plugin that public programs read. None of them is a protocol buffer."""

from __future__ import annotations

from ipu_tf.poplar.refusal import refused_modules

__getattr__ = refused_modules(
    __name__,
    {
        "option_flag_pb2": "options of Poplar libraries are recorded, and put on no op. See "
        "ipu_tf.emulation.ignored_arguments().",
        "pipeline_config_pb2": "options of Poplar libraries for the stages of a pipeline are recorded, and put on no "
        "op. Use ipu.pipelining_ops.PipelineStageOptions.",
    },
)
