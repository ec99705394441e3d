"""Keras's private API, in one file for each subject: arrays, graphs of layers, patches, models and optimizers.

Nothing else in this project imports `keras.src`. Start with `patches`: how a method of Keras is replaced.
Enters: Keras's objects, and functions that replace its methods. Leaves: values that the rest of `keras_ipu` needs.
"""
