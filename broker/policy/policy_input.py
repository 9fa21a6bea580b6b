"""Everything that one decision is about, and the one canonical text that is digested.

The text is joined from the sealed bodies of the labelled values, so the bytes that are
digested are of the values that are judged. Nothing here judges.
"""

from collections.abc import Iterable

import msgspec

from broker.policy.canonical import canonical_text
from broker.policy.decision import RequestRef, Subject
from broker.policy.descriptors import ToolDescriptor, argument_head
from broker.policy.labels import is_authentic
from protocol.ids import Id


class Argument(msgspec.Struct, frozen=True, eq=False):
    """One argument; a destination also names its registry by (id, digest).

    ``value`` is whatever the caller gave: the evaluator asks whether it is authentic.
    """

    name: str
    role: str
    value: object
    registry: tuple[str, str] | None = None


class PolicyInput(msgspec.Struct, frozen=True, eq=False):
    """One input. ``arguments`` are in byte order of their names (see ``ordered``).

    ``control`` are the control dependencies. ``readers`` are the intended readers as
    labelled principals, None when none were named. ``request`` and ``subject`` are for
    the record and the effect key; the action digest does not cover them.
    """

    plan_id: str
    tool: ToolDescriptor
    arguments: tuple[Argument, ...]
    control: tuple[object, ...]
    readers: tuple[object, ...] | None
    request: RequestRef
    subject: Subject


def ordered(arguments: Iterable[Argument]) -> tuple[Argument, ...]:
    """``arguments`` in byte order of their names."""
    return tuple(sorted(arguments, key=lambda argument: argument.name))


def canonical_input(policy_input: PolicyInput) -> bytes:
    """camel's canonical text of the whole input.

    A value without an authentic label has no sealed body. It stands as ``null``, which
    no labelled value does, and is denied anyway.
    """
    tool = policy_input.tool
    heads = tool.heads
    parts: list[bytes] = [b'{"args":']
    opening = b"{"
    for argument in policy_input.arguments:
        name, role, registry = argument.name, argument.role, argument.registry
        head = heads.get((name, role)) if registry is None else None
        if head is None:
            head = argument_head(name, role, registry)
        parts += (opening, head, _body(argument.value))
        opening = b"},"
    parts += (b"{}" if opening == b"{" else b"}}", b',"controlDependencies":[')
    parts.append(b",".join(map(_body, policy_input.control)))
    if policy_input.readers is not None:
        parts += (b'],"intendedReaderIds":[', b",".join(map(_body, policy_input.readers)))
    plan = canonical_text(policy_input.plan_id)
    parts += (b'],"planId":', plan, b',"tool":', tool.body, b"}")
    return b"".join(parts)


def plan_id(attempt_id: Id) -> str:
    """The plan of an attempt: what the control plane started, not what the agent says."""
    return f"plan:{attempt_id}"


def _body(value: object) -> bytes:
    return value.body if is_authentic(value) else b"null"
