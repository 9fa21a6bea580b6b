"""What each probe must have seen, and which control stands or falls with it: pure.

``expected`` is the whole rule and is shown to people as it stands: alternatives between
bars, each a text to be met exactly, or ``<=N`` for a number.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: The probes' own texts are error names, numbers and short lists.
_SEEN: Final = re.compile(r"[A-Za-z0-9 ._/:-]{1,200}\Z")

_REFUSED: Final = "EPERM|EACCES|ENOSYS"
_NO_ROUTE: Final = "ENETUNREACH|EADDRNOTAVAIL|EAFNOSUPPORT"
_CALLS: Final = (
    *("keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd"),
    *("io_uring_setup", "open_by_handle_at", "name_to_handle_at", "kexec_load"),
    *("init_module", "reboot", "swapon", "acct", "clock_settime", "sethostname", "syslog"),
    *("quotactl", "ptrace", "process_vm_readv", "pidfd_getfd", "setns", "pivot_root"),
    *("chroot", "mount", "umount", "fsopen", "open_tree", "move_mount", "mount_setattr"),
    *("clone3", "unshare_user", "unshare_mount", "unshare_net", "fanotify_init"),
    "clone_user",
)


@dataclass(frozen=True, slots=True)
class ProbeRule:
    """One probe: its id, what may be seen, and whether a sandbox without it is refused."""

    id: str
    expected: str
    control: str | None  #: the ``Guarantees`` field that needs it
    must: bool = True


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One probe as it went; ``seen`` is ``absent`` when the probe said nothing."""

    id: str
    must: bool
    expected: str
    seen: str
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeBounds:
    """The limits that the probed sandboxes had."""

    pids: int
    cpu_percent: int
    tmp_bytes: int
    file_bytes: int
    open_files: int


def probe_rules(bounds: ProbeBounds) -> tuple[ProbeRule, ...]:
    """Every rule, for sandboxes with these limits."""
    return (
        *_identity(),
        *_network(),
        *_files(bounds),
        *_processes(),
        *(ProbeRule(f"sys.{name}", _REFUSED, "seccomp") for name in _CALLS),
        # The 32-bit entries exist on x86_64 alone.
        ProbeRule("sys.x32", "ENOSYS|SIGSYS|absent", "seccomp"),
        ProbeRule("sys.i386", "SIGSYS|absent", "seccomp"),
        *_surroundings(bounds),
        *_limits(bounds),
    )


def judge(rules: tuple[ProbeRule, ...], observed: Mapping[str, str]) -> tuple[ProbeResult, ...]:
    """Each rule against what was seen. A probe that is missing saw ``absent``."""
    results = []
    for rule in rules:
        seen = observed.get(rule.id, "absent")
        shown = seen if _SEEN.match(seen) else "unreadable"
        ok = _meets(shown, rule.expected)
        results.append(ProbeResult(rule.id, rule.must, rule.expected, shown, ok))
    return tuple(results)


def holds(control: str, rules: tuple[ProbeRule, ...], results: tuple[ProbeResult, ...]) -> bool:
    """Whether every probe that ``control`` needs was met."""
    needed = {rule.id for rule in rules if rule.control == control and rule.must}
    return all(result.ok for result in results if result.id in needed)


def _identity() -> tuple[ProbeRule, ...]:
    return (
        ProbeRule("id.uid", "10001", "capabilities"),
        ProbeRule("id.gid", "10001", "capabilities"),
        ProbeRule("id.groups", "none", "capabilities"),
        ProbeRule("id.setuid_0", "EPERM|EINVAL", "capabilities"),
        ProbeRule("id.setgid_0", "EPERM|EINVAL", "capabilities"),
        ProbeRule("id.setgroups", "EPERM", "capabilities"),
        ProbeRule("id.capabilities", "none", "capabilities"),
        ProbeRule("id.no_new_privileges", "1", "no_new_privileges"),
        ProbeRule("id.seccomp", "2", "seccomp"),
    )


def _network() -> tuple[ProbeRule, ...]:
    family = "EAFNOSUPPORT|EPERM|EACCES"
    return (
        ProbeRule("net.interfaces", "lo", "network"),
        ProbeRule("net.routes", "0", "network"),
        ProbeRule("net.udp4", _NO_ROUTE, "network"),
        ProbeRule("net.udp6", _NO_ROUTE, "network"),
        ProbeRule("net.host_tcp", "ECONNREFUSED", "network"),
        ProbeRule("net.host_abstract", "ECONNREFUSED", "network"),
        ProbeRule("net.host_socket", "ENOENT|EACCES", "network"),
        ProbeRule("net.vsock", family, "network"),
        ProbeRule("net.packet", family, "network"),
        ProbeRule("net.raw", family, "network"),
        ProbeRule("net.netlink", family, "network"),
        ProbeRule("net.alg", family, "network"),
        ProbeRule("net.loopback", "done", None),
        ProbeRule("net.name_servers", "0", "network"),
        ProbeRule("net.engine_sockets", "none", "network"),
    )


def _files(bounds: ProbeBounds) -> tuple[ProbeRule, ...]:
    return (
        ProbeRule("fs.host_canary", "ENOENT|EACCES", "root_read_only"),
        ProbeRule("fs.host_paths", "0", "root_read_only"),
        ProbeRule("fs.writable", "/dev/shm /tmp", "root_read_only"),
        ProbeRule("fs.tmp_bytes", f"<={bounds.tmp_bytes}", "tmpfs"),
        ProbeRule("fs.setuid_files", "0", "root_read_only"),
        ProbeRule("fs.devices", "none", "root_read_only"),
        ProbeRule("fs.mknod", "EPERM", "root_read_only"),
        ProbeRule("fs.kernel_files", "none", "root_read_only"),
        ProbeRule("fs.modes", "EROFS|EPERM", "root_read_only"),
    )


def _processes() -> tuple[ProbeRule, ...]:
    return (
        ProbeRule("pid.visible", "<=4", "network"),
        ProbeRule("pid.host", "ESRCH", "network"),
        ProbeRule("pid.shared_namespaces", "none", "network"),
        ProbeRule("pid.shared_user_namespace", "no", "user_namespace", must=False),
        ProbeRule("pid.tty", "ENXIO|EIO|ENOENT|EACCES|EPERM", "descriptors"),
        ProbeRule("pid.nice", "EACCES|EPERM", "capabilities"),
        ProbeRule("pid.oom_score", "EACCES|EPERM|EROFS", "capabilities"),
    )


def _surroundings(bounds: ProbeBounds) -> tuple[ProbeRule, ...]:
    return (
        ProbeRule("env.names", "none", "environment"),
        ProbeRule("env.first_process", "none", "environment"),
        ProbeRule("env.first_command", "0", "environment"),
        ProbeRule("io.descriptors", "none", "descriptors"),
        ProbeRule("io.pipes", "3", "descriptors"),
        ProbeRule("res.nofile", f"<={bounds.open_files}", "descriptors"),
        ProbeRule("res.nproc", "<=4096", None, must=False),
        ProbeRule("res.core", "0", "file_size"),
        ProbeRule("res.fsize", f"<={bounds.file_bytes}", "file_size"),
        # A pipe handler of the host runs on the host for a process that dumps core.
        ProbeRule("res.core_pipe", "no", None, must=False),
        ProbeRule("leak.hostname", "none", None, must=False),
    )


def _limits(bounds: ProbeBounds) -> tuple[ProbeRule, ...]:
    return (
        ProbeRule("limit.processes", f"<={bounds.pids}", "pids"),
        # Half as much again: quotas are given out in periods of a tenth of a second.
        ProbeRule("limit.cpu_percent", f"<={bounds.cpu_percent * 3 // 2}", "cpu", must=False),
        ProbeRule("limit.tmp_bytes", f"<={bounds.tmp_bytes}", "tmpfs"),
        ProbeRule("limit.file_bytes", f"<={bounds.file_bytes}", "file_size"),
        ProbeRule("limit.memory", "oom|error", "memory"),
        ProbeRule("life.left_over", "0", "clean_up"),
        ProbeRule("host.root_uid", "no", "capabilities"),
        ProbeRule("host.own_uid", "no", "uid_separation", must=False),
    )


def _meets(seen: str, expected: str) -> bool:
    if expected.startswith("<="):
        return seen.isdecimal() and int(seen) <= int(expected[2:])
    return seen in expected.split("|")
