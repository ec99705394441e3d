"""Elementwise operations of a program, joined into calls of a native kernel, which XLA need not make code for.

    jaxpr ──flat_equations──► equations ──operands, grouping──► groups ──function──► ElementwiseFunction
                                                                            └─encoding──► call of the native kernel

Enters: a function that JAX can trace. Leaves: the same function, whose groups of float32 operations are calls.
Start with `evaluate`. The kernel is in `ipu_tf/device/convolution/native`, `elementwise.c`.
"""
