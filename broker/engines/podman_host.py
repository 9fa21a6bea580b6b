"""What podman needs on this host: its global options, its environment, our files for it.

Store, run folder and temporary folder are ours alone, so nothing of the user's podman is
seen or touched. Makes folders and two small files; starts nothing.
"""

import contextlib
import hashlib
import os
import pwd
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.engines.layout import ETC_FILES
from broker.engines.programs import MINIMAL_ENV, find_program
from broker.engines.seccomp import oci_profile, parse_machine

#: The state of running containers must not outlive a boot, and a disk does.
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodmanHost:
    """One host's podman with a store of ours."""

    command: tuple[str, ...]
    environment: dict[str, str]
    temporary: Path
    seccomp: Path
    profile: bytes
    hosts: Path
    rootless: bool
    cgroup_version: int
    #: False: this podman would take limits and not keep them (rootless, version 1).
    group_limits: bool


def prepare_podman_host(program: str, *, state: Path) -> PodmanHost:
    """Everything in place, or ``OSError``: the store below ``state``, what runs elsewhere."""
    base = state / "engines" / "podman"
    running = _runtime_base() / _runtime_name(state)
    _forget_former_boot(running)
    folders = {name: base / name for name in ("store", "home", "files")}
    folders |= {name: running / name for name in ("run", "tmp", "xdg")}
    for folder in folders.values():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    profile = oci_profile(parse_machine(os.uname().machine))
    version = 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1
    rootless = os.geteuid() != 0
    return PodmanHost(
        command=(
            program,
            *("--storage-driver", "overlay", "--root", str(folders["store"])),
            *("--runroot", str(folders["run"]), "--tmpdir", str(folders["tmp"])),
            *_for_version_1(version),
        ),
        environment={
            **MINIMAL_ENV,
            "HOME": str(folders["home"]),
            "XDG_RUNTIME_DIR": str(_session(folders["xdg"])),
        },
        temporary=folders["tmp"],
        seccomp=_write(folders["files"] / "seccomp.json", profile),
        profile=profile,
        hosts=_write(folders["files"] / "hosts", dict(ETC_FILES)["/etc/hosts"]),
        rootless=rootless,
        cgroup_version=version,
        group_limits=not (rootless and version == 1),
    )


def _runtime_base() -> Path:
    """A short folder of this user's own: podman takes no run folder of over 50 letters.

    The same at every start, also without a login session: the store remembers it. Raises
    ``PermissionError`` when somebody else has made it.
    """
    uid = os.geteuid()
    base = Path("/run/airlock") if uid == 0 else Path(f"/tmp/airlock-{uid}")
    base.mkdir(mode=0o700, exist_ok=True)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o022:
        raise PermissionError
    return base


def _runtime_name(state: Path) -> str:
    return hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:8]


def _forget_former_boot(running: Path) -> None:
    """Drop what says that containers run, if it is older than this boot: none does.

    The folder appears with its mark and disappears at once: two daemons may start.
    """
    boot = _BOOT_ID.read_text()
    mark = running / "boot"
    if mark.exists() and mark.read_text() == boot:
        return
    with tempfile.TemporaryDirectory(dir=running.parent) as scratch:
        if running.exists():
            running.rename(Path(scratch) / "former")
        fresh = Path(scratch) / "fresh"
        fresh.mkdir(mode=0o700)
        _write(fresh / "boot", boot.encode())
        with contextlib.suppress(FileExistsError):
            fresh.rename(running)


def _session(own: Path) -> Path:
    """The folder of the user's login session, where its systemd is asked; else ours."""
    session = Path(f"/run/user/{os.geteuid()}")
    return session if session.is_dir() else own


def has_subordinate_ids() -> bool:
    """Whether this user has a range of subordinate uids, by name or by number."""
    names = {str(os.getuid())}
    try:
        names.add(pwd.getpwuid(os.getuid()).pw_name)
        lines = Path("/etc/subuid").read_text().splitlines()
    except (KeyError, OSError):
        return False
    return any(line.split(":")[0] in names for line in lines)


def _for_version_1(version: int) -> tuple[str, ...]:
    """On version 1 there is no systemd to ask, and crun refuses mixed hierarchies."""
    if version != 1:
        return ()
    runc = find_program("runc")
    return ("--cgroup-manager=cgroupfs", *(() if runc is None else ("--runtime", runc)))


def _write(path: Path, content: bytes) -> Path:
    """``path`` with ``content``; whoever reads it never sees half of it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
        os.fchmod(file.fileno(), 0o644)
    os.rename(file.name, path)
    return path
