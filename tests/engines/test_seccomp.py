"""The filter allows what is listed and nothing else, in both of its forms."""

import json
import os
import random
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from broker.engines.seccomp import Machine, bpf_filter, oci_profile, parse_machine
from broker.engines.syscalls import ALLOWED, DENIED, JUDGED
from protocol.errors import Refusal

ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS, EAFNOSUPPORT = 0x50001, 0x50000 | 38, 0x50000 | 97
NEW_USER, NEW_NET, NEW_NS = 0x10000000, 0x40000000, 0x20000
COLUMN: dict[Machine, int] = {"x86_64": 0, "aarch64": 1}
MACHINES: tuple[Machine, ...] = ("x86_64", "aarch64")


def judge(filter_bytes: bytes, number: int, architecture: int, first: int = 0) -> int:
    """What the kernel's interpreter would answer: a few opcodes of classic BPF."""
    data = struct.pack("=iIQ6Q", number, architecture, 0, first, 0, 0, 0, 0, 0)
    program = list(struct.iter_unpack("=HBBI", filter_bytes))
    place, accumulator = 0, 0
    while True:
        code, yes, no, value = program[place]
        place += 1
        if code == 0x20:
            accumulator = struct.unpack_from("=I", data, value)[0]
        elif code == 0x06:
            return int(value)
        else:
            met = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[code]
            place += yes if met else no


@pytest.mark.parametrize("machine", MACHINES)
def test_every_listed_call_gets_its_verdict(machine: Machine) -> None:
    program, column = bpf_filter(machine), COLUMN[machine]
    for table, verdict in ((ALLOWED, ALLOW), (DENIED, EPERM)):
        for name, numbers in table.items():
            number = numbers[column]
            if number is not None:
                assert judge(program, number, ARCHITECTURE[machine]) == verdict, name


@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_that_is_not_listed_does_not_exist(machine: Machine) -> None:
    program, column = bpf_filter(machine), COLUMN[machine]
    known = {numbers[column] for table in (ALLOWED, DENIED, JUDGED) for numbers in table.values()}
    for number in range(1000):
        if number not in known:
            assert judge(program, number, ARCHITECTURE[machine]) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_another_architecture_is_the_end(machine: Machine) -> None:
    program = bpf_filter(machine)
    for other in (0x40000003, 0x40000028, *ARCHITECTURE.values()):
        if other != ARCHITECTURE[machine]:
            assert judge(program, 1, other) == KILL


def test_the_x32_numbers_of_x86_64_do_not_exist() -> None:
    for number in range(0x40000000, 0x40000000 + 600):
        assert judge(bpf_filter("x86_64"), number, ARCHITECTURE["x86_64"]) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_sockets_are_unix_and_internet_only(machine: Machine) -> None:
    program, column = bpf_filter(machine), COLUMN[machine]
    socket, socketpair = JUDGED["socket"][column], JUDGED["socketpair"][column]
    assert socket is not None
    assert socketpair is not None
    for family in range(64):
        verdict = judge(program, socket, ARCHITECTURE[machine], family)
        assert verdict == (ALLOW if family in (1, 2, 10) else EAFNOSUPPORT)
        verdict = judge(program, socketpair, ARCHITECTURE[machine], family)
        assert verdict == (ALLOW if family == 1 else EAFNOSUPPORT)


@pytest.mark.parametrize("machine", MACHINES)
def test_no_clone_makes_a_namespace(machine: Machine) -> None:
    program, column = bpf_filter(machine), COLUMN[machine]
    clone, clone3 = JUDGED["clone"][column], JUDGED["clone3"][column]
    assert clone is not None
    assert clone3 is not None
    thread = 0x3D0F00
    for flags in (17, thread, 0x4111):
        assert judge(program, clone, ARCHITECTURE[machine], flags) == ALLOW
        for new in (NEW_USER, NEW_NET, NEW_NS, 0x2000000, 0x4000000, 0x8000000, 0x20000000):
            assert judge(program, clone, ARCHITECTURE[machine], flags | new) == EPERM
    assert judge(program, clone3, ARCHITECTURE[machine]) == ENOSYS


def test_the_oci_profile_says_the_same() -> None:
    """Judged by the rules of an OCI runtime, call by call."""
    profile = json.loads(oci_profile("x86_64"))
    program = bpf_filter("x86_64")
    assert profile["architectures"] == ["SCMP_ARCH_X86_64"]
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    names = {**ALLOWED, **DENIED, **JUDGED}
    chance = random.Random(3)
    for name, (number, _) in names.items():
        if number is None:
            continue
        for first in (0, 1, 2, 5, 10, 16, 40, 17, 17 | NEW_USER, chance.getrandbits(31)):
            ours = judge(program, number, ARCHITECTURE["x86_64"], first)
            theirs = judge_oci(profile, name, first)
            assert (ours == ALLOW) == (theirs == ALLOW), (name, first)


def judge_oci(profile: dict[str, Any], name: str, first: int) -> int:
    def met(argument: dict[str, Any]) -> bool:
        match argument["op"]:
            case "SCMP_CMP_EQ":
                return first == int(argument["value"])
            case "SCMP_CMP_GT":
                return first > int(argument["value"])
            case "SCMP_CMP_MASKED_EQ":
                return first & int(argument["value"]) == int(argument["valueTwo"])
        raise AssertionError

    for rule in profile["syscalls"]:
        if name in rule["names"] and all(met(argument) for argument in rule["args"]):
            allowed = rule["action"] == "SCMP_ACT_ALLOW"
            return ALLOW if allowed else 0x50000 | int(rule["errnoRet"])
    return 0x50000 | int(profile["defaultErrnoRet"])


def test_the_numbers_are_those_of_this_machines_headers() -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.exists():
        pytest.skip("the kernel's headers are not installed")
    pairs = re.findall(r"#define __NR_(\w+) (\d+)", header.read_text())
    theirs = {name: int(number) for name, number in pairs}
    ours = {**ALLOWED, **DENIED, **JUDGED}

    for name, (number, _) in ours.items():
        if number is not None and name in theirs:
            assert number == theirs[name], name
    assert {"socket", "clone", "read", "execve", "futex"} <= set(theirs)


def test_a_machine_without_a_table_is_refused() -> None:
    assert parse_machine(os.uname().machine) in MACHINES
    with pytest.raises(Refusal):
        parse_machine("riscv64")


WORKLOADS = {
    "threads": "import threading; t = threading.Thread(target=print, args=('ok',));"
    " t.start(); t.join()",
    "asyncio": "import asyncio\nasync def f():\n"
    " p = await asyncio.create_subprocess_exec('/bin/echo', 'ok')\n await p.wait()\n"
    "asyncio.run(f())",
    "multiprocessing": "import multiprocessing as m\n"
    "with m.get_context('fork').Pool(2) as pool: print(pool.map(str, ['ok'])[0])",
    "sqlite": "import sqlite3; c = sqlite3.connect('/tmp/a'); c.execute('create table t(a)');"
    " c.commit(); print('ok')",
    "git": "import os; os.environ.update(GIT_AUTHOR_NAME='a', GIT_AUTHOR_EMAIL='a@b',"
    " GIT_COMMITTER_NAME='a', GIT_COMMITTER_EMAIL='a@b');"
    " os.chdir('/tmp'); assert not os.system('git init -q r && cd r && echo a > f &&"
    " git add f && git commit -qm m && git fsck 2>&1'); print('ok')",
    "cc": "import os; assert not os.system(\"cd /tmp && echo 'int main(){return 0;}' > a.c &&"
    " cc a.c -o a && ./a\"); print('ok')",
    "node": "import os; assert not os.system(\"node -e 'setTimeout(()=>process.exit(0),5)'\");"
    " print('ok')",
}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
async def test_ordinary_programs_run_under_it(bubblewrap: Any, name: str) -> None:
    tool = {"git": "git", "cc": "cc", "node": "node"}.get(name, "python3")
    if not os.access(f"/usr/bin/{tool}", os.X_OK):
        pytest.skip(f"{tool} is not installed")
    code = WORKLOADS[name]
    spec = bubblewrap.spec("/usr/bin/python3", "-c", code, limits=bubblewrap.roomy)
    ran = await bubblewrap.run(spec)

    assert ran.out.decode().strip().endswith("ok"), ran.err
