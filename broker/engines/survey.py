"""What ``airlock doctor`` tells about engines: what is here, what holds, what would help.

Tries each engine as an attempt would. Chooses nothing and changes nothing of the host.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, get_args

import msgspec

from broker.engines.engine import SelfTest
from broker.engines.probe_rules import ProbeResult
from broker.engines.selection import EngineUnavailable, open_engine, verify_engine
from broker.engines.spec import EngineName, Mechanism
from protocol.engine_codes import ENGINE_TEXT, EngineReason
from protocol.errors import Fault

#: What a person can do about it. Where a reason is not here there is nothing to be done.
HINTS: Final[Mapping[tuple[EngineName, EngineReason], str]] = {
    ("bubblewrap", "not_installed"): "Install the package bubblewrap.",
    ("podman", "not_installed"): (
        "Install the package podman with what it recommends (uidmap, catatonit)."
    ),
    ("bubblewrap", "user_namespaces_off"): (
        "Allow unprivileged user namespaces: on Ubuntu install the AppArmor profile "
        "bwrap-userns-restrict; inside a container allow the calls clone and unshare."
    ),
    ("podman", "subordinate_ids_missing"): (
        "Give the user a range: usermod --add-subuids 100000-165535 "
        "--add-subgids 100000-165535 USER."
    ),
    ("bubblewrap", "limits_not_enforced"): (
        "Start airlock where it may make control groups: "
        "systemd-run --user --scope -p Delegate=yes airlock ..."
    ),
    ("podman", "limits_not_enforced"): (
        "Let the user's systemd manage control groups: loginctl enable-linger USER."
    ),
    ("podman", "self_test_failed"): (
        "Run podman info as the same user; crun needs control groups of version 2."
    ),
}


class EngineReport(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One engine on this machine. ``enforces`` is empty when it could not be tested."""

    name: EngineName
    version: str
    usable: bool
    rootless: bool
    enforces: dict[str, Mechanism]
    probes: tuple[ProbeResult, ...]
    reason: EngineReason | None = None
    text: str | None = None  #: ``reason`` in one sentence
    hint: str | None = None


async def survey(state: Path) -> list[EngineReport]:
    """A report for every engine that airlock knows, in a fixed order. Takes seconds."""
    return [await _report(name, state) for name in get_args(EngineName)]


async def _report(name: EngineName, state: Path) -> EngineReport:
    version, rootless = "", False
    try:
        engine = await open_engine(name, state=state)
        version, rootless = engine.version, engine.rootless
        found = await verify_engine(engine)
    except EngineUnavailable as unavailable:
        reason = unavailable.reasons[0][1]
        return _unusable(name, version, rootless, reason, unavailable.found)
    except Fault:
        return _unusable(name, version, rootless, "self_test_failed", None)
    return EngineReport(
        name=name,
        version=version,
        usable=True,
        rootless=rootless,
        enforces=found.guarantees.enforced(),
        probes=found.probes,
    )


def _unusable(
    name: EngineName,
    version: str,
    rootless: bool,
    reason: EngineReason,
    found: SelfTest | None,
) -> EngineReport:
    return EngineReport(
        name=name,
        version=version,
        usable=False,
        rootless=rootless,
        enforces={} if found is None else found.guarantees.enforced(),
        probes=() if found is None else found.probes,
        reason=reason,
        text=ENGINE_TEXT[reason],
        hint=HINTS.get((name, reason)),
    )
