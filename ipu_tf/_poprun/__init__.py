"""`poprun`: starts the instances of a program, here or over ssh, and ends them together.

    command line ─► options ─► hosts ─► instances, with their environments ─► processes
                                                                               │ lines of output, exit codes
    terminal ◄─ [1,0]<stdout>: ... ◄───────────────────────────────────────────┘

Enters: a command line. Leaves: the instances' output, and an exit code. Only the standard library is used.
Start with `command_line.py`.
"""
