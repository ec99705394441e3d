"""Jaxprs, JAX's traced functions: flattened, evaluated otherwise than JAX does, and rewritten.

Enters: jaxprs that JAX traced, of whole programs, loops and branches. Leaves: jaxprs, or values of what is traced now.
Start with `flat_equations`. `split_carries` rewrites the loops of all programs; other rewritings are `elementwise`'s
and `instances`' own.
"""
