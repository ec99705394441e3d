"""Keras's part of an `IPUStrategy`'s scope: patches the trainer and the methods of models when it is entered.

    IPUStrategy.scope() ──► ipu_tf._strategy.hooks ──► scope.keras_scope ──► stock.patches.install_trainer
                                                                          └► model_patches.install_extensions

`ipu_tf._strategy` has what does not depend on Keras: `strategy.run` and the hooks. Start with `scope`.
"""
