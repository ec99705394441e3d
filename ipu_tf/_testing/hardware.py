"""Decorators that declare how many IPUs a test needs, and skip it where there are fewer.

`TF_IPU_COUNT=n` makes a test run behave as on a machine with n IPUs. Where it is not set, a test may have every IPU
that can be emulated, and tests that avoid hardware run too: an emulated IPU is none.
"""

from __future__ import annotations

import functools
import unittest
from collections.abc import Callable
from typing import Any

from ipu_tf.config import DeviceConnectionType, IPUConfig, running_on_ipu_model
from ipu_tf.device import environment

Test = Callable[..., Any]


def get_ci_num_ipus() -> int:
    """Returns how many IPUs tests may use."""
    wanted = environment.ci_ipu_count()
    return environment.ipu_count() if wanted is None else wanted


def has_ci_ipus() -> bool:
    """Returns whether tests may use IPUs at all."""
    return get_ci_num_ipus() > 0


def add_hw_ci_connection_options(opts: IPUConfig) -> None:
    """Sets remote buffers and on-demand device connection in a configuration.

    Args:
        opts: the configuration, changed in place.
    """
    opts.device_connection.enable_remote_buffers = True
    opts.device_connection.type = DeviceConnectionType.ON_DEMAND


def test_uses_ipus(num_ipus: int, allow_ipu_model: bool = False, func: Test | None = None) -> Any:
    """A decorator for a test that needs IPUs; with fewer of them the test is skipped.

    Args:
        num_ipus: how many the test needs.
        allow_ipu_model: whether the test also runs without them.
        func: the test, a method of a `unittest.TestCase` or a function of pytest's; None gives a decorator.

    Raises:
        RuntimeError: when the test runs with `TF_IPU_COUNT` set although `TF_POPLAR_FLAGS` asks for the IPU model.
    """

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            if not allow_ipu_model:
                _skip_without_ipus(num_ipus)
            _check_no_ipu_model(num_ipus)
            return test(*args, **kwargs)

        return decorated

    return decorate if func is None else decorate(func)


def test_may_use_ipus_or_model(num_ipus: int, func: Test | None = None) -> Any:
    """A decorator for a test that uses IPUs where there are some, and else the IPU model.

    Args:
        num_ipus: how many it uses.
        func: the test method; None gives a decorator.
    """
    return test_uses_ipus(num_ipus, allow_ipu_model=True, func=func)


# pytest takes what is called test_... for a test.
test_uses_ipus.__test__ = False  # type: ignore[attr-defined]
test_may_use_ipus_or_model.__test__ = False  # type: ignore[attr-defined]


def skip_on_hw(func: Test) -> Test:
    """A decorator for a test that is meant for the IPU model: it runs with that flag of TF_POPLAR_FLAGS set."""

    @functools.wraps(func)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with environment.poplar_flag("--use_ipu_model"):
            return func(*args, **kwargs)

    return decorated


def skip_if_not_enough_ipus(self: unittest.TestCase, num_ipus: int) -> None:
    """Skips the running test where tests may use fewer than `num_ipus` IPUs."""
    _skip_without_ipus(num_ipus)


def skip_with_asan(reason: str) -> Callable[[Test], Test]:
    """A decorator for a test that is skipped under AddressSanitizer.

    Args:
        reason: why it is.

    Raises:
        TypeError: if `reason` is not a string.
    """
    if not isinstance(reason, str):
        raise TypeError(f"`reason` must be a string. Received: {reason!r}.")

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            if environment.under_address_sanitizer():
                raise unittest.SkipTest(reason)
            return test(*args, **kwargs)

        return decorated

    return decorate


def _skip_without_ipus(num_ipus: int) -> None:
    """Skips the running test, of unittest's or pytest's, where tests may use fewer IPUs."""
    available = get_ci_num_ipus()
    if available < num_ipus:
        raise unittest.SkipTest(f"The test needs {num_ipus} IPUs; TF_IPU_COUNT gives it {available}.")


def _check_no_ipu_model(num_ipus: int) -> None:
    if (environment.ci_ipu_count() or 0) >= num_ipus and running_on_ipu_model():
        raise RuntimeError(
            "TF_POPLAR_FLAGS asks for the IPU model while TF_IPU_COUNT offers IPUs. Leave one of them out."
        )
