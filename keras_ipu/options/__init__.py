"""Options of IPU models: the `set_..._options` methods, their checks, and the model state that holds them."""
