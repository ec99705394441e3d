"""One weight update, however the step is split: gradient accumulation, sums over replicas, the number of replicas.

    gradients of a micro-batch --accumulation--> sum --weight_update--> sum over replicas --> optimizer

Start with `weight_update`.
"""
