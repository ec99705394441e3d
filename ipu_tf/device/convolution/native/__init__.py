"""Native kernels: C functions that XLA calls, from a library that is built with the package where there is a compiler.

    filter_gradient.c ── kernels.h, once for each instruction set ──────► _kernels.*.so ──ctypes──► XLA's FFI registry
    dense_convolution.c, depthwise_convolution.c ── ..._kernels.h, the same┤
    packed_product.c ─── packed_kernels.h, once for each instruction set ───┤
    sum.c ────────────── sum_kernels.h, once for each instruction set ──────┤
    random.c ─────────── random_kernels.h, once for each instruction set ───┤
    row_product.c ────── row_kernels.h, once for each instruction set ──────┤
    matrix_product.c ─── matrix_kernels.h, once for each instruction set ──┤
    rounding.c ───────── rounding_kernels.h, once for each instruction set ─┤
    elementwise.c ────── elementwise_kernels.h, the same ───────────────────┤
    instance_sum.c ───── instance_memory.h ─────────────────────────────────┘

Enters: arrays and shapes. Leaves: a convolution, the gradient of a convolution's filters, a product with packed weights
(`ipu_tf/device/packed`), the product of a few rows with a large matrix, products of matrices, sums over an axis, random
bits, numbers rounded by chance, elementwise operations (`ipu_tf/device/elementwise`), or sums over the
instances of a host (`ipu_tf/device/instances`), by a custom call on XLA's own threads.
Without the library, or with `IPU_TF_NATIVE=0`, other plans and plain JAX compute the same.
Start with `library.py`, which loads it.
"""
