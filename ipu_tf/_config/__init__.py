"""Configuration of the IPU system: schema of `IPUConfig`, validation, `TF_POPLAR_FLAGS`, the configured devices.

    IPUConfig attributes --schema, types--> validation --> state: the configured system --> replicas, numerics, feeds

Enters: attributes that a user sets, flags of the environment. Leaves: `state.configured_system()`.
Start with `schema` (the attributes), `base` (how they are declared), `state` (what is configured now).
"""
