"""The self-test of an engine: canaries on the host, a probe inside, a verdict per control.

Runs real sandboxes and believes what happened in them, never an engine's flags, version
or report of itself. Asks the same of every engine.
"""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import trio

from broker.engines.canaries import plant_canaries
from broker.engines.engine import Engine, SelfTest
from broker.engines.hostfacts import processes_with_argument
from broker.engines.probe_rules import (
    ProbeBounds,
    holds,
    judge,
    probe_rules,
)
from broker.engines.spec import (
    Exit,
    Facts,
    Guarantees,
    Mechanism,
    Root,
    SandboxLimits,
    SandboxSpec,
)
from protocol.errors import Fault
from protocol.ids import Id

#: Small, so that a test that uses them up takes a moment and not a gigabyte.
PROBE_LIMITS: Final = SandboxLimits(
    cpus=0.5,
    memory_bytes=64 * 1024 * 1024,
    pids=24,
    tmp_bytes=4 * 1024 * 1024,
    file_bytes=1024 * 1024,
    open_files=256,
)
_BOUNDS: Final = ProbeBounds(
    pids=PROBE_LIMITS.pids,
    cpu_percent=50,
    tmp_bytes=PROBE_LIMITS.tmp_bytes,
    file_bytes=PROBE_LIMITS.file_bytes,
    open_files=PROBE_LIMITS.open_files,
)
_PYTHON: Final = ("/usr/bin/python3", "-I", "-S", "-B")
_PROBE: Final = "/adapter/probe.py"
_EXHAUST: Final = "/adapter/exhaust.py"
#: What the probe is told to try to pass.
_TARGETS: Final[dict[str, object]] = {
    "tooMany": PROBE_LIMITS.pids * 4,
    "tmpBytes": PROBE_LIMITS.tmp_bytes,
    "fileBytes": PROBE_LIMITS.file_bytes,
    "memoryBytes": PROBE_LIMITS.memory_bytes,
}
_SECTION_SECONDS: Final = 30.0
_OUTPUT_BYTES: Final = 256 * 1024


class _Line(msgspec.Struct, frozen=True):
    id: str
    seen: str


@dataclass(frozen=True, slots=True)
class _Seen:
    """One section: what the probe said, how it ended, and what the host saw of it."""

    values: dict[str, str]
    exit: Exit
    facts: Facts


async def run_self_test(engine: Engine, root: Root) -> SelfTest:
    """Probe ``engine`` with sandboxes of ``root``, which has the probe at /adapter.

    Takes about a second. Raises what ``spawn`` raises, ``Fault("engine_failed")`` when
    the probe did not come to its end.
    """
    observed: dict[str, str] = {}
    given: dict[str, object]
    async with plant_canaries() as canaries:
        given = canaries | _TARGETS
        isolation = await _run_section(engine, root, _PROBE, given)
        limits = await _run_section(engine, root, _EXHAUST, given | {"section": "limits"})
    memory = await _run_section(engine, root, _EXHAUST, given | {"section": "memory"})
    if "end" not in isolation.values or "end" not in limits.values:
        raise Fault("engine_failed")
    observed |= isolation.values | limits.values
    observed["limit.memory"] = _memory_outcome(memory)
    observed["life.left_over"] = str(await _count_left_over(engine, root))
    kernel_uid = isolation.facts.kernel_uid
    if kernel_uid is not None:
        observed["host.root_uid"] = "yes" if kernel_uid == 0 else "no"
        observed["host.own_uid"] = "yes" if kernel_uid == os.geteuid() else "no"
    rules = probe_rules(_BOUNDS)
    results = judge(rules, observed)

    def if_held(control: str, mechanism: Mechanism) -> Mechanism:
        return mechanism if holds(control, rules, results) else "none"

    # A control group whose limit the host can read, or else a resource limit.
    by_group = isolation.facts
    memory_by: Mechanism = "rlimit" if observed["limit.memory"] == "error" else "cgroup"
    cpu_held = any(result.id == "limit.cpu_percent" and result.ok for result in results)
    apart = any(result.id == "host.own_uid" and result.ok for result in results)
    own_users = observed.get("pid.shared_user_namespace") == "no"
    guarantees = Guarantees(
        network=if_held("network", "kernel"),
        root_read_only=if_held("root_read_only", "kernel"),
        capabilities=if_held("capabilities", "kernel"),
        no_new_privileges=if_held("no_new_privileges", "kernel"),
        seccomp=if_held("seccomp", "kernel"),
        user_namespace="kernel" if own_users else "none",
        uid_separation="kernel" if apart else "none",
        memory=if_held("memory", memory_by),
        swap=_swap_by(by_group),
        pids=if_held("pids", "rlimit" if by_group.pids is None else "cgroup"),
        cpu="cgroup" if cpu_held and by_group.cpus is not None else "none",
        tmpfs=if_held("tmpfs", "kernel"),
        file_size=if_held("file_size", "rlimit"),
        environment=if_held("environment", "engine"),
        descriptors=if_held("descriptors", "engine"),
        clean_up=if_held("clean_up", "kernel" if engine.name == "bubblewrap" else "engine"),
    )
    return SelfTest(guarantees, results)


def _spec(root: Root, *program: str) -> SandboxSpec:
    return SandboxSpec(
        role="probe",
        attempt_id=Id("self-test"),
        root=root,
        argv=(*_PYTHON, *program),
        env=(),
        limits=PROBE_LIMITS,
        deadline_seconds=_SECTION_SECONDS,
        work=None,
        stdin=True,
    )


async def _run_section(engine: Engine, root: Root, program: str, given: dict[str, object]) -> _Seen:
    sandbox = await engine.spawn(_spec(root, program))
    try:
        facts: list[Facts] = []
        output = bytearray()
        assert sandbox.stdin is not None

        async def read_output() -> None:
            with trio.move_on_after(_SECTION_SECONDS):
                while len(output) < _OUTPUT_BYTES and b'"end"' not in output:
                    chunk = await sandbox.stdout.receive_some(65536)
                    if not chunk:
                        return
                    if not facts:
                        facts.append(await sandbox.facts())
                    output.extend(chunk)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(_drain, sandbox.stderr)
            await sandbox.stdin.send_all(msgspec.json.encode(given) + b"\n")
            await read_output()
            await sandbox.stdin.aclose()
            ended = await sandbox.wait()
            nursery.cancel_scope.cancel()
    except trio.BrokenResourceError as error:
        raise Fault("engine_failed") from error
    finally:
        await sandbox.destroy()
    if not facts:
        raise Fault("engine_failed")
    return _Seen(_parse(bytes(output)), ended, facts[0])


async def _drain(stream: trio.abc.ReceiveStream) -> None:
    while await stream.receive_some(65536):
        pass


def _parse(output: bytes) -> dict[str, str]:
    """The probe's lines; a last line that is not whole is left out."""
    values = {}
    for line in output.splitlines():
        try:
            decoded = msgspec.json.decode(line, type=_Line)
        except msgspec.MsgspecError:
            continue
        values[decoded.id] = decoded.seen
    return values


def _memory_outcome(memory: _Seen) -> str:
    if memory.exit.kind == "oom":
        return "oom"
    return "error" if "limit.memory_error" in memory.values else "none"


def _swap_by(facts: Facts) -> Mechanism:
    """A host without swap cannot swap; else only a control group's limit helps."""
    if len(Path("/proc/swaps").read_text().splitlines()) <= 1:
        return "kernel"
    return "cgroup" if facts.swap_limited else "none"


async def _count_left_over(engine: Engine, root: Root) -> int:
    """Processes that are left after ``destroy`` of a sandbox that resists."""
    marker = f"airlock-linger-{secrets.token_hex(8)}"
    sandbox = await engine.spawn(_spec(root, _EXHAUST, marker))
    try:
        assert sandbox.stdin is not None
        await sandbox.stdin.send_all(b'{"section": "linger"}\n')
        with trio.move_on_after(_SECTION_SECONDS):
            await sandbox.stdout.receive_some(1)
    except trio.BrokenResourceError as error:
        raise Fault("engine_failed") from error
    finally:
        await sandbox.destroy()
    return len(processes_with_argument(marker.encode()))
