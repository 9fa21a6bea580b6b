"""What every isolation engine can do. No engine is chosen or started here."""

from pathlib import Path
from typing import Protocol

import msgspec

from broker.engines.probe_rules import ProbeResult
from broker.engines.process import Sandbox
from broker.engines.spec import EngineName, Guarantees, SandboxSpec


class SelfTest(msgspec.Struct, frozen=True):
    """What the self-test of one engine found on this machine."""

    guarantees: Guarantees
    probes: tuple[ProbeResult, ...]


class Engine(Protocol):
    """What starts sandboxes. Every engine gives the same ones."""

    @property
    def name(self) -> EngineName:
        """Its name, as in a record."""

    @property
    def version(self) -> str:
        """The version of the program on this machine."""

    @property
    def rootless(self) -> bool:
        """Whether it runs without root's rights."""

    async def probe(self) -> Guarantees:
        """What it enforces on this machine, found by trying."""

    async def self_test(self) -> SelfTest:
        """The same, with each probe; run once for a machine, a boot and a version."""

    async def spawn(self, spec: SandboxSpec) -> Sandbox:
        """Start a sandbox, or ``Refusal``/``Fault`` and nothing is left."""

    async def sweep(self) -> int:
        """Remove what dead daemons of this state folder left; how many things it was."""

    async def prepare_work(self, folder: Path) -> None:
        """Make ``folder`` writable for the sandbox that will have it as ``work``."""

    async def remove_work(self, folder: Path) -> None:
        """Remove ``folder`` and what a sandbox left in it."""
