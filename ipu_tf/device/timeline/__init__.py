"""Events of the host while programs are traced, compiled and executed: recorded where that is asked for, else nothing.

    code of the device, `libpvti` ──► spans, marks, samples ──► HostTrace ──► files (`ipu_tf._pvti`)

Start with `span`, which costs the look-up of one attribute while nothing is recorded.
"""

from ipu_tf.device.timeline.host_trace import CHANNELS, DISABLED, HostTrace, recording, span, use

__all__ = ["CHANNELS", "DISABLED", "HostTrace", "recording", "span", "use"]
