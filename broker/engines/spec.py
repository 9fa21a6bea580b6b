"""What a sandbox is asked to be, and what is known about one: values only.

Nothing here starts, reads or opens anything. What is not a field of ``SandboxSpec`` is
the same for every sandbox: no network, no capability, a read-only root, one small
writable ``/tmp``.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Literal

from protocol.ids import Digest, Id

EngineName = Literal["podman", "docker", "bubblewrap", "apple"]
EngineChoice = Literal["auto", "podman", "docker", "bubblewrap", "apple"]
Role = Literal["agent", "recipe", "probe"]
Mechanism = Literal["cgroup", "rlimit", "kernel", "vm", "engine", "none"]

#: The uid and gid that a program sees inside; never 0, and the same in every engine.
INSIDE_ID: Final = 10001
#: Where an adapter folder and a work folder appear inside.
ADAPTER_PATH: Final = "/adapter"
WORK_PATH: Final = "/work"
#: /dev/shm: enough for semaphores (Python's multiprocessing), too small to hide data in.
SHM_BYTES: Final = 1024 * 1024
#: The PATH that is given when a specification names none: the root's own programs.
DEFAULT_PATH: Final = "/usr/bin:/bin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """The resources of one sandbox. Each is enforced or the sandbox is refused."""

    cpus: float  #: processors' worth of time per second of wall time
    memory_bytes: int  #: of all processes together, /tmp included; no swap
    pids: int  #: processes and threads
    tmp_bytes: int  #: size of /tmp
    file_bytes: int  #: longest file that may be written
    open_files: int  #: descriptors per process


#: For an agent: enough for a language runtime and a large context in memory; engines.md 1.1.
AGENT_LIMITS: Final = SandboxLimits(
    cpus=1.0,
    memory_bytes=512 * 1024 * 1024,
    pids=128,
    tmp_bytes=64 * 1024 * 1024,
    file_bytes=64 * 1024 * 1024,
    open_files=1024,
)
#: For a recipe: a compiler and a test suite need more of everything.
RECIPE_LIMITS: Final = SandboxLimits(
    cpus=2.0,
    memory_bytes=2 * 1024 * 1024 * 1024,
    pids=512,
    tmp_bytes=256 * 1024 * 1024,
    file_bytes=256 * 1024 * 1024,
    open_files=1024,
)


@dataclass(frozen=True, slots=True)
class HostRoot:
    """The host's ``/usr`` read-only, and an adapter folder read-only at ``/adapter``."""

    adapter: Path | None
    digest: Digest


@dataclass(frozen=True, slots=True)
class FolderRoot:
    """An unpacked root file system, read-only."""

    folder: Path
    digest: Digest


@dataclass(frozen=True, slots=True)
class ImageRoot:
    """A local image: ``sha256:<config digest>`` or ``name@sha256:<manifest digest>``."""

    reference: str


Root = HostRoot | FolderRoot | ImageRoot


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """Everything that differs between two sandboxes. What is not here is fixed."""

    role: Role
    attempt_id: Id
    root: Root
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    limits: SandboxLimits
    deadline_seconds: float  #: after this ``wait`` kills it and says ``timeout``
    work: Path | None  #: host folder, read-write at /work, also the working directory
    stdin: bool  #: False: standard input is empty


@dataclass(frozen=True, slots=True)
class Exit:
    """How a sandbox's program ended.

    ``code`` is the exit status for ``exit`` and the signal's number for ``signal``. No
    engine tells a program that exits with 128 + n from one that signal n killed; both
    are ``signal``. ``oom`` says that the kernel killed something inside for memory,
    whatever the program made of it. ``never_ran``: the program was not started.
    """

    kind: Literal["exit", "signal", "oom", "timeout", "never_ran"]
    code: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the host sees of a running sandbox; ``None`` where it could not look."""

    engine: EngineName
    engine_version: str
    rootless: bool
    image: str | None  #: identity of the root: the engine's image id, or our digest
    kernel_uid: int | None  #: the uid that the kernel checks outside of every namespace
    no_capabilities: bool | None
    no_new_privileges: bool | None
    seccomp_filter: bool | None
    own_namespaces: tuple[str, ...]  #: kinds in which it does not share the host's
    memory_bytes: int | None  #: the control group's limit; None: no such limit
    pids: int | None
    cpus: float | None
    swap_limited: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """Per control, what enforces it here, found by trying; ``none``: nothing does."""

    network: Mechanism
    root_read_only: Mechanism
    capabilities: Mechanism
    no_new_privileges: Mechanism
    seccomp: Mechanism
    user_namespace: Mechanism
    uid_separation: Mechanism
    memory: Mechanism
    swap: Mechanism
    pids: Mechanism
    cpu: Mechanism
    tmpfs: Mechanism
    file_size: Mechanism
    environment: Mechanism
    descriptors: Mechanism
    clean_up: Mechanism

    def missing(self) -> tuple[str, ...]:
        """The names of the controls that must hold and do not."""
        return tuple(name for name in REQUIRED_CONTROLS if getattr(self, name) == "none")

    def enforced(self) -> dict[str, Mechanism]:
        """Every control with its mechanism, for a report."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


#: Without one of these there is no sandbox. Not here: ``cpu`` and ``swap`` (a hog is
#: slow, not free), ``uid_separation`` and ``user_namespace`` (defence in depth).
REQUIRED_CONTROLS: Final = (
    "network",
    "root_read_only",
    "capabilities",
    "no_new_privileges",
    "seccomp",
    "memory",
    "pids",
    "tmpfs",
    "file_size",
    "environment",
    "descriptors",
    "clean_up",
)
