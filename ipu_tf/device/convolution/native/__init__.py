"""Native kernels: C functions that XLA calls, from a library that is built with the package where there is a compiler.

    filter_gradient.c ── kernels.h, once for each instruction set ──► _kernels.*.so ──ctypes──► XLA's FFI registry

Enters: arrays and a convolution's shapes. Leaves: the gradient of its filters, by a custom call on XLA's own threads.
Without the library, or with `IPU_TF_NATIVE=0`, convolutions are computed by other plans.
"""
