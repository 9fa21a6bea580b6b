"""What a value carries with it: how safe it is, who may read it, what it came from.

A labelled value is ``Safe`` (may enter a planner's context; not thereby true, not
authorized, not secret) or ``Unsafe``. It has no public constructor: the seal that makes
one is held by the modules that mint (``ingress``) and convert (``conversions``), and a
test names who imports it. Its canonical text is made once, when the value is made, so
what is decided on and what is digested cannot differ.
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar, Final, Literal, TypeAlias, TypeGuard, get_args

import msgspec

from broker.policy.canonical import LabelError, Value, canonical_text, canonical_value
from broker.policy.readers import Readers

PromptSafety = Literal["safe", "unsafe"]
SafeBasis = Literal[
    "user_instruction",
    "system_policy",
    "harness_constant",
    "atomic_conversion",
    "safe_operation",
    "privileged_generation",
    "trusted_artifact",
]
ProvenanceKind = Literal[
    "user_instruction",
    "system_policy",
    "harness",
    "tool",
    "artifact",
    "quarantined_llm",
    "converter",
    "human_review",
]
Influence = Literal["data", "control"]

#: Bases of values that the owner of the broker, and nobody else, can have made.
CONTROL_OWNED: Final[frozenset[SafeBasis]] = frozenset({"system_policy", "harness_constant"})


_PREFIX: Final = "sha256:"
_KIND_ENDING: Final = {
    kind: b',"kind":"' + kind.encode() + b'"}' for kind in get_args(ProvenanceKind)
}
_NO_CONSTRUCTOR: Final = "labelled values have no public constructor"


class Seal:
    """A capability: whoever holds the one ``SEAL`` can make labelled values."""

    __slots__ = ()


SEAL: Final = Seal()
_BRAND: Final = Seal()


class Ref(msgspec.Struct, frozen=True):
    """One source of a value. ``body`` is the canonical text; it is always made here.

    A digest is bare or starts with ``sha256:``, and no id ends as that prefix does, so
    the joined ``kind:id:digest`` can be read in one way only.
    """

    kind: ProvenanceKind
    id: str
    digest: str | None = None
    body: bytes = b""

    def __post_init__(self) -> None:
        identity, digest = self.id, self.digest
        if identity == "" or digest == "":
            raise LabelError("label_identity_empty")
        start = b'{"id":'
        if digest is not None:
            if ":" in digest and ":" in digest.removeprefix(_PREFIX):
                raise LabelError("label_identity_ambiguous")
            start = b'{"digest":' + canonical_text(digest) + b',"id":'
        if identity.endswith(":sha256"):
            raise LabelError("label_identity_ambiguous")
        parts = (start, canonical_text(identity), _KIND_ENDING[self.kind])
        msgspec.structs.force_setattr(self, "body", b"".join(parts))


class Dependency(msgspec.Struct, frozen=True):
    """One source that influenced a value, and how safe it was when it did."""

    ref: Ref
    influence: Influence
    safety_at_use: PromptSafety


class Datum(msgspec.Struct, frozen=True):
    """What an atomic conversion adds to its output: by which policy, and which record."""

    kind: str
    conversion_id: str
    conversion_digest: str
    record_id: str
    datum_id: str


class Safe(msgspec.Struct, frozen=True, eq=False, weakref=False):
    """A value that may enter a planner's context. Made only with the seal."""

    is_labelled: ClassVar[bool] = True

    brand: Seal
    value: Value
    basis: SafeBasis
    readers: Readers
    provenance: tuple[Ref, ...]
    dependencies: tuple[Dependency, ...]
    body: bytes
    datum: Datum | None = None

    def __post_init__(self) -> None:
        if self.brand is not SEAL:
            raise TypeError(_NO_CONSTRUCTOR)
        # The seal is exchanged for the brand, so that a changed copy of a value is refused.
        msgspec.structs.force_setattr(self, "brand", _BRAND)

    def __repr__(self) -> str:
        return "<Safe>"


class Unsafe(msgspec.Struct, frozen=True, eq=False, weakref=False):
    """A value that somebody else wrote. Made only with the seal; its text is never shown."""

    is_labelled: ClassVar[bool] = True

    brand: Seal
    value: Value
    readers: Readers
    provenance: tuple[Ref, ...]
    dependencies: tuple[Dependency, ...] = ()
    text: bytes = b""

    def __post_init__(self) -> None:
        if self.brand is not SEAL:
            raise TypeError(_NO_CONSTRUCTOR)
        msgspec.structs.force_setattr(self, "brand", _BRAND)

    @property
    def body(self) -> bytes:
        """The canonical text, made when it is first asked for: most of these are converted."""
        if not self.text:
            label = label_body(
                basis=None,
                readers=self.readers,
                provenance=self.provenance,
                dependencies=self.dependencies,
            )
            parts = (b'{"label":', label, b',"value":', canonical_value(self.value), b"}")
            msgspec.structs.force_setattr(self, "text", b"".join(parts))
        return self.text

    def __repr__(self) -> str:
        return "<Unsafe>"


Labelled: TypeAlias = Safe | Unsafe


def is_authentic(value: object) -> TypeGuard[Labelled]:
    """Whether ``value`` was made here, and not merely looks like it."""
    return (type(value) is Safe or type(value) is Unsafe) and value.brand is _BRAND


def merge_provenance(values: Iterable[Labelled]) -> tuple[Ref, ...]:
    """Every source of ``values`` once, in order of first appearance."""
    return tuple(dict.fromkeys(ref for value in values for ref in value.provenance))


def dependencies_of(
    values: Iterable[Labelled], influence: Influence = "data"
) -> tuple[Dependency, ...]:
    """What something made from ``values`` depends on; digests tell sources apart."""
    return tuple(dict.fromkeys(_dependencies(values, influence)))


def label_body(
    *,
    basis: SafeBasis | None,
    readers: Readers,
    provenance: tuple[Ref, ...],
    dependencies: tuple[Dependency, ...],
) -> bytes:
    """The canonical text of a label; Unsafe when ``basis`` is None."""
    return b"".join(
        (
            b'{"dependencies":[',
            b",".join(map(_dependency_body, dependencies)),
            b'],"promptSafety":"unsafe"' if basis is None else b'],"promptSafety":"safe"',
            b',"provenance":[',
            b",".join(ref.body for ref in provenance),
            b'],"readers":',
            readers.body,
            b"" if basis is None else b',"safeBasis":"' + basis.encode() + b'"',
            b',"schemaVersion":1}',
        )
    )


def _dependencies(values: Iterable[Labelled], influence: Influence) -> Iterator[Dependency]:
    for value in values:
        safety: PromptSafety = "safe" if isinstance(value, Safe) else "unsafe"
        yield from value.dependencies
        for ref in value.provenance:
            yield Dependency(ref, influence, safety)


def _dependency_body(dependency: Dependency) -> bytes:
    return b"".join(
        (
            b'{"influence":"',
            dependency.influence.encode(),
            b'","promptSafetyAtUse":"',
            dependency.safety_at_use.encode(),
            b'","ref":',
            dependency.ref.body,
            b"}",
        )
    )
