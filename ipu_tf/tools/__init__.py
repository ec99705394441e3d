"""Graphcore's command-line tools for emulated IPUs: `gc-info`, `gc-inventory`, `gc-monitor`, `gc-reset`, traffic tests.

    device table of `select_ipus` ─┐
    processes that use IPUs ───────┴──► attributes of each IPU ──► listings, tables, JSON; `ipu_tf.gcipuinfo`

Start with `device_attributes`.
"""

from ipu_tf.tools.attributes import device_attributes

__all__ = ["device_attributes"]
