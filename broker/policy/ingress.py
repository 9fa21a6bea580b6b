"""How a value gets its first label. An object that the broker holds, never something ambient.

There is no "mark this safe": text of the agent can only enter as ``quarantined_output``,
text of anything else outside as ``external``, and both are Unsafe. Whoever holds an
``Ingress`` can mint control-owned constants, so only the attempt's owner makes one.
"""

from types import MappingProxyType
from typing import final

from broker.policy.canonical import (
    LabelError,
    Value,
    canonical_text,
    canonical_value,
    close_value,
)
from broker.policy.labels import (
    SEAL,
    Dependency,
    Ref,
    Safe,
    SafeBasis,
    Unsafe,
    label_body,
)
from broker.policy.readers import Readers


@final
class Ingress:
    """The mint of labelled values."""

    __slots__ = ()

    def user_instruction(self, text: str, *, identity: str, readers: Readers) -> Safe:
        """What the user asked for."""
        return _safe(text, "user_instruction", Ref("user_instruction", identity), readers)

    def system_policy(self, text: str, *, identity: str, readers: Readers) -> Safe:
        """What the owner's policy says."""
        return _safe(text, "system_policy", Ref("system_policy", identity), readers)

    def constant(self, value: Value, *, identity: str, readers: Readers) -> Safe:
        """A control-owned constant; ``value`` is copied, and may hold nothing labelled."""
        return _safe(value, "harness_constant", Ref("harness", identity), readers)

    def file_handle(self, file_id: str, *, digest: str, size: int, readers: Readers) -> Safe:
        """The constant that stands for a file's content: whoever reads it needs its readers.

        Equal to ``constant`` of the same map, written out because every read has one.
        """
        ref = Ref("harness", f"handle.{file_id}")
        value: Value = MappingProxyType[str, Value](
            {"bytes": size, "contentDigest": digest, "fileId": file_id}
        )
        body = b"".join(
            (
                b'{"label":{"dependencies":[],"promptSafety":"safe","provenance":[',
                ref.body,
                b'],"readers":',
                readers.body,
                b',"safeBasis":"harness_constant","schemaVersion":1},"value":{"bytes":',
                b"%d" % size,
                b',"contentDigest":',
                canonical_text(digest),
                b',"fileId":',
                canonical_text(file_id),
                b"}}",
            )
        )
        return Safe(SEAL, value, "harness_constant", readers, (ref,), (), body)

    def external(
        self,
        value: Value,
        *,
        readers: Readers,
        provenance: tuple[Ref, ...],
        dependencies: tuple[Dependency, ...] = (),
    ) -> Unsafe:
        """Something from outside, with at least one source."""
        if not provenance:
            raise LabelError("label_identity_empty")
        return Unsafe(SEAL, close_value(value), readers, provenance, dependencies)

    def quarantined_output(
        self, value: Value, *, run_id: str, digest: str | None, readers: Readers
    ) -> Unsafe:
        """Something that the agent wrote. ``run_id`` is ``<attempt>/<request>/<field>``."""
        closed = value if type(value) is str else close_value(value)
        return Unsafe(SEAL, closed, readers, (Ref("quarantined_llm", run_id, digest),))


def _safe(value: Value, basis: SafeBasis, ref: Ref, readers: Readers) -> Safe:
    closed = close_value(value)
    label = label_body(basis=basis, readers=readers, provenance=(ref,), dependencies=())
    body = b"".join((b'{"label":', label, b',"value":', canonical_value(closed), b"}"))
    return Safe(SEAL, closed, basis, readers, (ref,), (), body)
