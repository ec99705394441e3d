"""Options of IPU models: the `set_..._options` methods, their checks, and the model state that holds them.

    model.set_pipelining_options(...) ─methods─► checks ─► IPUOptions (frozen) ─model_state.options_of─► every step

Enters: what a user sets. Leaves: `IPUOptions`. Start with `options`.
"""
