"""The bubblewrap engine: starts sandboxes under an unprivileged uid, never under root's.

No daemon, no store, no image: a sandbox is a process tree in its own namespaces whose
end is the end of its first process. Limits come from a control group where one can be
made and from resource limits, set while bubblewrap waits before it starts the program.
"""

import os
import signal
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, final

import trio

from broker.engines import bubblewrap_argv as argv_of
from broker.engines.bubblewrap_start import Started, as_file
from broker.engines.bundle import build_bundle
from broker.engines.cgroups import Cgroup, CgroupHome, find_cgroup_home, stale_groups
from broker.engines.engine import SelfTest
from broker.engines.hostfacts import (
    processes_with_argument,
    read_children,
    read_facts,
)
from broker.engines.layout import (
    Layout,
    read_folder_layout,
    read_host_layout,
    read_staging_point,
)
from broker.engines.owners import NAME_PREFIX, Owner, owner_of_name
from broker.engines.process import (
    Sandbox,
    end_process,
    exit_of_code,
    start_child,
)
from broker.engines.programs import MINIMAL_ENV
from broker.engines.seccomp import bpf_filter, parse_machine
from broker.engines.self_tests import cached_self_test
from broker.engines.spec import (
    Exit,
    Facts,
    FolderRoot,
    Guarantees,
    HostRoot,
    ImageRoot,
    SandboxSpec,
)
from broker.engines.uids import UidLease, lease_uid
from broker.engines.work import give_away, remove_tree
from broker.locations import bundled
from protocol.digest import digest_bytes
from protocol.errors import Fault, Refusal


@dataclass(slots=True)
class _Held:
    """What a sandbox holds on the host besides its processes."""

    lease: UidLease | None
    cgroup: Cgroup | None


@final
class BubblewrapEngine:
    """Sandboxes of bubblewrap. One per daemon."""

    name: Final = "bubblewrap"

    def __init__(self, *, program: str, version: str, owner: Owner, state: Path) -> None:
        self.version: Final = version
        self.rootless: Final = os.geteuid() != 0
        self._program: Final = program
        self._owner: Final = owner
        self._state: Final = state
        self._filter: Final = bpf_filter(parse_machine(os.uname().machine))
        self._home: Final[CgroupHome | None] = find_cgroup_home(owner.new_name())
        self._work_leases: Final[dict[Path, UidLease]] = {}

    @property
    def has_cgroups(self) -> bool:
        """Whether sandboxes get a control group here."""
        return self._home is not None

    async def probe(self) -> Guarantees:
        """See ``Engine.probe``."""
        return (await self.self_test()).guarantees

    async def self_test(self) -> SelfTest:
        """See ``Engine.self_test``."""
        bundle = await trio.to_thread.run_sync(
            partial(build_bundle, "probe", source=bundled("probe"), state=self._state)
        )
        return await cached_self_test(
            self,
            HostRoot(bundle.folder, bundle.digest),
            folder=self._state / "engines" / "self-tests",
            key=["bubblewrap", self.version, self.has_cgroups, digest_bytes(self._filter)],
        )

    async def spawn(self, spec: SandboxSpec) -> "BubblewrapSandbox":
        """Start ``spec``. Raises ``Refusal("image_unknown")`` for an image root,
        ``Fault("sandbox_never_ran")`` when bubblewrap could not set it up.
        """
        name = self._owner.new_name()
        held = _Held(None, None)
        started = None
        try:
            if self.rootless is False and not self._has_work_lease(spec):
                held.lease = lease_uid()
            if self._home is not None:
                held.cgroup = Cgroup(self._home, name)
                held.cgroup.make(spec.limits)
            with ExitStack() as parent_ends:
                started = self._start(name, spec, held, parent_ends)
                await started.open_gate(spec.limits, seccomp=self._filter)
        except OSError as error:
            await self._undo(started, held)
            raise Fault("engine_failed") from error
        except BaseException:
            await self._undo(started, held)
            raise
        return BubblewrapSandbox(name, spec, started, held=held, engine=self)

    async def sweep(self) -> int:
        """Remove what dead daemons of this state folder left: how many things it was."""
        count = 0
        left: set[str | None] = set()
        dead = self._owner.dead_owners()
        for pid, argv in processes_with_argument(NAME_PREFIX.encode()).items():
            names = [part.decode(errors="replace") for part in argv]
            if any(owner_of_name(part) in dead for part in names):
                count += await end_process(pid)
        for name in stale_groups(self._home, NAME_PREFIX) if self._home is not None else ():
            if owner_of_name(name) in dead:
                removed = await self._remove_group(name)
                count += removed
                left |= set() if removed else {owner_of_name(name)}
        for owner_id in set(dead) - left:
            self._owner.forget(owner_id)
        return count

    async def _remove_group(self, name: str) -> bool:
        """Remove a group that nobody owns, and what still runs in it."""
        assert self._home is not None
        group = Cgroup(self._home, name)
        for pid in group.pids():
            await end_process(pid)
        return await group.remove()

    async def prepare_work(self, folder: Path) -> None:
        """Hand ``folder`` over to the uid that its sandbox will have."""
        if not self.rootless:
            lease = lease_uid()
            self._work_leases[folder] = lease
            await give_away(folder, uid=lease.uid)

    async def remove_work(self, folder: Path) -> None:
        """Remove ``folder`` and what a sandbox left in it."""
        await remove_tree(folder)
        lease = self._work_leases.pop(folder, None)
        if lease is not None:
            lease.close()

    def _has_work_lease(self, spec: SandboxSpec) -> bool:
        if spec.work is None:
            return False
        if spec.work not in self._work_leases:
            raise AssertionError("prepare_work was not called for the work folder")
        return True

    def _start(self, name: str, spec: SandboxSpec, held: _Held, parent_ends: ExitStack) -> Started:
        """Start bubblewrap up to the point where it waits for our word."""
        layout, places, staged = self._places(spec)
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        parent_ends.callback(os.close, status_write)
        gate_read, gate_write = os.pipe2(os.O_CLOEXEC)
        parent_ends.callback(os.close, gate_read)
        files = [as_file(parent_ends, content) for _, content in layout.files]
        options = argv_of.bubblewrap_options(
            spec,
            layout=layout,
            places=places,
            descriptors=argv_of.Descriptors(
                args=-1,
                seccomp=gate_read,
                status=status_write,
                files=tuple(files),
            ),
        )
        args = as_file(parent_ends, b"".join(part.encode() + b"\0" for part in options))
        command = argv_of.bubblewrap_command(self._program, name=name, args=args, argv=spec.argv)
        try:
            child = start_child(
                self._bound(command, spec, held, staged),
                stdin=spec.stdin,
                pass_fds=(*files, args, status_write, gate_read),
                env=MINIMAL_ENV,
            )
        except BaseException:
            os.close(status_read)
            os.close(gate_write)
            raise
        return Started(name, child, status=status_read, gate=gate_write, cgroup=held.cgroup)

    def _places(
        self, spec: SandboxSpec
    ) -> tuple[Layout, argv_of.Places, tuple[tuple[str, str], ...]]:
        """The root's layout, where bubblewrap finds the folders, and what to stage."""
        folders: list[tuple[str, str]] = []
        match spec.root:
            case HostRoot(adapter=adapter):
                if adapter is not None:
                    folders.append(("adapter", str(adapter)))
            case FolderRoot(folder=folder):
                folders.append(("root", str(folder)))
            case ImageRoot():
                raise Refusal("image_unknown")
        if spec.work is not None:
            folders.append(("work", str(spec.work)))
        point = None if self.rootless else read_staging_point()
        seen = {name: path if point is None else f"{point}/{name}" for name, path in folders}
        match spec.root:
            case FolderRoot(folder=folder):
                layout = read_folder_layout(folder, seen_at=seen["root"])
            case _:
                layout = read_host_layout()
        places = argv_of.Places(adapter=seen.get("adapter"), work=seen.get("work"))
        return layout, places, tuple(folders)

    def _bound(
        self,
        command: tuple[str, ...],
        spec: SandboxSpec,
        held: _Held,
        staged: tuple[tuple[str, str], ...],
    ) -> tuple[str, ...]:
        command = argv_of.limited(
            command,
            limits=spec.limits,
            memory=held.cgroup is None,
            pids=not self.rootless,
        )
        if self.rootless:
            return argv_of.as_user(command, parent=os.getpid())
        lease = held.lease if spec.work is None else self._work_leases[spec.work]
        assert lease is not None
        return argv_of.as_root(
            command,
            parent=os.getpid(),
            uid=lease.uid,
            staging_point=read_staging_point(),
            staged=staged,
        )

    async def _undo(self, started: Started | None, held: _Held) -> None:
        with trio.CancelScope(shield=True):
            if started is not None:
                await started.end()
                await started.child.close_streams()
                started.close()
            await _release(held)


@final
class BubblewrapSandbox(Sandbox):
    """See ``Sandbox``."""

    def __init__(
        self,
        name: str,
        spec: SandboxSpec,
        started: Started,
        *,
        held: _Held,
        engine: BubblewrapEngine,
    ) -> None:
        super().__init__(name, started.child, deadline_seconds=spec.deadline_seconds)
        self._spec: Final = spec
        self._started: Final = started
        self._held: Final = held
        self._engine: Final = engine

    async def facts(self) -> Facts:
        """See ``Sandbox.facts``."""
        inner = self._started.inner_pid
        assert inner is not None
        program = next(iter(read_children(inner)), inner)
        root = self._spec.root
        return read_facts(
            program,
            engine="bubblewrap",
            engine_version=self._engine.version,
            rootless=self._engine.rootless,
            image=None if isinstance(root, ImageRoot) else root.digest,
        )

    async def _terminate(self) -> None:
        inner = self._started.inner_pid
        assert inner is not None
        for pid in read_children(inner):
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                try:
                    signal.pidfd_send_signal(descriptor, signal.SIGTERM)
                finally:
                    os.close(descriptor)

    async def _kill(self) -> None:
        self._killed = self._killed or self._child.returncode is None
        await self._started.end()

    async def _judge(self, returncode: int) -> Exit:
        cgroup = self._held.cgroup
        if cgroup is not None and cgroup.out_of_memory_kills() > 0:
            return Exit("oom", None)
        if self._killed or returncode < 0:
            return Exit("signal", abs(returncode) if returncode < 0 else 9)
        if not await self._started.ran():
            return Exit("never_ran", None)
        return exit_of_code(returncode)

    async def _release(self) -> None:
        self._started.close()
        await _release(self._held)


async def _release(held: _Held) -> None:
    try:
        if held.cgroup is not None and not await held.cgroup.remove():
            raise Fault("engine_failed")
    finally:
        if held.lease is not None:
            held.lease.close()
