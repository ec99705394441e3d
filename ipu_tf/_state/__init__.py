"""Registry of the process's state: every kind has one object and one owner, and tests clear all of it at once.

    owner ──register_state(kind, object)──► registry ──clear_states()──► as in a new process

Enters: objects of modules of every layer. Leaves: nothing; each module reads and changes its own object.
Start with `registry`. The kinds are listed in docs/architecture.md.
"""
