"""Removes podman's containers when the daemon that made them is gone; else does nothing.

A container outlives its client and its daemon. This file is run as a small process of
its own (``python -I -S``, standard library only): it holds the reading end of a pipe from
the daemon, is told which names to guard, and removes what is still guarded when the pipe
ends, however the daemon ended. The daemon itself removes containers with the same code.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

#: One podman command. A loaded machine needs a second.
_COMMAND_SECONDS = 15.0
#: A client that still runs so long after its container is gone is half-way through a start.
_CLIENT_SECONDS = 0.5
#: Removals that raced with a start need a second try; six are more than was ever needed.
_ROUNDS = 6
_POLL_SECONDS = 0.02


class NotRemoved(Exception):
    """Something of a container is left."""


def remove_container(command: Sequence[str], env: Mapping[str, str], name: str) -> None:
    """Remove container ``name`` and every process of it, or ``NotRemoved``.

    Our ends of its output must be closed before: a blocked writer cannot be removed.
    ``command`` is podman with its global options.
    """
    _run(command, env, "rm", "--force", "--time=0", "--ignore", name)
    if not wait_until(lambda: not clients_of(name), _CLIENT_SECONDS):
        _kill(clients_of(name))
        wait_until(lambda: not clients_of(name), _CLIENT_SECONDS)
    for _ in range(_ROUNDS):
        left = containers_named(command, env, name)
        if not left:
            break
        for container in left:
            _run(command, env, "rm", "--force", "--time=0", "--ignore", container)
    for monitor in monitors_of(name):
        _kill([*children_of(monitor), monitor])
    gone = wait_until(lambda: not monitors_of(name), _CLIENT_SECONDS)
    if not gone or containers_named(command, env, name):
        raise NotRemoved


def containers_named(command: Sequence[str], env: Mapping[str, str], name: str) -> list[str]:
    """Ids of containers of that name, also of those that exist in storage only."""
    return [found for found, names in list_containers(command, env) if name in names]


def list_containers(
    command: Sequence[str], env: Mapping[str, str]
) -> list[tuple[str, tuple[str, ...]]]:
    """Every container of the store: its id and its names."""
    listed = _run(command, env, "ps", "--all", "--external", "--format", "{{.ID}} {{.Names}}")
    rows = [line.split() for line in listed.splitlines() if line.strip()]
    return [(row[0], tuple(" ".join(row[1:]).split(","))) for row in rows]


def clients_of(name: str) -> list[int]:
    """Processes of ours that run ``podman run --name NAME``."""
    return [pid for pid, argv in own_processes() if _has_pair(argv, b"--name", name)]


def monitors_of(name: str) -> list[int]:
    """Processes of ours that are the ``conmon`` of container ``name``."""
    return [
        pid
        for pid, argv in own_processes()
        if os.path.basename(argv[0]) == b"conmon" and _has_pair(argv, b"-n", name)
    ]


def own_processes() -> Iterator[tuple[int, list[bytes]]]:
    """Running processes of our own uid with a command line."""
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            if os.stat(f"/proc/{entry}").st_uid != os.geteuid():
                continue
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                argv = file.read().split(b"\0")
        except OSError:
            continue
        if argv[0]:
            yield int(entry), argv


def children_of(parent: int) -> list[int]:
    """The children of process ``parent``."""
    try:
        with open(f"/proc/{parent}/task/{parent}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether ``holds()`` became true in that time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def remove_groups(folders: Sequence[str], name: str) -> None:
    """Remove the control groups ``name`` in ``folders``, and those below them."""
    for folder in folders:
        for place, _, _ in os.walk(os.path.join(folder, name), topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(place)


def stop_pause_process(command: Sequence[str], env: Mapping[str, str], pid_file: str) -> None:
    """End rootless podman's helper that keeps its user namespace, if no container is left."""
    try:
        with open(pid_file) as file:
            pid = int(file.read())
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            argv = file.read()
    except (OSError, ValueError):
        return
    if (b"catatonit" in argv or b"podman" in argv) and not list_containers(command, env):
        _kill([pid])


def _has_pair(argv: Sequence[bytes], option: bytes, value: str) -> bool:
    return (option, value.encode()) in itertools.pairwise(argv)


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _run(command: Sequence[str], env: Mapping[str, str], *arguments: str) -> str:
    """What a podman command printed; nothing when it failed or took too long."""
    try:
        done = subprocess.run(
            [*command, *arguments],
            env=dict(env),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_COMMAND_SECONDS,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.decode(errors="replace")


def main() -> int:
    """Guard until the pipe ends, then remove. Lines: ``+NAME`` and ``-NAME``."""
    setting = json.loads(sys.argv[1])
    command, env = setting["command"], setting["env"]
    guarded: set[str] = set()
    for line in sys.stdin:
        name = line[1:].rstrip("\n")
        if line.startswith("+"):
            guarded.add(name)
        else:
            guarded.discard(name)
    failed = 0
    if guarded:
        # All at once first: one after the other, many would take their time.
        _run(command, env, "rm", "--force", "--time=0", "--ignore", *sorted(guarded))
    for name in sorted(guarded):
        try:
            remove_container(command, env, name)
        except NotRemoved:
            failed = 1
        remove_groups(setting["groups"], name)
    if setting["pausePidFile"]:
        stop_pause_process(command, env, setting["pausePidFile"])
    return failed


if __name__ == "__main__":
    sys.exit(main())
