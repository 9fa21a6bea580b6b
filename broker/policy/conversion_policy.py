"""What a conversion is: fixed, checked and digested before any value is seen.

The digest is camel's, so both sides agree on which policy made a value Safe. Nothing is
converted here.
"""

import hashlib
from dataclasses import dataclass
from typing import Final, Literal, final

from broker.policy.canonical import (
    MAX_SAFE_INTEGER,
    LabelError,
    Value,
    canonical_text,
    canonical_value,
)
from broker.policy.labels import Ref

#: Longest text that an integer has anyway; camel's policies state it as a source bound.
INTEGER_SOURCE_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerOutput:
    """An integer from ``minimum`` to ``maximum``, both included."""

    minimum: int
    maximum: int
    kind: Literal["integer"] = "integer"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredIdOutput:
    """The id that the registry of this id and digest (64 hex digits) has for the text."""

    registry_id: str
    registry_digest: str
    kind: Literal["registered_id"] = "registered_id"


@final
class ConversionPolicy:
    """One conversion, fixed and digested before any value is seen.

    ``digest`` is camel's: sha256 in hex over the canonical policy. Raises ``LabelError``
    when the policy is not of its form.
    """

    __slots__ = (
        "_middle", "_record", "_start", "conversion_id", "digest", "maximum_outputs",
        "maximum_source_bytes", "output", "ref", "version",
    )  # fmt: skip

    def __init__(
        self,
        conversion_id: str,
        *,
        output: IntegerOutput | RegisteredIdOutput,
        maximum_source_bytes: int,
        version: int = 1,
        maximum_outputs: int = 1,
    ) -> None:
        self.conversion_id: Final = conversion_id
        self.version: Final = version
        self.output: Final = output
        self.maximum_source_bytes: Final = maximum_source_bytes
        self.maximum_outputs: Final = maximum_outputs
        _check_policy(self)
        self.digest: Final = hashlib.sha256(policy_body(self)).hexdigest()
        self.ref: Final = Ref("converter", conversion_id, self.digest)
        name, digest = canonical_text(conversion_id), self.digest.encode()
        kind = output.kind.encode()
        self._record: Final = b'{"conversionId":' + name + b',"digest":"' + digest + b'","ordinal":'
        self._start: Final = b"".join(
            (
                b'{"conversionDigest":"',
                digest,
                b'","conversionId":',
                name,
                b',"conversionRecordId":"',
            )
        )
        self._middle: Final = b'","kind":"' + kind + b'","label":'

    def record_id(self, identity: str, ordinal: int) -> str:
        """camel's conversion record id for the ``ordinal``-th output of one source."""
        text = b'%b%d,"source":%b}' % (self._record, ordinal, canonical_text(identity))
        return hashlib.sha256(text).hexdigest()

    def datum_body(self, record: str, datum: str, label: bytes, value: bytes) -> bytes:
        """The canonical text of an output of this policy."""
        return b"".join(
            (
                self._start, record.encode(), b'","datumId":"', datum.encode(), self._middle,
                label, b',"value":', value, b"}",
            )
        )  # fmt: skip


def policy_body(policy: ConversionPolicy) -> bytes:
    """The canonical text of a policy, without its digest."""
    output: dict[str, Value]
    match policy.output:
        case IntegerOutput(minimum=minimum, maximum=maximum):
            output = {"kind": "integer", "minimum": minimum, "maximum": maximum}
        case RegisteredIdOutput(registry_id=registry_id, registry_digest=registry_digest):
            output = {
                "kind": "registered_id",
                "registryId": registry_id,
                "registryDigest": registry_digest,
            }
    return canonical_value(
        {
            "conversionId": policy.conversion_id,
            "version": policy.version,
            "output": output,
            "maximumSourceBytes": policy.maximum_source_bytes,
            "maximumOutputsPerArtifact": policy.maximum_outputs,
            "presentation": "json_scalar",
        }
    )


def _check_policy(policy: ConversionPolicy) -> None:
    output = policy.output
    well_formed = (
        policy.conversion_id != ""
        and 1 <= policy.version <= MAX_SAFE_INTEGER
        and 0 <= policy.maximum_source_bytes <= MAX_SAFE_INTEGER
        and 1 <= policy.maximum_outputs <= MAX_SAFE_INTEGER
    )
    match output:
        case IntegerOutput():
            well_formed = well_formed and (
                -MAX_SAFE_INTEGER <= output.minimum <= output.maximum <= MAX_SAFE_INTEGER
            )
        case RegisteredIdOutput():
            well_formed = well_formed and "" not in (output.registry_id, output.registry_digest)
    if not well_formed:
        raise LabelError("conversion_malformed")
