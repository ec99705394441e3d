"""Patches of TensorFlow, Keras and JAX: one table, one way to install, one to uninstall.

    table.PATCHES: target, when, why <--must list-- installation.replace_in(owner, name, make) --undo--> uninstall_all()

Enters: the name of an attribute of another package and a function that makes its replacement from the stock one.
Imports nothing but the standard library, so that `import ipu_tf` stays cheap and every layer can use it.
Start with `table`.
Leaves: the attribute replaced, and the function that puts it back.
"""
