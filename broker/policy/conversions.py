"""The only ways from Unsafe to Safe: an integer in a range, or an id from a closed registry.

A conversion makes text harmless, not the choice: whatever is registered can be chosen.
Nothing of the source's text is in the output, only a member of a language that was
fixed before. A source without an authentic label is never converted, and a registry is
asked for its own keys only.
"""

from hashlib import sha256
from typing import Final, Protocol, final

from broker.policy.canonical import (
    LabelError,
    Value,
    canonical_text,
    canonical_value,
)
from broker.policy.conversion_policy import (
    ConversionPolicy,
    IntegerOutput,
    RegisteredIdOutput,
)
from broker.policy.labels import (
    SEAL,
    Datum,
    Dependency,
    Ref,
    Safe,
    Unsafe,
    dependencies_of,
    is_authentic,
    label_body,
    merge_provenance,
)
from broker.policy.readers import intersect_readers
from protocol.decision_codes import LABEL_TEXT, DecisionReason
from protocol.errors import AirlockError

#: A list of more targets than a patch may touch is not a list that we make.
MAX_LIST_ITEMS: Final = 64


class ConversionRejected(AirlockError):
    """The value may not become Safe. ``reason`` is what the decision says; the gate denies."""

    def __init__(self, reason: DecisionReason) -> None:
        super().__init__(LABEL_TEXT["conversion_rejected"])
        self.reason: Final = reason


class Registered(Protocol):
    """A registry that a conversion asks: exact match, own keys only."""

    @property
    def registry_id(self) -> str:
        """The name by which policies know it."""

    @property
    def registry_digest(self) -> str:
        """64 hex digits over its content."""

    def find(self, candidate: str) -> str | None:
        """The id for exactly this text, or None."""


@final
class Converter:
    """The conversions of one request; it counts what each source has given already."""

    __slots__ = ("_outputs",)

    def __init__(self) -> None:
        self._outputs: Final[dict[tuple[str, str], int]] = {}

    def integer(self, source: Unsafe, *, policy: ConversionPolicy) -> Safe:
        """An integer within the policy's range, or ``selector_out_of_range``.

        A boolean, a fraction and text are none, however they compare.
        """
        _check_source(source)
        output, value = policy.output, source.value
        if not isinstance(output, IntegerOutput):
            raise LabelError("conversion_malformed")
        if type(value) is not int or not output.minimum <= value <= output.maximum:
            raise ConversionRejected("selector_out_of_range")
        return self._emit(source, policy, value, b"%d" % value)

    def registered_id(
        self, source: Unsafe, *, policy: ConversionPolicy, registry: Registered
    ) -> Safe:
        """The registered id for exactly the source's text, or ``selector_not_registered``."""
        _check_source(source)
        output, value = policy.output, source.value
        if (
            not isinstance(output, RegisteredIdOutput)
            or output.registry_id != registry.registry_id
            or output.registry_digest != registry.registry_digest
        ):
            raise LabelError("conversion_digest_mismatch")
        if type(value) is not str:
            raise ConversionRejected("selector_not_registered")
        found = registry.find(value)
        if found is None or len(value.encode()) > policy.maximum_source_bytes:
            raise ConversionRejected("selector_not_registered")
        return self._emit(source, policy, found, canonical_text(found))

    def _emit(self, source: Unsafe, policy: ConversionPolicy, value: Value, text: bytes) -> Safe:
        identity = _source_identity(source)
        key = (policy.conversion_id, identity)
        ordinal = self._outputs.get(key, 0)
        if ordinal >= policy.maximum_outputs:
            raise ConversionRejected("conversion_limit_exceeded")
        self._outputs[key] = ordinal + 1
        record = policy.record_id(identity, ordinal)
        datum = sha256(
            b'{"conversionRecordId":"%b","value":%b}' % (record.encode(), text)
        ).hexdigest()
        provenance, dependencies, label = _converted_label(source, policy)
        return Safe(
            SEAL,
            value,
            "atomic_conversion",
            source.readers,
            provenance,
            dependencies,
            policy.datum_body(record, datum, label, text),
            Datum(policy.output.kind, policy.conversion_id, policy.digest, record, datum),
        )


def safe_list(items: tuple[Safe, ...]) -> Safe:
    """A list of Safe values, Safe itself; readable by who may read every item.

    An item that is not an authentic Safe value is refused: a list launders nothing.
    """
    if any(not is_authentic(item) for item in items):
        raise LabelError("label_not_authentic")
    if any(type(item) is not Safe for item in items):
        raise LabelError("label_not_safe")
    if len(items) > MAX_LIST_ITEMS:
        raise ConversionRejected("conversion_limit_exceeded")
    value = tuple(item.value for item in items)
    readers = intersect_readers(item.readers for item in items)
    provenance = merge_provenance(items)
    dependencies = dependencies_of(items)
    label = label_body(
        basis="safe_operation", readers=readers, provenance=provenance, dependencies=dependencies
    )
    body = b"".join((b'{"label":', label, b',"value":', canonical_value(value), b"}"))
    return Safe(SEAL, value, "safe_operation", readers, provenance, dependencies, body)


def _check_source(source: Unsafe) -> None:
    if not is_authentic(source) or type(source) is not Unsafe:
        raise ConversionRejected("argument_not_authentic")


def _source_identity(source: Unsafe) -> str:
    """camel's ``kind:id:digest`` of the first artifact, or else of the first source.

    Neither a kind nor a digest holds a colon, so the first and the last one delimit.
    """
    found = source.provenance[0]
    if found.kind != "artifact" and (len(source.provenance) > 1 or source.dependencies):
        refs = (*source.provenance, *(dependency.ref for dependency in source.dependencies))
        found = next((ref for ref in refs if ref.kind == "artifact"), found)
    return f"{found.kind}:{found.id}:{found.digest or ''}"


def _converted_label(
    source: Unsafe, policy: ConversionPolicy
) -> tuple[tuple[Ref, ...], tuple[Dependency, ...], bytes]:
    """The label of what a conversion makes: its readers are the source's, never more."""
    refs = source.provenance
    if len(refs) == 1 and not source.dependencies:
        # What an agent wrote has one source and no history: the usual case, written out.
        (ref,) = refs
        label = b"".join(
            (
                b'{"dependencies":[{"influence":"data","promptSafetyAtUse":"unsafe","ref":',
                ref.body,
                b'}],"promptSafety":"safe","provenance":[',
                ref.body,
                b",",
                policy.ref.body,
                b'],"readers":',
                source.readers.body,
                b',"safeBasis":"atomic_conversion","schemaVersion":1}',
            )
        )
        return (ref, policy.ref), (Dependency(ref, "data", "unsafe"),), label
    provenance = tuple(dict.fromkeys((*refs, policy.ref)))
    dependencies = dependencies_of((source,))
    label = label_body(
        basis="atomic_conversion",
        readers=source.readers,
        provenance=provenance,
        dependencies=dependencies,
    )
    return provenance, dependencies, label
