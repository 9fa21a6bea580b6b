"""The end of the daemon, however it ends, is the end of its sandboxes."""

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.engines.cgroups import find_cgroup_home, find_memory_home, stale_groups
from broker.engines.hostfacts import processes_with_argument, read_children
from broker.engines.owners import owner_of_name
from broker.engines.selection import open_engine

#: A daemon as far as engines see one: an agent and a recipe that resist, in one engine.
DAEMON = """
import sys, trio
from pathlib import Path
from broker.engines.selection import open_engine
from broker.engines.spec import *
from protocol.ids import Digest, Id

CODE = '''
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
print("up", flush=True)
while True: signal.pause()
'''

async def main(name, state, reference, marker):
    engine = await open_engine(name, state=Path(state))
    root = ImageRoot(reference) if name == "podman" else HostRoot(None, Digest(reference))
    sandboxes = []
    for role in ("agent", "recipe"):
        sandboxes.append(await engine.spawn(SandboxSpec(
            role=role, attempt_id=Id("attempt-1"), root=root,
            argv=("/usr/bin/python3", "-I", "-S", "-c", CODE, marker), env=(),
            limits=AGENT_LIMITS, deadline_seconds=300.0, work=None, stdin=True)))
        print("spawned", flush=True)
    for sandbox in sandboxes:
        await sandbox.stdout.receive_some(10)
    print("ready", flush=True)
    await trio.sleep_forever()

trio.run(main, *sys.argv[1:])
"""


STARTED: list["subprocess.Popen[bytes]"] = []


def start(
    bench: Any, state: Path, marker: str, *, program: str = DAEMON
) -> "subprocess.Popen[bytes]":
    reference = getattr(bench.root, "reference", "sha256:" + "0" * 64)
    daemon = subprocess.Popen(
        (sys.executable, "-c", program, bench.engine.name, str(state), reference, marker),
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    STARTED.append(daemon)
    return daemon


@pytest.fixture(autouse=True)
def no_daemon_outlives_its_test() -> Iterator[None]:
    yield
    while STARTED:
        daemon = STARTED.pop()
        daemon.kill()
        daemon.wait()


def require_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("control groups need root here")


def wait_until_gone(marker: str, seconds: float) -> dict[int, tuple[bytes, ...]]:
    end = time.monotonic() + seconds
    while (left := processes_with_argument(marker.encode())) and time.monotonic() < end:
        time.sleep(0.05)
    return left


async def test_nothing_is_left_ten_seconds_after_a_kill(bench: Any, state: Path) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    daemon = start(bench, state, marker)
    assert daemon.stdout is not None
    while b"ready" not in daemon.stdout.readline():
        assert daemon.poll() is None
    assert processes_with_argument(marker.encode())
    owners = set(os.listdir(state / "engines" / bench.engine.name / "owners"))
    daemon.kill()
    daemon.wait()

    assert wait_until_gone(marker, 10) == {}
    # What is no process is swept by the next daemon of the same state folder.
    await bench.engine.sweep()
    for home in (find_cgroup_home("airlock-test"), find_memory_home()):
        if home is not None and os.geteuid() == 0:
            # Other daemons of this machine have groups too; theirs are none of our business.
            assert [
                name for name in stale_groups(home, "airlock-") if owner_of_name(name) in owners
            ] == []


async def test_nothing_is_left_after_a_kill_at_any_moment_of_a_start(
    bench: Any, state: Path, full: bool
) -> None:
    chance = random.Random(11)
    for _ in range(30 if full else 3):
        marker = f"marker-{secrets.token_hex(8)}"
        daemon = start(bench, state, marker)
        time.sleep(0.35 + chance.uniform(0.0, 0.5))
        daemon.kill()
        daemon.wait()

        assert wait_until_gone(marker, 10) == {}
    await bench.engine.sweep()


async def test_a_daemon_that_dies_before_the_limits_starts_no_program(
    bubblewrap: Any, state: Path
) -> None:
    """While bubblewrap sets up, its first process is not yet bound to anybody's life.

    Killed in the instant before it was told to go on, bubblewrap itself may wait for ever;
    nothing runs in it, and the next daemon ends it.
    """
    require_root()
    dying = DAEMON.replace(
        "trio.run(",
        "import os\nfrom broker.engines.cgroups import Cgroup\n"
        "Cgroup.add = lambda group, pid: os.kill(os.getpid(), 9)\ntrio.run(",
    )
    for _ in range(5):
        marker = f"marker-{secrets.token_hex(8)}"
        daemon = start(bubblewrap, state, marker, program=dying)
        assert daemon.wait() == -signal.SIGKILL
        left = wait_until_gone(marker, 1)

        assert {Path(f"/proc/{pid}/exe").readlink().name for pid in left} <= {"bwrap"}
        assert [read_children(pid) for pid in left] == [()] * len(left)
        await bubblewrap.engine.sweep()
        assert wait_until_gone(marker, 1) == {}


async def test_an_interrupted_daemon_leaves_nothing_either(podman: Any, state: Path) -> None:
    """Ctrl-C goes to the whole group of the terminal; the watchdog is not in it."""
    marker = f"marker-{secrets.token_hex(8)}"
    daemon = start(podman, state, marker)
    assert daemon.stdout is not None
    while b"ready" not in daemon.stdout.readline():
        assert daemon.poll() is None
    daemon.send_signal(signal.SIGINT)
    daemon.wait()

    assert wait_until_gone(marker, 10) == {}


async def test_a_sweep_spares_what_a_living_daemon_has(bench: Any, state: Path) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    await bench.engine.sweep()
    sandbox = await bench.spawn(
        bench.spec("/usr/bin/python3", "-I", "-S", "-c", "print('up', flush=True); input()", marker)
    )
    await sandbox.stdout.receive_some(10)
    other = await open_engine(bench.engine.name, state=state)

    assert await other.sweep() == 0
    assert processes_with_argument(marker.encode())


@pytest.mark.parametrize("name", ["running", "created"])
async def test_a_sweep_finds_containers_in_every_state(podman: Any, state: Path, name: str) -> None:
    orphan = f"airlock-deadbeef-{secrets.token_hex(4)}"
    verb = ("run", "--detach", "--tty") if name == "running" else ("create",)
    await podman.engine.sweep()
    subprocess.run(
        [
            *(*podman.engine.command, *verb, "--network=none", "--name", orphan),
            *("--ulimit", "nofile=256:256", "--ulimit", "nproc=256:256"),
            *(podman.root.reference, "/bin/sh", "-c", "read line"),
        ],
        env=dict(podman.engine.environment),
        check=True,
        capture_output=True,
    )

    assert await podman.engine.sweep() == 1
    assert await podman.engine.inspect(orphan, "{{.Id}}") is None
