"""A sandbox starts, ends once, for a reason that is told, and leaves nothing."""

import hashlib
import json
import os
import random
import secrets
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.engines.hostfacts import processes_with_argument
from broker.engines.process import Exit
from broker.engines.spec import ImageRoot
from protocol.errors import Refusal

IGNORER = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    print("up", flush=True)
    signal.pause()
sys.stdin.read()
signal.pause()
"""
FLOOD = "import os\nwhile True: os.write(1, b'x' * 65536)"


def left_over(sandbox: Any) -> dict[int, tuple[bytes, ...]]:
    """Processes that carry the sandbox's name, and its groups."""
    found = processes_with_argument(sandbox.name.encode())
    for hierarchy in Path("/sys/fs/cgroup").glob(f"**/{sandbox.name}"):
        found[-1] = (str(hierarchy).encode(),)
    return found


async def test_the_exit_status_and_both_outputs_come_back(bench: Any) -> None:
    ran = await bench.run(
        bench.python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    )

    assert (ran.exit, ran.out, ran.err) == (Exit("exit", 3), b"out\n", b"err\n")


async def test_standard_input_arrives_whole(bench: Any) -> None:
    sent = secrets.token_bytes(1024 * 1024)
    code = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    echoed = await bench.run(bench.python(code), stdin=sent)
    silent = await bench.run(bench.python(code, stdin=False))

    assert echoed.out.decode().strip() == hashlib.sha256(sent).hexdigest()
    assert silent.out.decode().strip() == hashlib.sha256(b"").hexdigest()


async def test_a_signal_is_told_from_an_exit(bench: Any) -> None:
    ran = await bench.run(bench.python("import os; os.abort()"))

    assert ran.exit == Exit("signal", 6)


async def test_a_program_that_is_not_there_never_ran(bubblewrap: Any) -> None:
    ran = await bubblewrap.run(bubblewrap.spec("/usr/bin/there-is-no-such-program"))

    assert ran.exit == Exit("never_ran", None)


async def test_the_deadline_is_a_reason_of_its_own(bench: Any) -> None:
    started = trio.current_time()
    ran = await bench.run(bench.python(IGNORER, deadline_seconds=1.0))

    assert ran.exit == Exit("timeout", None)
    assert trio.current_time() - started < 15


async def test_using_too_much_memory_is_a_reason_of_its_own(bench: Any) -> None:
    """Also when a child was killed and the program itself said that all is well."""
    hog = "x = b'1' * (200 << 20)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hog!r}])"
    if not bench.engine.rootless:
        assert (await bench.run(bench.python(hog))).exit == Exit("oom", None)
        assert (await bench.run(bench.python(child))).exit == Exit("oom", None)


async def test_a_fork_bomb_stays_in_its_bounds_and_ends(bench: Any) -> None:
    bomb = (
        "import os\n"
        "print('up', flush=True)\n"
        "while True:\n"
        "    try: os.fork()\n"
        "    except OSError: pass\n"
    )
    sandbox = await bench.spawn(bench.python(bomb))
    assert await sandbox.stdout.receive_some(10) == b"up\n"
    await trio.sleep(0.3)  # let it fill its bounds
    started = trio.current_time()
    await sandbox.destroy()

    assert trio.current_time() - started < 10
    assert left_over(sandbox) == {}


async def test_destroy_ends_what_resists_and_can_be_called_again(bench: Any) -> None:
    sandbox = await bench.spawn(bench.python(IGNORER))
    assert await sandbox.stdout.receive_some(10) == b"up\n"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sandbox.destroy)
        nursery.start_soon(sandbox.destroy)
    await sandbox.destroy()

    assert await sandbox.wait() == Exit("signal", 9)
    assert left_over(sandbox) == {}


async def test_destroy_cannot_be_cancelled(bench: Any) -> None:
    sandbox = await bench.spawn(bench.python(IGNORER))
    with trio.CancelScope() as scope:
        scope.cancel()
        await sandbox.destroy()

    assert left_over(sandbox) == {}


async def test_a_grace_lets_a_program_end_by_itself(bench: Any) -> None:
    sandbox = await bench.spawn(bench.python("import sys; sys.stdin.read(); sys.exit(7)"))
    await sandbox.destroy(grace_seconds=20)

    assert await sandbox.wait() == Exit("exit", 7)


async def test_a_flood_that_nobody_reads_does_not_keep_it_alive(bench: Any) -> None:
    sandbox = await bench.spawn(bench.python(FLOOD))
    await sandbox.stdout.receive_some(1)
    await trio.sleep(0.2)  # let every buffer on the way fill up
    started = trio.current_time()
    await sandbox.destroy()

    assert trio.current_time() - started < 5
    assert left_over(sandbox) == {}


async def test_a_parent_that_ends_takes_its_children_along(bench: Any) -> None:
    """A grandchild with a session of its own holds the output and ignores TERM."""
    code = (
        "import os, signal\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()\n"
    )
    with trio.fail_after(20):
        ran = await bench.run(bench.python(code))

    assert ran.exit == Exit("exit", 0)


async def test_destroy_at_any_moment_leaves_nothing(bench: Any, full: bool) -> None:
    """Also half-way through a start."""
    chance = random.Random(5)
    rounds = {"bubblewrap": 12, "podman": 4}[bench.engine.name] * (20 if full else 1)
    for _ in range(rounds):
        sandbox = None
        with trio.move_on_after(chance.uniform(0.0, 0.35)):
            sandbox = await bench.engine.spawn(bench.python(IGNORER))
            await trio.sleep_forever()
        if sandbox is not None:
            await sandbox.destroy()
            assert left_over(sandbox) == {}

    assert processes_with_argument(f"airlock-{bench.engine._owner.id}-".encode()) == {}


async def test_a_cancelled_wait_kills_nothing(bench: Any) -> None:
    sandbox = await bench.spawn(bench.python("print(input(), flush=True)"))
    with trio.move_on_after(0.05):
        await sandbox.wait()
    assert sandbox.stdin is not None
    await sandbox.stdin.send_all(b"still here\n")

    assert await sandbox.stdout.receive_some(100) == b"still here\n"


async def test_facts_are_the_hosts_own(bench: Any) -> None:
    sandbox = await bench.spawn(bench.python("print('up', flush=True); input()"))
    await sandbox.stdout.receive_some(10)
    facts = await sandbox.facts()

    assert facts.no_capabilities
    assert facts.no_new_privileges
    assert facts.seccomp_filter
    assert facts.kernel_uid not in (0, None)
    assert {"mnt", "pid", "net", "ipc", "uts", "cgroup"} <= set(facts.own_namespaces)
    if isinstance(bench.root, ImageRoot):
        assert facts.image == bench.root.reference
    else:
        assert facts.image == bench.root.digest
    if os.geteuid() == 0:
        assert facts.memory_bytes == 96 * 1024 * 1024
        assert facts.pids == 32
        assert facts.cpus == 1.0


async def test_a_work_folder_is_handed_over_and_taken_back(
    bench: Any, state: Path, full: bool
) -> None:
    folder = state / f"work-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    (folder / "given").write_text("given")
    await bench.engine.prepare_work(folder)
    code = (
        "import os\n"
        "assert os.getcwd() == '/work'\n"
        "print(open('given').read())\n"
        "os.mkdir('locked'); open('locked/inside', 'w').write('x'); os.chmod('locked', 0)\n"
        "os.symlink('/etc/passwd', 'link')\n"
        f"for _ in range({2000 if full else 200}): os.mkdir('deep'); os.chdir('deep')\n"
    )
    ran = await bench.run(bench.python(code, work=folder, role="recipe"))
    assert (ran.exit, ran.out) == (Exit("exit", 0), b"given\n"), ran.err
    await bench.engine.remove_work(folder)

    assert not folder.exists()
    assert Path("/etc/passwd").exists()


async def test_a_root_of_the_wrong_kind_is_refused(bubblewrap: Any) -> None:
    spec = bubblewrap.spec("true", root=ImageRoot("sha256:" + "0" * 64))
    with pytest.raises(Refusal):
        await bubblewrap.engine.spawn(spec)


async def test_it_outlives_idle_worker_threads(
    bubblewrap: Any, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent-death signal belongs to a thread, and an idle worker's ends after a while."""
    if not full:
        monkeypatch.setattr("trio._core._thread_cache.IDLE_TIMEOUT", 0.2)
    await trio.to_thread.run_sync(os.getpid)
    sandbox = await bubblewrap.spawn(bubblewrap.python("print(input(), flush=True)"))
    await trio.sleep(12 if full else 1.5)
    await sandbox.stdin.send_all(b"alive\n")

    assert await sandbox.stdout.receive_some(100) == b"alive\n"


async def test_nothing_of_the_daemons_own_is_handed_on(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its variables, also not to the first process, nor its descriptors."""
    canary = secrets.token_hex(8)
    for name in ("AIRLOCK_CANARY", "HTTP_PROXY", "https_proxy"):
        monkeypatch.setenv(name, canary)
    read, write = os.pipe()
    os.set_inheritable(write, True)
    code = (
        "import json, os\n"
        "environ = [open(f'/proc/{pid}/environ').read() for pid in ('1', 'self')]\n"
        "def is_open(number):\n"
        "    try: os.fstat(number)\n"
        "    except OSError: return False\n"
        "    return True\n"
        "print(json.dumps([environ, [n for n in range(3, 64) if is_open(n)]]))\n"
    )
    try:
        ran = await bench.run(bench.python(code, env=(("GIVEN", "value"),)))
    finally:
        os.close(read)
        os.close(write)
    environ, descriptors = json.loads(ran.out)

    assert canary not in "".join(environ)
    assert "GIVEN=value" in environ[1]
    assert descriptors == []


async def test_the_network_name_of_the_machine_itself_works(bench: Any) -> None:
    """Ordinary test suites listen on localhost and look themselves up."""
    code = (
        "import socket\n"
        "for name in ('localhost', socket.gethostname()):\n"
        "    with socket.create_server((name, 0)) as server:\n"
        "        socket.create_connection((name, server.getsockname()[1])).close()\n"
    )
    ran = await bench.run(bench.python(code))

    assert ran.exit == Exit("exit", 0), ran.err
