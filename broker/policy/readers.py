"""Who may read a value: everyone, or a closed set of principals. It only ever narrows."""

from collections.abc import Iterable
from typing import Final, final

from broker.policy.canonical import LabelError, canonical_text, utf16


@final
class Readers:
    """Everyone (``members`` is None, see ``PUBLIC``) or these principals; none is nobody.

    ``body`` is the canonical text: the principals once each, in camel's order.
    """

    __slots__ = ("_set", "body", "members")

    body: bytes
    members: tuple[str, ...] | None
    _set: frozenset[str]

    def __init__(self, members: Iterable[str] | None) -> None:
        found = None if members is None else tuple(sorted(set(members), key=utf16))
        if found is None:
            body = b'{"kind":"public"}'
        else:
            if "" in found:
                raise LabelError("label_identity_empty")
            listed = b",".join(map(canonical_text, found))
            body = b'{"kind":"principals","principalIds":[' + listed + b"]}"
        object.__setattr__(self, "members", found)
        object.__setattr__(self, "_set", frozenset(found or ()))
        object.__setattr__(self, "body", body)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)

    def admit(self, principal: str) -> bool:
        """Whether ``principal`` may read; an exact match, or everyone may."""
        return self.members is None or principal in self._set

    def within(self, other: "Readers") -> bool:
        """Whether everyone who may read this may read ``other`` too."""
        if other.members is None:
            return True
        return self.members is not None and self._set <= other._set

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Readers) and self.members == other.members

    def __hash__(self) -> int:
        return hash(self.members)


PUBLIC: Final = Readers(None)
NOBODY: Final = Readers(())


def intersect_readers(readers: Iterable[Readers]) -> Readers:
    """Who may read all of them. Of nothing at all: nobody."""
    result: Readers | None = None
    for one in readers:
        if result is None or one.within(result):
            result = one
        elif not result.within(one):
            result = Readers(set(result.members or ()) & set(one.members or ()))
    return NOBODY if result is None else result
