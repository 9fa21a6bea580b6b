"""The podman engine: containers in a store of our own, removed by name and never trusted to go.

Never pulls. The client process is only a pipe: what ends a container is its removal by
name, by this daemon or, when it is gone, by the watchdog. Rootless where the daemon is
not root; as root it shares the host's user namespace, and its facts say so.
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final, final

import msgspec
import trio

from broker.engines.bundle import build_bundle
from broker.engines.cgroups import Cgroup, CgroupHome, find_memory_home, stale_groups
from broker.engines.engine import SelfTest
from broker.engines.hostfacts import read_facts
from broker.engines.image import build_image, load_image
from broker.engines.image_preflight import ImageConfig, check_image, parse_image_inspect
from broker.engines.owners import NAME_PREFIX, Owner, owner_of_name
from broker.engines.podman_argv import PodmanSetting, podman_run
from broker.engines.podman_host import PodmanHost
from broker.engines.process import Child, Sandbox, exit_of_code, start_child
from broker.engines.programs import run_program
from broker.engines.self_tests import cached_self_test
from broker.engines.spec import Exit, Facts, Guarantees, ImageRoot, SandboxSpec
from broker.engines.watchdog import (
    NotRemoved,
    children_of,
    list_containers,
    monitors_of,
    remove_container,
)
from broker.engines.watching import Watchdog
from broker.engines.work import give_away, remove_tree
from broker.locations import bundled
from protocol.digest import DIGEST_PREFIX, digest_bytes
from protocol.errors import Fault, Refusal

_COMMAND_SECONDS: Final = 30.0
#: What the client says when it could not start the container or lost it.
_CLIENT_CODES: Final = frozenset({125, 126, 127})
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


class _State(msgspec.Struct, frozen=True):
    """What is used of ``podman inspect``'s state."""

    status: str = msgspec.field(name="Status")
    exit_code: int = msgspec.field(name="ExitCode")
    oom_killed: bool = msgspec.field(name="OOMKilled", default=False)


@final
class PodmanEngine:
    """Containers of podman. One per daemon."""

    name: Final = "podman"

    def __init__(self, host: PodmanHost, *, version: str, owner: Owner, state: Path) -> None:
        self.version: Final = version
        self.rootless: Final = host.rootless
        self._host: Final = host
        self._owner: Final = owner
        self._state: Final = state
        self._images: Final[dict[str, tuple[str, ImageConfig]]] = {}
        self._memory_home: Final[CgroupHome | None] = (
            find_memory_home() if host.cgroup_version == 1 and not host.rootless else None
        )
        self._watchdog: Final = Watchdog(
            host.command,
            host.environment,
            groups=[] if self._memory_home is None else self._memory_home.all_folders(),
            pause_pid_file=str(host.temporary / "pause.pid") if host.rootless else None,
        )

    @property
    def command(self) -> tuple[str, ...]:
        """podman and its global options: what ``image.load_image`` takes."""
        return self._host.command

    @property
    def group_version(self) -> int:
        """The version of this host's control groups."""
        return self._host.cgroup_version

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment that belongs to ``command``."""
        return self._host.environment

    async def probe(self) -> Guarantees:
        """See ``Engine.probe``."""
        return (await self.self_test()).guarantees

    async def self_test(self) -> SelfTest:
        """See ``Engine.self_test``. Builds and loads the image of the probe."""
        bundle = await trio.to_thread.run_sync(
            partial(build_bundle, "probe", source=bundled("probe"), state=self._state)
        )
        image = await trio.to_thread.run_sync(
            partial(build_image, "probe", state=self._state, bundle=bundle)
        )
        await trio.to_thread.run_sync(
            partial(load_image, self.command, image, environment=self.environment)
        )
        return await cached_self_test(
            self,
            ImageRoot(image.reference),
            folder=self._state / "engines" / "self-tests",
            key=["podman", self.version, list(self.command), digest_bytes(self._host.profile)],
        )

    async def spawn(self, spec: SandboxSpec) -> "PodmanSandbox":
        """Start ``spec``. Raises ``Refusal`` for an image that is not here, not pinned or
        not allowed; ``Fault("engine_failed")``. That the container came up is known by
        its first byte.
        """
        if not isinstance(spec.root, ImageRoot):
            raise Refusal("unsupported")
        image_id, _ = await self._resolve(spec.root.reference)
        name = self._owner.new_name()
        cgroup = None
        event = None
        if self._memory_home is not None:
            cgroup = Cgroup(self._memory_home, name)
            try:
                cgroup.make(spec.limits)
                event = cgroup.open_oom_event()
            except OSError as error:
                await cgroup.remove()
                raise Fault("engine_failed") from error
        setting = PodmanSetting(
            seccomp=self._host.seccomp,
            hosts=self._host.hosts,
            group_limits=self._host.group_limits,
            memory_parent=cgroup is not None,
        )
        arguments = podman_run(
            spec, image_id=image_id, name=name, owner=self._owner.id, setting=setting
        )
        try:
            self._watchdog.guard(name)
            child = start_child(
                (*self.command, *arguments),
                stdin=spec.stdin,
                pass_fds=(),
                env=self.environment,
            )
        except BaseException:
            self._watchdog.release(name)
            await _give_back(cgroup, event)
            raise
        return PodmanSandbox(
            name, spec, child, engine=self, image_id=image_id, cgroup=cgroup, oom_event=event
        )

    async def sweep(self) -> int:
        """See ``Engine.sweep``. Whatever is in our store and no live daemon's goes."""
        dead = self._owner.dead_owners()
        rows = await trio.to_thread.run_sync(list_containers, self.command, self.environment)
        stale = {
            name
            for _, names in rows
            for name in names
            if not self._owner.is_live(owner_of_name(name))
        }
        for name in sorted(stale):
            await self.remove(name)
        left: set[str | None] = set()
        home = self._memory_home
        for name in stale_groups(home, NAME_PREFIX) if home is not None else ():
            assert home is not None
            if owner_of_name(name) in dead and not await Cgroup(home, name).remove():
                left.add(owner_of_name(name))
        for owner_id in set(dead) - left:
            self._owner.forget(owner_id)
        return len(stale)

    async def prepare_work(self, folder: Path) -> None:
        """See ``Engine.prepare_work``."""
        if self.rootless:
            await self._in_user_namespace("chown", "-hR", "10001:10001", "--", str(folder))
        else:
            await give_away(folder, uid=10001)

    async def remove_work(self, folder: Path) -> None:
        """See ``Engine.remove_work``."""
        if self.rootless:
            await self._in_user_namespace("rm", "-rf", "--", str(folder))
        else:
            await remove_tree(folder)

    async def remove(self, name: str) -> None:
        """Remove container ``name`` and all of it, or ``Fault("engine_failed")``."""
        try:
            await trio.to_thread.run_sync(remove_container, self.command, self.environment, name)
        except (NotRemoved, OSError) as error:
            raise Fault("engine_failed") from error
        self._watchdog.release(name)

    async def signal(self, name: str, signal: str) -> None:
        """Sends ``signal`` to the program of container ``name``; it may be gone."""
        await run_program(
            (*self.command, "kill", "--signal", signal, name),
            env=self.environment,
            timeout_seconds=_COMMAND_SECONDS,
        )

    async def inspect(self, name: str, field: str) -> bytes | None:
        """One field of container ``name``; None when there is no such container."""
        done = await run_program(
            (*self.command, "container", "inspect", "--format", field, name),
            env=self.environment,
            timeout_seconds=_COMMAND_SECONDS,
        )
        return done.stdout.strip() if done.returncode == 0 else None

    async def image_config(self, reference: str) -> ImageConfig:
        """What the local image says of itself; ``Refusal`` as for ``spawn``."""
        return (await self._resolve(reference))[1]

    async def _resolve(self, reference: str) -> tuple[str, ImageConfig]:
        """The local image's id (64 hex digits) and configuration, checked once."""
        if reference not in self._images:
            if "sha256:" not in reference or reference.startswith("-"):
                raise Refusal("image_unpinned")
            done = await run_program(
                (*self.command, "image", "inspect", reference),
                env=self.environment,
                timeout_seconds=_COMMAND_SECONDS,
            )
            if done.returncode != 0:
                raise Refusal("image_unknown")
            config = parse_image_inspect(done.stdout)
            check_image(
                config,
                architecture=_ARCHITECTURES[os.uname().machine],
                user_replaced=True,
                entrypoint_replaced=True,
            )
            identity = msgspec.json.decode(done.stdout, type=list[dict[str, msgspec.Raw]])
            image_id = msgspec.json.decode(identity[0]["Id"], type=str)
            if reference.startswith(DIGEST_PREFIX) and reference[7:] != image_id:
                raise Refusal("image_unknown")
            self._images[reference] = (image_id, config)
        return self._images[reference]

    async def _in_user_namespace(self, *argv: str) -> None:
        done = await run_program(
            (*self.command, "unshare", *argv),
            env=self.environment,
            timeout_seconds=10 * _COMMAND_SECONDS,
        )
        if done.returncode != 0:
            raise Fault("engine_failed")


@final
class PodmanSandbox(Sandbox):
    """See ``Sandbox``. The child is podman's client."""

    def __init__(
        self,
        name: str,
        spec: SandboxSpec,
        child: Child,
        *,
        engine: PodmanEngine,
        image_id: str,
        cgroup: Cgroup | None,
        oom_event: int | None,
    ) -> None:
        super().__init__(name, child, deadline_seconds=spec.deadline_seconds)
        self._engine: Final = engine
        self._image_id: Final = image_id
        self._cgroup: Final = cgroup
        self._oom_event: Final = oom_event
        # Whether memory needs no word of podman's: a group of ours tells, or there is none.
        self._watched: Final = engine.group_version == 1

    async def facts(self) -> Facts:
        """See ``Sandbox.facts``. ``Fault("engine_failed")`` if it runs another image."""
        running = await self._engine.inspect(self.name, "{{.Image}}")
        if running is not None and running.decode() != self._image_id:
            raise Fault("engine_failed")
        program = self._find_program()
        return read_facts(
            program,
            engine="podman",
            engine_version=self._engine.version,
            rootless=self._engine.rootless,
            image=None if running is None else DIGEST_PREFIX + self._image_id,
        )

    def _find_program(self) -> int:
        """The pid of the program: the child of the container's reaper. 0: it is not there."""
        for monitor in monitors_of(self.name):
            for reaper in children_of(monitor):
                for program in children_of(reaper):
                    return program
        return 0

    async def _terminate(self) -> None:
        await self._engine.signal(self.name, "TERM")

    async def _kill(self) -> None:
        self._killed = self._killed or self._child.returncode is None
        await self._engine.remove(self.name)
        # Its container is gone; a client that has not noticed is of no use.
        with trio.move_on_after(0.5):
            await self._child.wait()
        self._child.kill()
        await self._child.wait()

    async def _judge(self, returncode: int) -> Exit:
        if self._ran_out_of_memory():
            return Exit("oom", None)
        if self._killed:
            return Exit("signal", 9)
        if self._watched and returncode not in _CLIENT_CODES:
            return exit_of_code(returncode)
        document = await self._engine.inspect(self.name, "{{json .State}}")
        if document is None:
            return exit_of_code(returncode) if returncode < 125 else Exit("never_ran", None)
        state = msgspec.json.decode(document, type=_State)
        if state.oom_killed:
            return Exit("oom", None)
        match state.status:
            case "created" | "configured" | "initialized":
                return Exit("never_ran", None)
            case _:
                return exit_of_code(state.exit_code)

    async def _release(self) -> None:
        if not await _give_back(self._cgroup, self._oom_event):
            raise Fault("engine_failed")

    def _ran_out_of_memory(self) -> bool:
        if self._oom_event is None:
            return False
        try:
            return os.eventfd_read(self._oom_event) > 0
        except BlockingIOError:
            return False


async def _give_back(cgroup: Cgroup | None, event: int | None) -> bool:
    if event is not None:
        os.close(event)
    return cgroup is None or await cgroup.remove()
