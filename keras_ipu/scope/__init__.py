"""Installs the methods of IPU models when an `IPUStrategy`'s scope is entered."""
