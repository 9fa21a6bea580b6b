"""The command line of ``podman run``, as a pure function of what is asked.

Starts nothing and looks at nothing. Every default of podman that gives a container more
than it was asked for is turned off by name: host proxies, host environment, writable
tmpfs, volumes of the image, ``/etc/hosts`` of the host, logs on disk, health checks.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.engines.spec import (
    DEFAULT_PATH,
    INSIDE_ID,
    SHM_BYTES,
    WORK_PATH,
    SandboxSpec,
)

#: The label by which containers are known as ours, and those that say whose.
LABEL: Final = "airlock"
OWNER_LABEL: Final = "airlock.owner"
ATTEMPT_LABEL: Final = "airlock.attempt"
#: Kernel tables that podman itself does not cover, and a file system that can be written.
_MASKS: Final = "/proc/kallsyms:/proc/cmdline:/proc/config.gz:/dev/mqueue"
#: After the deadline podman ends the container by itself, should we not have done it.
_TIMEOUT_SLACK_SECONDS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PodmanSetting:
    """What differs between two hosts."""

    seccomp: Path
    hosts: Path  #: our own /etc/hosts
    group_limits: bool  #: whether this host's podman takes control-group limits
    memory_parent: bool  #: whether memory is limited by a group of ours above podman's


def podman_run(
    spec: SandboxSpec, *, image_id: str, name: str, owner: str, setting: PodmanSetting
) -> tuple[str, ...]:
    """The arguments after ``podman`` and its global options. ``image_id``: 64 hex digits."""
    limits = spec.limits
    environment = {"PATH": DEFAULT_PATH, "HOME": "/tmp", "LANG": "C.UTF-8", **dict(spec.env)}
    return (
        *("run", *(("--interactive",) if spec.stdin else ()), "--name", name),
        *("--label", f"{LABEL}=1", "--label", f"{OWNER_LABEL}={owner}"),
        *("--label", f"{ATTEMPT_LABEL}={spec.attempt_id}"),
        *("--pull=never", "--network=none", "--no-hosts"),
        *("--mount", _mount(setting.hosts, "/etc/hosts", "ro")),
        *("--read-only", "--read-only-tmpfs=false"),
        *("--tmpfs", f"/tmp:rw,noexec,nosuid,nodev,mode=1777,size={limits.tmp_bytes}"),
        *("--image-volume=ignore", f"--shm-size={SHM_BYTES}b"),
        *("--ipc=private", "--uts=private", "--pid=private", "--cgroupns=private"),
        *("--hostname=agent", "--cap-drop=ALL"),
        *("--security-opt=no-new-privileges", "--security-opt", f"mask={_MASKS}"),
        *("--security-opt", f"seccomp={setting.seccomp}"),
        *("--user", f"{INSIDE_ID}:{INSIDE_ID}"),
        *_bounds(spec, setting, name),
        *("--log-driver=none", "--systemd=false", "--sdnotify=ignore", "--no-healthcheck"),
        *("--http-proxy=false", "--env-host=false", "--unsetenv-all"),
        *(part for pair in environment.items() for part in ("--env", "=".join(pair))),
        *("--stop-timeout=0", f"--timeout={int(spec.deadline_seconds) + _TIMEOUT_SLACK_SECONDS}"),
        *("--passwd=false", "--umask=0077"),
        *_work(spec),
        *("--entrypoint=[]", "--init", image_id),
        *(spec.argv if setting.group_limits else _held_by_rlimit(spec)),
    )


def _held_by_rlimit(spec: SandboxSpec) -> tuple[str, ...]:
    """The program under a limit of memory for each process, where there is no group's.

    Set inside: the runtime that starts the container would not fit in it. An image
    without a shell is then not run at all.
    """
    kibibytes = str(spec.limits.memory_bytes // 1024)
    return ("/bin/sh", "-c", 'ulimit -d "$0" && exec "$@"', kibibytes, *spec.argv)


def _bounds(spec: SandboxSpec, setting: PodmanSetting, name: str) -> tuple[str, ...]:
    limits = spec.limits
    rlimits = {
        "nofile": limits.open_files,
        # Per kernel uid, and so across containers: a bound of last resort only.
        "nproc": max(512, limits.pids) if setting.group_limits else limits.pids,
        "core": 0,
        "fsize": limits.file_bytes,
    }
    memory = (f"--memory={limits.memory_bytes}b", f"--memory-swap={limits.memory_bytes}b")
    groups = (
        f"--cpus={limits.cpus:g}",
        *((f"--cgroup-parent=/{name}",) if setting.memory_parent else memory),
        f"--pids-limit={limits.pids}",
    )
    return (
        *(groups if setting.group_limits else ()),
        *(
            part
            for kind, value in rlimits.items()
            for part in ("--ulimit", f"{kind}={value}:{value}")
        ),
    )


def _work(spec: SandboxSpec) -> tuple[str, ...]:
    if spec.work is None:
        return ("--workdir=/tmp",)
    return ("--mount", _mount(spec.work, WORK_PATH, "rw"), f"--workdir={WORK_PATH}")


def _mount(source: Path, target: str, mode: str) -> str:
    """A bind mount in podman's form: comma-separated values, quoted as CSV is."""
    field = f"src={source}".replace('"', '""')
    options = "bind-propagation=private" + (",ro=true" if mode == "ro" else "")
    return f'type=bind,"{field}",dst={target},{options}'
