"""Convolution and pooling on the device, by the convolution plan that a cost model estimates to be the fastest.

    StableHLO's convolution --canonical--> problem --plans: cheapest that applies--> library, oneDNN, matmul, ...

Enters: a convolution's operands and dimension numbers. Leaves: its result, traced into JAX.
Start with `problem` (what is computed) and `plans` (how it is chosen). `onednn` alone names XLA's custom calls.
"""
