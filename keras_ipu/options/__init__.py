"""Options of IPU models: the `set_..._options` methods, their rules, and where a model keeps them."""
