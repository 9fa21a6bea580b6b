"""Real engines for the tests: a state folder, a root for each engine, a way to run things."""

import ctypes
import importlib.readers  # noqa: F401  (loaded before a child gives up the right to)
import os
import pickle
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.engines.bundle import Bundle, build_bundle
from broker.engines.engine import Engine
from broker.engines.image import LocalImage, build_image, load_image
from broker.engines.podman import PodmanEngine
from broker.engines.podman_host import prepare_podman_host
from broker.engines.process import Exit, Sandbox
from broker.engines.programs import find_program
from broker.engines.selection import open_engine
from broker.engines.spec import (
    RECIPE_LIMITS,
    HostRoot,
    ImageRoot,
    Root,
    SandboxLimits,
    SandboxSpec,
)
from broker.locations import bundled
from protocol.ids import Id
from tests.engine_presence import PROGRAMS, require

TEST_USER = "airlock-test"
TEST_UID = 61234
LIMITS = SandboxLimits(
    cpus=1.0,
    memory_bytes=96 * 1024 * 1024,
    pids=32,
    tmp_bytes=8 * 1024 * 1024,
    file_bytes=4 * 1024 * 1024,
    open_files=256,
)


def require_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("the test needs root to become another user")


@dataclass
class Ran:
    """What came out of a sandbox that ran to its end."""

    exit: Exit
    out: bytes = b""
    err: bytes = b""


@dataclass
class Bench:
    """One engine, a root that it can run, and what is asked by default."""

    engine: Any
    root: Root
    made: list[Sandbox] = field(default_factory=list)
    roomy: SandboxLimits = RECIPE_LIMITS

    def spec(self, *argv: str, **changes: Any) -> SandboxSpec:
        given: dict[str, Any] = {
            "role": "agent",
            "attempt_id": Id("attempt-1"),
            "root": self.root,
            "argv": argv,
            "env": (),
            "limits": LIMITS,
            "deadline_seconds": 60.0,
            "work": None,
            "stdin": True,
        }
        return SandboxSpec(**(given | changes))

    def python(self, code: str, **changes: Any) -> SandboxSpec:
        return self.spec("/usr/bin/python3", "-I", "-S", "-c", code, **changes)

    async def spawn(self, spec: SandboxSpec) -> Sandbox:
        sandbox: Sandbox = await self.engine.spawn(spec)
        self.made.append(sandbox)
        return sandbox

    async def run(self, spec: SandboxSpec, *, stdin: bytes = b"") -> Ran:
        """Run to the end, read everything, leave nothing."""
        sandbox = await self.spawn(spec)
        ran = Ran(Exit("never_ran", None))

        async def collect(stream: trio.abc.ReceiveStream, name: str) -> None:
            while chunk := await stream.receive_some(65536):
                setattr(ran, name, getattr(ran, name) + bytes(chunk))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect, sandbox.stdout, "out")
            nursery.start_soon(collect, sandbox.stderr, "err")
            if sandbox.stdin is not None:
                try:
                    await sandbox.stdin.send_all(stdin)
                    await sandbox.stdin.aclose()
                except trio.BrokenResourceError:
                    pass
            ran.exit = await sandbox.wait()
        await sandbox.destroy()
        return ran

    async def close(self) -> None:
        for sandbox in self.made:
            await sandbox.destroy()


@pytest.fixture(scope="session")
def state() -> Iterator[Path]:
    """A state folder that an unprivileged uid can pass, as the daemon's is."""
    folder = Path(tempfile.mkdtemp(prefix="airlock-state-"))
    folder.chmod(0o711)
    yield folder
    unmount_store(folder)
    if (folder / "engines" / "podman").exists():
        running = prepare_podman_host("/usr/bin/podman", state=folder).temporary.parent
        shutil.rmtree(running, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def unmount_store(folder: Path) -> None:
    """Whatever podman left mounted below ``folder``."""
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        place = line.split()[4]
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", place], check=False)


@pytest.fixture(scope="session")
def probe_bundle(state: Path) -> Bundle:
    return build_bundle("probe", source=bundled("probe"), state=state)


@pytest.fixture(scope="session")
def probe_image(state: Path, probe_bundle: Bundle) -> LocalImage:
    return build_image("probe", state=state, bundle=probe_bundle)


async def make_bench(name: str, state: Path, bundle: Bundle, image: LocalImage) -> Bench:
    require(name)
    engine: Engine = await open_engine(name, state=state)  # type: ignore[arg-type]
    if isinstance(engine, PodmanEngine):
        load = load_image
        await trio.to_thread.run_sync(
            lambda: load(engine.command, image, environment=engine.environment)
        )
        return Bench(engine, ImageRoot(image.reference))
    return Bench(engine, HostRoot(bundle.folder, bundle.digest))


@pytest.fixture(params=["bubblewrap", "podman"])
async def bench(
    request: pytest.FixtureRequest, state: Path, probe_bundle: Bundle, probe_image: LocalImage
) -> AsyncIterator[Bench]:
    """Each engine in turn, as the user who runs the tests."""
    made = await make_bench(request.param, state, probe_bundle, probe_image)
    yield made
    await made.close()


@pytest.fixture
async def bubblewrap(
    state: Path, probe_bundle: Bundle, probe_image: LocalImage
) -> AsyncIterator[Bench]:
    made = await make_bench("bubblewrap", state, probe_bundle, probe_image)
    yield made
    await made.close()


@pytest.fixture
async def podman(
    state: Path, probe_bundle: Bundle, probe_image: LocalImage
) -> AsyncIterator[Bench]:
    made = await make_bench("podman", state, probe_bundle, probe_image)
    yield made
    await made.close()


@pytest.fixture
def bench_programs() -> None:
    for name in PROGRAMS:
        require(name)


@pytest.fixture(scope="session")
def run_as_user() -> Callable[..., Any]:
    return as_test_user


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--full", default=False))


@pytest.fixture(scope="session")
def user_state() -> Iterator[Path]:
    """A state folder of an unprivileged user who has subordinate ids."""
    require_root()
    made = make_test_user()
    folder = Path(tempfile.mkdtemp(prefix="airlock-user-"))
    os.chown(folder, TEST_UID, TEST_UID)
    yield folder
    if find_program("podman") is not None:
        # The files of the store belong to subordinate ids; root may remove those.
        unmount_store(folder)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(f"/tmp/airlock-{TEST_UID}", ignore_errors=True)
    if made:
        subprocess.run(["userdel", TEST_USER], check=False, capture_output=True)


def make_test_user() -> bool:
    """Whether a user was made. One that is there already is used."""
    try:
        pwd.getpwnam(TEST_USER)
    except KeyError:
        subprocess.run(["groupadd", "--gid", str(TEST_UID), TEST_USER], check=True)
        subprocess.run(
            [
                *("useradd", "--uid", str(TEST_UID), "--gid", str(TEST_UID)),
                *("--no-create-home", "--no-log-init", "--home-dir", "/nonexistent", TEST_USER),
            ],
            check=True,
            capture_output=True,
        )
        made = True
    else:
        made = False
    for path in (Path("/etc/subuid"), Path("/etc/subgid")):
        text = path.read_text() if path.exists() else ""
        if not any(line.startswith(f"{TEST_USER}:") for line in text.splitlines()):
            path.write_text(f"{text}{TEST_USER}:1000000000:65536\n")
    return made


def as_test_user(
    function: Callable[..., Awaitable[Any]], *arguments: Any, environ: Mapping[str, str] = {}
) -> Any:
    """``trio.run(function, *arguments)`` in a child that has given up root's rights.

    Forked, because the user may not read the interpreter's own files.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.environ.update(environ)
            os.setgroups([])
            os.setgid(TEST_UID)
            os.setuid(TEST_UID)
            ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # dumpable, so that /proc/self is ours
            result = trio.run(function, *arguments)
            os.write(write, pickle.dumps(result))
            status = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        data = file.read()
    assert os.waitpid(child, 0)[1] == 0
    return pickle.loads(data)
