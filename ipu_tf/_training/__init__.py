"""Weight updates: gradient accumulation, reduction over replicas, replica count.

    gradients of a micro-batch --accumulation--> sum --weight_update--> sum over replicas --> optimizer

Start with `weight_update`.
"""
