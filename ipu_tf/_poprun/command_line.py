"""Command line `poprun`: starts a program as several instances."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import ipu_tf
from ipu_tf._poprun.arguments import Settings, UsageError, export, parse, usage
from ipu_tf._poprun.hosts import coordinator_address, hosts_in_file, hosts_of, is_this_machine
from ipu_tf._poprun.instances import Instance, instances, topology, variables
from ipu_tf._poprun.options import OPTIONS
from ipu_tf._poprun.output import say
from ipu_tf._poprun.processes import Command, Processes
from ipu_tf._poprun.ssh import over_ssh
from ipu_tf.device import environment

_ALIASES = Path(ipu_tf.__file__).parent / "_compat" / "child_processes"


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs `poprun`; the exit code is that of the first instance that fails, else 0.

    Args:
        argv: the command line after `poprun`; that of this process by default.

    Raises:
        SystemExit: always.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    if not given or given[0] in ("-h", "--help", "--version"):
        print(f"poprun {ipu_tf.__version__} (ipu_tf)" if given[:1] == ["--version"] else usage())
        sys.exit(0)
    try:
        sys.exit(_run(parse(given)))
    except UsageError as error:
        say(str(error))
        sys.exit(2)
    except OSError as error:
        say(f"cannot start the program: {error}.")
        sys.exit(127)


def _run(settings: Settings) -> int:
    started = instances(settings["num_instances"], settings["num_replicas"], _hosts(settings))
    shown = settings["only_output_from_instance"]
    if shown is not None and shown >= len(started):
        raise UsageError(
            f"--only-output-from-instance: there are instances 0 to {len(started) - 1}. Received: {shown}."
        )
    if settings["export_config"]:
        export(settings)
    _say_no_effect(settings)
    if settings["print_topology"]:
        print("\n".join(topology(started, settings["ipus_per_replica"])), flush=True)
    coordinator, exported = coordinator_address([each.host for each in started]), _exported(settings)
    commands = []
    for each in started:
        own = {**exported, **variables(each, started, settings["ipus_per_replica"], coordinator)}
        commands.append(_command(settings, each, {**own, **_cache(settings)}))
    return Processes(commands).run()


def _command(settings: Settings, instance: Instance, own: Mapping[str, str]) -> Command:
    """Returns an instance's command: the program itself here, ssh for another machine."""
    shown = settings["only_output_from_instance"] in (None, instance.index)
    here = is_this_machine(instance.host)
    paths = {"IPU_TF_ALIASES": "1", "PYTHONPATH": environment.python_path(str(_ALIASES))}
    arguments = list(settings.program)
    if not here:
        arguments = over_ssh(instance.host, {**paths, **own}, arguments, reads_input=instance.index == 0)
    if settings["verbose"] or settings["vv"]:
        say(f"instance {instance.index} on {instance.host}: {shlex.join(arguments)}")
    if settings["vv"]:
        for name, value in sorted(own.items()):
            say(f"instance {instance.index}: {name}={value}")
    return Command(arguments, environment.of_child(own, str(_ALIASES)), shown, None if here else instance.host)


def _hosts(settings: Settings) -> tuple[str, ...]:
    if settings["host"] and settings["hostfile"]:
        raise UsageError("--host and --hostfile exclude each other.")
    try:
        if settings["hostfile"]:
            return hosts_in_file(settings["hostfile"])
        return hosts_of(settings["host"]) if settings["host"] else ("localhost",)
    except (OSError, ValueError) as error:
        raise UsageError(f"{'--hostfile' if settings['hostfile'] else '--host'} {error}.") from None


def _exported(settings: Settings) -> dict[str, str]:
    """Returns the variables of `-x` in the arguments for mpirun; says which other arguments have no effect."""
    found, others = {}, []
    given = {"--mpi-global-args": settings["mpi_global_args"], "--mpi-local-args": settings["mpi_local_args"]}
    words = iter([word for option, text in given.items() for word in _words(option, text)])
    for word in words:
        if word == "-x":
            name, equals, value = next(words, "").partition("=")
            found[name] = value if equals else environment.text_of(name)
        elif word != "--tag-output":  # output is tagged anyway
            others.append(word)
    if others:
        say(f"arguments for mpirun without effect, as no mpirun is used: {shlex.join(others)}")
    return {name: value for name, value in found.items() if name}


def _words(option: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}.") from None


def _cache(settings: Settings) -> dict[str, str]:
    folder = settings["executable_cache_path"]
    if not folder:
        return {}
    flags = f"{environment.poplar_flags()} --executable_cache_path={folder}".strip()
    return {"POPDIST_EXECUTABLE_CACHE_PATH": folder, "TF_POPLAR_FLAGS": flags}


def _say_no_effect(settings: Settings) -> None:
    for option in OPTIONS:
        if option.no_effect and option.key in settings.given:
            say(f"{option.name} has no effect: {option.no_effect}.")
