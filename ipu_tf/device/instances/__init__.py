"""Instances: processes that run one program together, joined by JAX's coordination service.

    variables of poprun, Open MPI, Slurm ─► Place ─► join ─► Coordination ─► exchange of values by name
                                                                │
                                                                └─► what became of the others

Enters and leaves: bytes, by name. Start with `joined.py`.
"""
