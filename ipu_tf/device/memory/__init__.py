"""State that persists between executions: resident variables, hidden state, seeds, host tables.

Enters: variables of the front end, when a program first reads them. Leaves: their values, when the host asks for them.
Start with `residency`. `malloc_options` and `memory_maps` set and check the memory of the process itself.
"""
