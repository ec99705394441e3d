"""Products with packed weights: matrices of int8, and of two 4-bit numbers a byte, that stay so in memory.

    x [rows, inner], weights ──► packed_product ──► native kernel, which widens weights in registers, or plain JAX

Enters: arrays as Keras's quantised layers keep them. Leaves: the product, float32 or int32.
The kernel is in `ipu_tf/device/convolution/native`, `packed_product.c`.
"""
