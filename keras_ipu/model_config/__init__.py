"""`IPUModelConfig`: Optimum's `ipu_config.json` for Keras models.

    ipu_config.json ─► IPUModelConfig ─► layers_for(blocks) ─► BlockStages ─► stages and options of a model

    model_config.py    IPUModelConfig: reads and writes the file, applies it to a model
    consistency.py     fields against each other, and layers_per_ipu against a model's blocks
    shipped.py         configurations by name
    applied_stages.py  stages and options of a pipelined model
    block_stages.py    a model's repeated blocks, and the stage of each layer call

Enters: a folder, a name, or values. Leaves: options of a model, as its `set_..._options` methods set them.
Its fields, with type, range and effect, are in `keras_ipu/options/config_fields.py`. Start with `model_config.py`.
"""
