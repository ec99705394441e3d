"""fit, evaluate and predict of IPU models, for both of Keras's back ends.

    Keras's own fit --> epoch iterator: batches of one execution --> step function in a device loop --> logs

`common/` is shared; `tensorflow/` and `jax/` hold what differs. Start with `tensorflow/trainer.py`.
"""
