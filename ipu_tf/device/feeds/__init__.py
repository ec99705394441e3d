"""Infeeds and outfeeds between host and device, with staging of elements in host memory.

    host iterator --infeed--> stager (a thread) --> staging buffers --> the loop on the device --> outfeed --> host

Enters: elements, one at a time, from an iterator. Leaves: elements of results, in the order of the program.
Start with `infeed`, `stager`, `outfeed`; `queues` finds them by name; `timeout` limits the wait for elements.
"""
