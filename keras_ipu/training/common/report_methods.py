"""Methods of IPU models: `ipu_report`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ipu_tf._loops.step_loop import StepLoop
from ipu_tf.reports import Report, report_of
from keras_ipu.training.common.traced_loops import TracedLoops

_FUNCTIONS = ("train_function", "test_function", "predict_function", "generate_function")


class ReportMethods:
    """A method that every model made in the scope of an `IPUStrategy` has."""

    def ipu_report(self) -> Report:
        """Returns the report on the program that the device executed last for this model, or only compiled.

        `print` shows it as text, a notebook as HTML. It has the values that are alive at each operation, FLOPs of
        layers, the stages of a pipeline, and times measured on this machine. The program is traced again for it.

        Raises:
            LookupError: the device has executed nothing for this model since it was compiled.

        Example:
            model.fit(x, y)
            print(model.ipu_report())
        """
        executed = [loop.executable for loop in _loops(self) if loop.executable.record.begun_last is not None]
        if not executed:
            raise LookupError(
                "There is no program to report on: wanted one that the device executed for this model since it was "
                "compiled. Call fit, evaluate or predict first, or generate."
            )
        last = max(executed, key=lambda each: each.record.begun_last or 0.0)
        return report_of(last.program, last.record)


def _loops(model: Any) -> Iterator[StepLoop]:
    for name in _FUNCTIONS:
        function = getattr(model, name, None)
        if isinstance(function, TracedLoops):
            yield from function.loops
