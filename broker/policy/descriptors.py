"""The tools that the gate knows: name, effect, schema and the role of every argument.

A descriptor is found by name in a closed table and recognized by identity; one that a
caller brings is never believed, whatever it says. Effects and roles are closed sets.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal, final, get_args

from broker.policy.canonical import (
    MAX_SAFE_INTEGER,
    LabelError,
    Value,
    canonical_text,
    canonical_value,
    close_value,
)
from protocol.ids import Digest

Effect = Literal[
    "pure",
    "no_reentry_display",
    "public_network_read",
    "scoped_data_read",
    "append_only_observation",
    "reversible_mutation",
    "irreversible_mutation",
    "external_send",
    "financial",
    "secret_read",
    "code_execution",
]
Role = Literal["instruction", "authority", "destination", "selector", "payload"]

EFFECTS: Final[frozenset[str]] = frozenset(get_args(Effect))
ROLES: Final[frozenset[str]] = frozenset(get_args(Role))

#: Argument names sort the same in bytes, in UTF-16 and in camel's order of members.
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@final
class ToolDescriptor:
    """One tool. ``roles`` are in byte order of the names; ``body`` is the canonical text.

    ``digest`` covers all of it. ``heads`` has the text of each argument up to its value.
    Not validated here: a table takes only well-formed ones.
    """

    __slots__ = (
        "body",
        "digest",
        "effect",
        "heads",
        "name",
        "names",
        "policy_id",
        "roles",
        "version",
    )

    def __init__(
        self,
        name: str,
        *,
        version: int,
        effect: str,
        policy_id: str,
        input_schema: Value,
        argument_roles: Mapping[str, str],
    ) -> None:
        self.name: Final = name
        self.version: Final = version
        self.effect: Final = effect
        self.policy_id: Final = policy_id
        self.roles: Final = tuple(sorted(argument_roles.items()))
        self.names: Final = [name for name, _ in self.roles]
        self.heads: Final = {row: argument_head(*row) for row in self.roles}
        self.body: Final = canonical_value(
            {
                "name": name,
                "version": version,
                "effect": effect,
                "policyId": policy_id,
                "inputSchema": close_value(input_schema),
                "argumentRoles": dict(argument_roles),
            }
        )
        self.digest: Final = Digest("sha256:" + hashlib.sha256(self.body).hexdigest())


@final
class DescriptorTable:
    """The closed set of descriptors of one bundle; ``LabelError`` for a malformed one."""

    __slots__ = ("_by_name",)

    def __init__(self, descriptors: Iterable[ToolDescriptor]) -> None:
        listed = tuple(descriptors)
        if not all(map(_well_formed, listed)):
            raise LabelError("descriptor_malformed")
        self._by_name: Final = {descriptor.name: descriptor for descriptor in listed}
        if len(self._by_name) != len(listed):
            raise LabelError("descriptor_ambiguous")

    def find(self, name: str) -> ToolDescriptor | None:
        """The descriptor of exactly this name, or None."""
        return self._by_name.get(name)


def argument_head(name: str, role: str, registry: tuple[str, str] | None = None) -> bytes:
    """The canonical text of an argument up to its value; ``registry`` is (id, digest)."""
    bound = b""
    if registry is not None:
        bound = b"".join(
            (
                b'"registryDigest":', canonical_text(registry[1]),
                b',"registryId":', canonical_text(registry[0]), b",",
            )
        )  # fmt: skip
    return b"".join(
        (canonical_text(name), b":{", bound, b'"role":', canonical_text(role), b',"value":')
    )


def _well_formed(descriptor: ToolDescriptor) -> bool:
    return (
        "" not in (descriptor.name, descriptor.policy_id)
        and type(descriptor.version) is int
        and 1 <= descriptor.version <= MAX_SAFE_INTEGER
        and descriptor.effect in EFFECTS
        and all(
            _NAME.fullmatch(name) is not None and role in ROLES for name, role in descriptor.roles
        )
    )
