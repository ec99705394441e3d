"""Infeeds, outfeeds and their staging: how elements reach a running loop, and how results leave it.

    host iterator --infeed--> stager (a thread) --> staging buffers --> the loop on the device --> outfeed --> host

Enters: elements, one at a time, from an iterator. Leaves: rows of results, in the order of the program.
Start with `infeed`, `stager`, `outfeed`; `queues` finds them by name; `timeout` bounds every wait.
"""
