"""Everything that one decision is about, and the one canonical text that is digested.

The text is joined from the sealed bodies of the labelled values, so the bytes that are
digested are of the values that are judged. Nothing here judges.
"""

from collections.abc import Iterable

import msgspec

from broker.policy.canonical import canonical_text
from broker.policy.decision import RequestRef, Subject
from broker.policy.descriptors import ToolDescriptor, argument_head
from broker.policy.labels import CONTROL_OWNED, Safe, Unsafe, is_authentic
from protocol.ids import Id


class Argument(msgspec.Struct, frozen=True, eq=False):
    """One argument; a destination also names its registry by (id, digest).

    ``value`` is whatever the caller gave: the evaluator asks whether it is authentic.
    """

    name: str
    role: str
    value: object
    registry: tuple[str, str] | None = None


class Context(msgspec.Struct, frozen=True, eq=False):
    """What is the same for all requests of an attempt, and what there is to know of it.

    ``control`` are the control dependencies, ``readers`` the intended readers as labelled
    principals (None when none were named). The other members are made here: the canonical
    text, whether every control dependency is authentic, whether one of them is Unsafe,
    and the principals, None when a reader is not a control-owned one.
    """

    plan_id: str
    control: tuple[object, ...]
    readers: tuple[object, ...] | None
    text: bytes = b""
    is_authentic: bool = False
    is_unsafe: bool = False
    principals: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        parts = [b'},"controlDependencies":[', b",".join(map(_body, self.control))]
        if self.readers is not None:
            parts += (b'],"intendedReaderIds":[', b",".join(map(_body, self.readers)))
        parts += (b'],"planId":', canonical_text(self.plan_id), b',"tool":')
        known = {
            "text": b"".join(parts),
            "is_authentic": all(map(is_authentic, self.control)),
            "is_unsafe": any(type(value) is Unsafe for value in self.control),
            "principals": _principals(self.readers or ()),
        }
        for name, value in known.items():
            msgspec.structs.force_setattr(self, name, value)


class PolicyInput(msgspec.Struct, frozen=True, eq=False):
    """One input. ``arguments`` are in byte order of their names (see ``ordered``).

    ``request`` and ``subject`` are for the record and the effect key; the action digest
    does not cover them.
    """

    context: Context
    tool: ToolDescriptor
    arguments: tuple[Argument, ...]
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
    parts: list[bytes] = [b'{"args":{']
    append = parts.append
    for argument in policy_input.arguments:
        registry, value = argument.registry, argument.value
        head = heads.get((argument.name, argument.role)) if registry is None else None
        append(head or argument_head(argument.name, argument.role, registry))
        append(value.body if is_authentic(value) else b"null")
        append(b"},")
    if len(parts) > 1:
        parts[-1] = b"}"
    append(policy_input.context.text)
    append(tool.body)
    append(b"}")
    return b"".join(parts)


def plan_id(attempt_id: Id) -> str:
    """The plan of an attempt: what the control plane started, not what the agent says."""
    return f"plan:{attempt_id}"


def _body(value: object) -> bytes:
    return value.body if is_authentic(value) else b"null"


def _principals(readers: tuple[object, ...]) -> tuple[str, ...] | None:
    found: list[str] = []
    for reader in readers:
        if not is_authentic(reader) or type(reader) is not Safe:
            return None
        name = reader.value
        if reader.basis not in CONTROL_OWNED or type(name) is not str or name == "":
            return None
        found.append(name)
    return tuple(found)
