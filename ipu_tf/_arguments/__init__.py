"""Checks of arguments that the whole interface shares: counts, keyword names, enumerations that are ints.

Enters: what a user gave. Leaves: Python ints and members, or an error that names the argument and the value.
Start with `counts`.
"""
