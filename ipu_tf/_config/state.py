"""Configured system of the process: its IPU devices, and callbacks for when it is reset."""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Callable
from contextlib import ExitStack

import jax

from ipu_tf._config.attachments import attach, detach
from ipu_tf._config.default_rules import has_one_ipu_by_default, rules_hold_by_default
from ipu_tf._config.devices import IPUDevice, auto_selected_devices, selected_devices
from ipu_tf._config.engine_options import auto_report, capacity_check, keeps_names, use_auto_report
from ipu_tf._config.enums import DeviceConnectionType
from ipu_tf._config.environment_report import warn_about_environment
from ipu_tf._config.errors import failed_precondition, invalid_argument
from ipu_tf._config.flags import apply_flags, flags, use_ipu_model
from ipu_tf._config.ignored_options import warn_not_emulated
from ipu_tf._config.ipu_options import IpuOptions
from ipu_tf._config.messages import LOGGER, apply_log_settings
from ipu_tf._config.schema import ConfigRoot
from ipu_tf._config.validation import as_numbers, validate
from ipu_tf._pvti.session import start_if_asked
from ipu_tf._state.once import first_time
from ipu_tf._state.registry import register_state
from ipu_tf.device.feeds import connection_type
from ipu_tf.device.feeds.connection_type import Connection
from ipu_tf.device.files import saved_programs
from ipu_tf.device.instances.across import run_programs_together
from ipu_tf.device.instances.joined import is_joined, join_if_expected
from ipu_tf.device.memory.residency import RESIDENCY
from ipu_tf.device.op_scopes import keep_names
from ipu_tf.device.run.compilation_log import check_programs_by
from ipu_tf.device.run.forks import check_not_forked
from ipu_tf.reports.auto import AutoReport

__all__ = [
    "ConfiguredSystem",
    "IPUDevice",
    "configure",
    "configured_devices",
    "configured_system",
    "current_config",
    "graphcore_rules",
    "on_reset",
    "require_device",
    "reset",
    "use_device",
]

_ONE_IPU = (IPUDevice(0, 1),)
_CONNECTIONS = {
    DeviceConnectionType.ALWAYS: Connection.ATTACHED,
    DeviceConnectionType.ON_DEMAND: Connection.ATTACHED,
    DeviceConnectionType.NEVER: Connection.COMPILE_ONLY,
    DeviceConnectionType.PRE_COMPILE: Connection.PRE_COMPILE,
}
_NOT_CONFIGURED = (
    "No device target has been configured. Did you configure the IPU devices by running "
    "`tensorflow.python.ipu.utils.configure_ipu_system(ipu_options)`?\n"
    "Put these lines before the first use of the device (`import ipu_tf as ipu`):\n"
    "    cfg = ipu.config.IPUConfig()\n"
    "    cfg.auto_select_ipus = 1\n"
    "    cfg.configure_ipu_system()"
)
_ALREADY_CONFIGURED = (
    "IPU system configuration has already been set in this process, but it should have been reset "
    "automatically by the call to 'tensorflow.python.ipu.config.configure_ipu_system'."
)
_RESETTING = "Resetting existing IPU configuration before applying new configuration; "


@dataclasses.dataclass(frozen=True)
class ConfiguredSystem:
    """A configuration and its IPU devices.

    Attributes:
        options: the record of the configuration; configurations with equal records are the same.
        config: a copy of the configuration, without other references.
        devices: the emulated devices, `/device:IPU:0` first.
    """

    options: IpuOptions
    config: ConfigRoot
    devices: tuple[IPUDevice, ...]


class _SystemState:
    """The system of this process. Readers take no lock: a system is replaced as a whole."""

    def __init__(self) -> None:
        self.system: ConfiguredSystem | None = None
        self._changing = threading.RLock()
        self._registering = threading.Lock()
        self._callbacks: dict[object, Callable[[], None]] = {}

    def configure(self, config: ConfigRoot, reset_configuration: bool) -> None:
        """See the function `configure`. All that can fail, but for the callbacks, precedes any change."""
        wanted = _prepare(config)
        with self._changing:
            existing = self.system
            equal = existing is not None and existing.options == wanted.options
            if existing is not None and not equal and not reset_configuration:
                raise failed_precondition(_ALREADY_CONFIGURED)
            apply_flags()
            apply_log_settings()
            start_if_asked()
            if equal:
                return
            warn_about_environment(flags())
            warn_not_emulated(wanted.config)
            reports, names = auto_report(wanted.config), keeps_names(wanted.config)
            capacity = capacity_check(wanted.config, tuple(device.num_ipus for device in wanted.devices))
            note = f"configured {', '.join(map(str, wanted.devices))} (jax {jax.__version__} on {_backend()})"
            self.reset()
            self.system = wanted
            _connect(wanted.config)
            saved_programs.use(str(wanted.config.serialization_output_folder))
            use_auto_report(reports)
            keep_names(names)
            check_programs_by(capacity)
            attach(wanted.devices, as_numbers(wanted.config.select_ipus))
            LOGGER.info("ipu_tf: %s%s", "" if existing is None else _RESETTING, note)

    def reset(self) -> None:
        """Forget the system, then call every callback, even if one of them fails."""
        with self._changing:
            if self.system is None:
                return
            self.system = None
            detach()
            run_programs_together(1)
            connection_type.connect(Connection.ATTACHED)
            saved_programs.use("")
            use_auto_report(AutoReport())
            keep_names(False)
            check_programs_by(None)
            with self._registering:
                callbacks = tuple(self._callbacks.values())
            with ExitStack() as stack:
                for callback in reversed(callbacks):
                    stack.callback(callback)

    def clear(self) -> None:
        """Forgets the system; callbacks and the launcher's default stay."""
        self.reset()

    def register(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Add a callback; the result removes it."""
        token = object()
        with self._registering:
            self._callbacks[token] = callback

        def unregister() -> None:
            with self._registering:
                self._callbacks.pop(token, None)

        return unregister


_STATE = register_state("configured system", _SystemState())


def configure(config: ConfigRoot, reset_configuration: bool = True) -> None:
    """Make `config` the configuration of this process; nothing happens if it is that already.

    The JAX backend starts here, since the log line names it.

    Args:
        config: the configuration. A copy is kept, so later changes of `config` have no effect.
        reset_configuration: whether another configuration may be replaced. Its device-resident state is
            dropped.

    Raises:
        TypeError, ValueError: if attributes of `config` contradict each other; see `validate`.
        FlagsError, EmulationError: if TF_POPLAR_FLAGS holds something that it must not, or that cannot be done.
        tf.errors.FailedPreconditionError: if another configuration must not be replaced, or a device asks
            for more IPUs than there are.
        tf.errors.InvalidArgumentError: if `select_ipus` has an id that does not exist.
        ForkedProcess: in a process that was forked from one where JAX had started.
    """
    check_not_forked()
    join_if_expected()
    _STATE.configure(config, reset_configuration)


def reset() -> None:
    """Forget the configuration and drop what lives on its devices. Without a configuration, do nothing."""
    _STATE.reset()


def on_reset(callback: Callable[[], None]) -> Callable[[], None]:
    """Registers `callback()` to be called whenever the system is reset, to drop what lives on the devices.

    When it is called nothing is configured any more. Every callback is called even if another one fails; the
    error then reaches whoever asked for the reset.

    Returns:
        A function that takes the callback out again.
    """
    return _STATE.register(callback)


def configured_system() -> ConfiguredSystem | None:
    """The system as it is now; None if nothing is configured."""
    return _STATE.system


def configured_devices() -> tuple[IPUDevice, ...]:
    """The configured devices, `/device:IPU:0` first; empty if nothing is configured."""
    system = _STATE.system
    return () if system is None else system.devices


def current_config() -> ConfigRoot | None:
    """A copy of the configuration; None if nothing is configured."""
    system = _STATE.system
    return None if system is None else copy.deepcopy(system.config)


def graphcore_rules() -> bool:
    """Returns whether Keras data has to be as Graphcore's Keras wants it: the option `graphcore_rules`."""
    system = _STATE.system
    return rules_hold_by_default() if system is None else system.config.graphcore_rules


def require_device(ordinal: int) -> IPUDevice:
    """The device `/device:IPU:<ordinal>`.

    On the IPU model (TF_POPLAR_FLAGS=--use_ipu_model), and under the launcher, a process that configured nothing has
    one device with one IPU.

    Raises:
        FlagsError: if TF_POPLAR_FLAGS holds something that it must not.
        tf.errors.FailedPreconditionError: if nothing is configured.
        tf.errors.InvalidArgumentError: if there is no device of that ordinal.
        ForkedProcess: in a process that was forked from one where JAX had started.
    """
    check_not_forked()
    on_model = use_ipu_model()
    devices = configured_devices() or (_ONE_IPU if on_model or has_one_ipu_by_default() else ())
    if not devices:
        raise failed_precondition(_NOT_CONFIGURED)
    if configured_system() is None:
        _log_default()
    if not 0 <= ordinal < len(devices):
        raise invalid_argument(_no_such_device(ordinal, devices))
    return devices[ordinal]


def use_device(ordinal: int) -> IPUDevice:
    """Returns the device for a program that is to be compiled or run now, with the flags of the environment applied.

    Raises as `require_device` does, and if the folder of the executable cache cannot be used.
    """
    apply_flags()
    start_if_asked()
    return require_device(ordinal)


def _log_default() -> None:
    if first_time("nothing is configured"):
        attach(_ONE_IPU, ())
        LOGGER.info("ipu_tf: nothing is configured: /device:IPU:0 has 1 emulated IPU, as on Graphcore's IPU model.")


def _prepare(config: ConfigRoot) -> ConfiguredSystem:
    """Builds the system of `config`, after all checks."""
    own = copy.deepcopy(config)
    validate(own)
    if flags().values["use_on_demand"]:
        own.device_connection.type = DeviceConnectionType.ON_DEMAND
    selected = selected_devices(as_numbers(own.select_ipus))
    devices = selected or auto_selected_devices(as_numbers(own.auto_select_ipus), use_ipu_model()) or _ONE_IPU
    return ConfiguredSystem(IpuOptions(own), own, devices)


def _connect(config: ConfigRoot) -> None:
    """Has programs run on the device, and in the instances, that a configuration says."""
    count = config.experimental.multi_replica_distribution.process_count
    run_programs_together(count if is_joined(count) else 1)
    connection_type.connect(_CONNECTIONS[config.device_connection.type])


def _drop_resident_variables() -> None:
    """Writes resident variables back to the host and frees their buffers."""
    RESIDENCY.flush()
    RESIDENCY.forget()


def _backend() -> str:
    return jax.default_backend()


def _no_such_device(ordinal: int, devices: tuple[IPUDevice, ...]) -> str:
    there = f"{len(devices)} IPU device{' is' if len(devices) == 1 else 's are'} configured"
    advice = "Use a device that exists"
    if ordinal >= len(devices):
        advice += f", or set `auto_select_ipus` to {ordinal + 1} numbers, one for each device"
    return f"There is no /device:IPU:{ordinal}: {there} ({', '.join(map(str, devices))}). {advice}."


on_reset(_drop_resident_variables)
