"""What arguments of the whole interface may be: numbers that count something, enumerations that are ints.

Enters: what a user gave. Leaves: Python ints and members, or an error that names the argument and the value.
Start with `counts`.
"""
