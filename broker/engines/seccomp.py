"""The one system-call filter of every engine: as classic BPF and as an OCI profile.

An allow list. A call that is refused by name answers EPERM, a call that is in no table
answers ENOSYS so that a libc falls back; sockets are UNIX and IP only (``AF_VSOCK`` is
not held by a network namespace); no flag of ``clone`` may make a namespace, and
``clone3``, whose flags a filter cannot see, does not exist. Loads nothing into a kernel.
"""

import json
import struct
from dataclasses import dataclass
from typing import Any, Final, Literal

from broker.engines.syscalls import ALLOWED, DENIED, JUDGED
from protocol.errors import Refusal

Machine = Literal["x86_64", "aarch64"]

_EPERM: Final = 1
_ENOSYS: Final = 38
_EAFNOSUPPORT: Final = 97
_AF_UNIX: Final = 1
_AF_INET: Final = 2
_AF_INET6: Final = 10
#: Every CLONE_NEW* flag that ``clone`` takes: NEWNS, CGROUP, UTS, IPC, USER, PID, NET.
_CLONE_NEW: Final = 0x7E02_0000
#: x32 calls have this bit in their number and the same architecture word.
_X32_BIT: Final = 0x4000_0000

_AUDIT_ARCH: Final[dict[Machine, int]] = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_COLUMN: Final[dict[Machine, int]] = {"x86_64": 0, "aarch64": 1}

# linux/seccomp.h and linux/bpf_common.h
_RET_KILL: Final = 0x8000_0000
_RET_ERRNO: Final = 0x0005_0000
_RET_ALLOW: Final = 0x7FFF_0000
_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JEQ: Final = 0x15
_JGE: Final = 0x35
_JSET: Final = 0x45
_RETURN: Final = 0x06
_AT_NUMBER: Final = 0
_AT_ARCH: Final = 4
_AT_ARG0: Final = 16  # the low half: both architectures are little-endian


@dataclass(frozen=True, slots=True)
class _Step:
    """One instruction; ``yes`` and ``no`` are labels, or None for the next one."""

    code: int
    value: int
    yes: str | None = None
    no: str | None = None
    label: str | None = None


def parse_machine(text: str) -> Machine:
    """``os.uname().machine`` as one that we have a table for, or ``Refusal("unsupported")``."""
    match text:
        case "x86_64" | "aarch64":
            return text
        case _:
            raise Refusal("unsupported")


def bpf_filter(machine: Machine) -> bytes:
    """The filter as an array of ``struct sock_filter`` for ``bwrap --seccomp``."""
    steps = [
        _Step(_LOAD, _AT_ARCH),
        _Step(_JEQ, _AUDIT_ARCH[machine], None, "kill"),
        _Step(_LOAD, _AT_NUMBER),
    ]
    if machine == "x86_64":
        steps.append(_Step(_JGE, _X32_BIT, "absent", None))
    segments = _segments(_COLUMN[machine])
    for verdict, end in segments:
        steps.append(_Step(_JGE, end, None, verdict))
    steps.append(_Step(_RETURN, _RET_ERRNO | _ENOSYS, label="absent"))
    steps += [
        _Step(_LOAD, _AT_ARG0, label="clone"),
        _Step(_JSET, _CLONE_NEW, "refuse", "allow"),
        _Step(_LOAD, _AT_ARG0, label="socketpair"),
        _Step(_JEQ, _AF_UNIX, "allow", "family"),
        _Step(_LOAD, _AT_ARG0, label="socket"),
        _Step(_JEQ, _AF_UNIX, "allow", None),
        _Step(_JEQ, _AF_INET, "allow", None),
        _Step(_JEQ, _AF_INET6, "allow", "family"),
        _Step(_RETURN, _RET_ALLOW, label="allow"),
        _Step(_RETURN, _RET_ERRNO | _EPERM, label="refuse"),
        _Step(_RETURN, _RET_ERRNO | _EAFNOSUPPORT, label="family"),
        _Step(_RETURN, _RET_KILL, label="kill"),
    ]
    return _assemble(steps)


def oci_profile(machine: Machine) -> bytes:
    """The same as an OCI runtime's profile in JSON, for ``--security-opt seccomp=FILE``."""
    architecture = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}[machine]
    column = _COLUMN[machine]

    def rule(action: str, *names: str, errno: int | None = None, args: Any = ()) -> Any:
        return {
            "names": list(names),
            "action": action,
            "args": list(args),
            **({} if errno is None else {"errnoRet": errno}),
        }

    def present(table: dict[str, tuple[int | None, int | None]]) -> list[str]:
        return sorted(name for name, numbers in table.items() if numbers[column] is not None)

    def first(value: int, operator: str = "EQ") -> Any:
        return [{"index": 0, "op": f"SCMP_CMP_{operator}", "value": value, "valueTwo": 0}]

    allow, refuse = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"
    families = (_AF_UNIX, _AF_INET, _AF_INET6)
    others = [family for family in range(_AF_INET6) if family not in families]
    rules = [
        rule(allow, *present(ALLOWED)),
        rule(refuse, *present(DENIED), errno=_EPERM),
        *(rule(allow, "socket", args=first(family)) for family in families),
        *(rule(refuse, "socket", args=first(family), errno=_EAFNOSUPPORT) for family in others),
        rule(refuse, "socket", args=first(_AF_INET6, "GT"), errno=_EAFNOSUPPORT),
        rule(allow, "socketpair", args=first(_AF_UNIX)),
        rule(refuse, "socketpair", args=first(_AF_UNIX, "GT"), errno=_EAFNOSUPPORT),
        rule(allow, "clone", args=first(_CLONE_NEW, "MASKED_EQ")),
    ]
    profile = {
        "defaultAction": refuse,
        "defaultErrnoRet": _ENOSYS,
        "architectures": [architecture],
        "syscalls": rules,
    }
    return json.dumps(profile, indent=1).encode()


def _segments(column: int) -> list[tuple[str, int]]:
    """Runs of numbers with one verdict, ascending: (verdict, first number after the run)."""
    verdicts: dict[int, str] = {}
    for table, verdict in ((ALLOWED, "allow"), (DENIED, "refuse")):
        for numbers in table.values():
            if (number := numbers[column]) is not None:
                verdicts[number] = verdict
    for name, numbers in JUDGED.items():
        if (number := numbers[column]) is not None:
            verdicts[number] = "absent" if name == "clone3" else name
    segments: list[tuple[str, int]] = []
    for number in range(max(verdicts) + 1):
        verdict = verdicts.get(number, "absent")
        if segments and segments[-1][0] == verdict:
            segments.pop()
        segments.append((verdict, number + 1))
    return segments


def _assemble(steps: list[_Step]) -> bytes:
    places = {step.label: place for place, step in enumerate(steps) if step.label is not None}

    def distance(place: int, label: str | None) -> int:
        return 0 if label is None else places[label] - place - 1

    return b"".join(
        struct.pack(
            "=HBBI", step.code, distance(place, step.yes), distance(place, step.no), step.value
        )
        for place, step in enumerate(steps)
    )
