"""What is particular to podman: images by digest, and users without rights."""

import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.engines.hostfacts import processes_with_argument
from broker.engines.image import LocalImage, load_image
from broker.engines.process import Exit
from broker.engines.selection import open_engine
from broker.engines.spec import AGENT_LIMITS, ImageRoot, SandboxSpec
from protocol.errors import Refusal
from protocol.ids import Id

IGNORER = (
    "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.fork();"
    " print('up', flush=True); signal.pause()"
)


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("sha256:" + "0" * 64, "image_unknown"),
        ("localhost/airlock-probe:latest", "image_unpinned"),
        ("--help@sha256:" + "0" * 64, "image_unpinned"),
    ],
)
async def test_an_image_that_is_not_here_or_not_pinned_is_refused(
    podman: Any, reference: str, code: str
) -> None:
    with pytest.raises(Refusal) as refused:
        await podman.engine.spawn(podman.spec("/bin/true", root=ImageRoot(reference)))

    assert refused.value.code == code


async def test_an_image_with_a_volume_is_refused(podman: Any, tmp_path: Path) -> None:
    """A volume would be a folder of the host that a read-only container can fill."""
    run = [*podman.engine.command]
    environment = dict(podman.engine.environment)
    made = subprocess.run(
        [*run, "import", "--change", "VOLUME /data", "-"],
        input=empty_archive(),
        env=environment,
        capture_output=True,
        check=True,
    )
    image_id = made.stdout.decode().split()[-1].removeprefix("sha256:")
    wanted = podman.spec("/bin/true", root=ImageRoot(f"sha256:{image_id}"))
    with pytest.raises(Refusal) as refused:
        await podman.engine.spawn(wanted)

    assert refused.value.code == "image_forbidden"
    subprocess.run([*run, "rmi", image_id], env=environment, check=True, capture_output=True)


def empty_archive() -> bytes:
    return b"\0" * 10240


async def test_the_manifest_digest_names_the_same_image(
    podman: Any, probe_image: LocalImage
) -> None:
    name = probe_image.name.partition(":")[0]
    root = ImageRoot(f"{name}@{probe_image.manifest_digest}")
    sandbox = await podman.spawn(podman.python("print('up', flush=True); input()", root=root))
    await sandbox.stdout.receive_some(10)

    assert (await sandbox.facts()).image == probe_image.config_digest


async def test_what_runs_as_root_says_that_it_shares_the_hosts_users(podman: Any) -> None:
    sandbox = await podman.spawn(podman.python("print('up', flush=True); input()"))
    await sandbox.stdout.receive_some(10)
    facts = await sandbox.facts()

    assert facts.rootless == (os.geteuid() != 0)
    assert ("user" in facts.own_namespaces) == facts.rootless


def spec(reference: str, *argv: str) -> SandboxSpec:
    return SandboxSpec(
        role="agent",
        attempt_id=Id("attempt-1"),
        root=ImageRoot(reference),
        argv=argv,
        env=(),
        limits=AGENT_LIMITS,
        deadline_seconds=60.0,
        work=None,
        stdin=True,
    )


@pytest.fixture
def loaded(user_state: Path, probe_image: LocalImage, run_as_user: Any) -> str:
    """The probe's image in the store of a user without rights."""
    run_as_user(load, str(user_state), probe_image)
    return probe_image.reference


async def load(state: str, image: LocalImage) -> None:
    engine: Any = await open_engine("podman", state=Path(state))
    await trio.to_thread.run_sync(
        lambda: load_image(engine.command, image, environment=engine.environment)
    )


def test_a_user_without_rights_destroys_what_resists(
    user_state: Path, loaded: str, run_as_user: Any, bench_programs: None
) -> None:
    exits = run_as_user(destroy_resisting, str(user_state), loaded)

    assert exits == [Exit("signal", 9)] * 3


async def destroy_resisting(state: str, reference: str) -> list[Exit]:
    engine: Any = await open_engine("podman", state=Path(state))
    exits = []
    for code in (IGNORER, "while True: print('x' * 65536)", IGNORER):
        sandbox = await engine.spawn(spec(reference, "/usr/bin/python3", "-c", code))
        await sandbox.stdout.receive_some(1)
        await sandbox.destroy()
        exits.append(await sandbox.wait())
        assert processes_with_argument(sandbox.name.encode()) == {}
    return exits


def test_a_user_without_rights_gets_a_work_folder_back(
    user_state: Path, loaded: str, run_as_user: Any, bench_programs: None
) -> None:
    assert run_as_user(use_work_folder, str(user_state), loaded) == (Exit("exit", 0), False)


async def use_work_folder(state: str, reference: str) -> tuple[Exit, bool]:
    engine: Any = await open_engine("podman", state=Path(state))
    folder = Path(state) / "work"
    folder.mkdir(mode=0o700)
    await engine.prepare_work(folder)
    code = "import os; os.mkdir('/work/locked', 0); print(os.getcwd())"
    base = spec(reference, "/usr/bin/python3", "-c", code)
    sandbox = await engine.spawn(replace(base, work=folder))
    await sandbox.stdout.receive_some(100)
    ended = await sandbox.wait()
    await sandbox.destroy()
    await engine.remove_work(folder)
    return ended, folder.exists()


def test_a_killed_daemon_of_a_user_without_rights_leaves_nothing(
    user_state: Path, loaded: str, bench_programs: None, run_as_user: Any
) -> None:
    marker = "marker-of-a-killed-user"
    with pytest.raises(AssertionError):
        run_as_user(spawn_and_die, str(user_state), loaded, marker)
    assert wait_until_gone(marker) == {}


async def spawn_and_die(state: str, reference: str, marker: str) -> None:
    engine: Any = await open_engine("podman", state=Path(state))
    sandbox = await engine.spawn(spec(reference, "/usr/bin/python3", "-c", IGNORER, marker))
    await sandbox.stdout.receive_some(10)
    os.kill(os.getpid(), signal.SIGKILL)


def wait_until_gone(marker: str) -> dict[int, tuple[bytes, ...]]:
    end = time.monotonic() + 10
    while (left := processes_with_argument(marker.encode())) and time.monotonic() < end:
        time.sleep(0.05)
    return left
