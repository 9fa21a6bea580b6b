"""Binary parts: read as git writes them, bounded while they inflate, and never believed."""

import base64
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.stage import base85
from broker.stage.binary_patch import Malformed, apply_part, git_id
from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_plan import AGENT_BOUNDS, BinaryChange, BinaryPart, PatchRefusal
from broker.stage.store import BlobStore
from tests.stage.patches import code, files_of, git_applies, patched, scratch_store, tree_of

ABSENT = b"0" * 40


@pytest.fixture(scope="module")
def store() -> Iterator[BlobStore]:
    with scratch_store() as store:
        yield store


def part(data: bytes, *, kind: bytes = b"literal", size: int | None = None) -> bytes:
    """``data`` as git writes a part; ``size`` is what the part says of itself."""
    packed = zlib.compress(data)
    lines = [b"%b %d" % (kind, len(data) if size is None else size)]
    for at in range(0, len(packed), 52):
        chunk = packed[at : at + 52]
        letter = chr(len(chunk) + 64 if len(chunk) <= 26 else len(chunk) + 70).encode()
        lines.append(letter + base64.b85encode(chunk, pad=True))
    return b"\n".join(lines) + b"\n\n"


def change(old: bytes | None, new: bytes | None, *parts: bytes, like: bytes = ABSENT) -> bytes:
    """A whole binary patch of the file ``x``."""
    zeros = b"0" * len(like)
    old_id = zeros if old is None else git_id(old, like=like)
    new_id = zeros if new is None else git_id(new, like=like)
    kind = b"new file mode 100644\n" if old is None else b""
    kind = b"deleted file mode 100644\n" if new is None else kind
    index = b"index %b..%b\n" % (old_id, new_id)
    return b"diff --git a/x b/x\n" + kind + index + b"GIT binary patch\n" + b"".join(parts)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=300))
def test_base85_is_that_of_the_standard_library(data: bytes) -> None:
    data += bytes(-len(data) % 4)

    assert base85.decode(base64.b85encode(data)) == data


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters(max_codepoint=127), max_size=40).map(str.encode))
def test_what_is_no_base85_is_refused_like_there(text: bytes) -> None:
    text = text[: len(text) // 5 * 5]
    try:
        expected = base64.b85decode(text)
    except ValueError:
        expected = None

    assert base85.decode(text) == expected


@pytest.mark.parametrize("like", [b"0" * 40, b"0" * 64], ids=["sha1", "sha256"])
@pytest.mark.parametrize(
    ("old", "new"),
    [(b"\0old", b"\0new"), (None, b"\0new"), (b"\0old", None), (b"\0old", b""), (b"", b"\0")],
)
def test_stock_git_agrees_on_literals(
    store: BlobStore, old: bytes | None, new: bytes | None, like: bytes
) -> None:
    before = {"keep": b"k\n"} | ({} if old is None else {"x": old})
    patch = change(old, new, part(new or b""), part(old or b""), like=like)
    kind = "sha1" if len(like) == 40 else "sha256"

    assert files_of(patched(tree_of(store, before), patch)) == git_applies(
        before, patch, object_format=kind
    )


def test_a_part_that_lies_is_malformed(store: BlobStore) -> None:
    tree = tree_of(store, {"x": b"\0old"})
    new, back = b"\0new", part(b"\0old")
    good = change(b"\0old", new, part(new), back)
    assert code(tree, good) is None
    for bad in (
        change(b"\0old", new, part(new, size=3), back),
        change(b"\0old", new, part(new, size=5), back),
        change(b"\0old", new, part(b"\0other"), back),
        change(b"\0old", new, part(new), part(b"\0not it")),
        change(b"\0old", new, part(new)[:-1]),
        change(b"\0old", new, part(new).replace(b"literal", b"delta"), back),
        good.replace(b"GIT binary patch", b"GIT binary patch "),
        good.replace(b"literal 4\n", b"literal 4\n\n", 1),
        good.replace(b"literal 4", b"literal 04", 1),
        good[: good.index(b"literal")],
        good + b"literal 4\nabc\n\n",
    ):
        assert code(tree, bad) == "patch_malformed", bad


def test_ids_must_be_whole_and_true(store: BlobStore) -> None:
    tree = tree_of(store, {"x": b"\0old"})
    old, new = git_id(b"\0old", like=ABSENT), git_id(b"\0new", like=ABSENT)
    good = change(b"\0old", b"\0new", part(b"\0new"), part(b"\0old"))
    assert code(tree, good.replace(old, old[:12])) == "patch_malformed"
    assert code(tree, good.replace(new, ABSENT)) == "patch_malformed"
    assert code(tree, good.replace(old, ABSENT)) == "patch_malformed"
    assert code(tree, good.replace(old, new)) == "patch_conflict"
    assert code(tree_of(store, {"x": b"\0else"}), good) == "patch_conflict"
    assert code(tree_of(store, {}), good) == "patch_conflict"


def test_a_binary_deletion_must_show_what_it_deletes(store: BlobStore) -> None:
    tree = tree_of(store, {"x": b"\0old"})
    assert code(tree, change(b"\0old", None, part(b""), part(b"\0old"))) is None
    assert code(tree, change(b"\0old", None, part(b""))) == "patch_malformed"
    assert code(tree, change(b"\0old", None, part(b"\0rest"), part(b"\0old"))) is not None


def test_a_bomb_is_refused_without_being_inflated(store: BlobStore) -> None:
    bound = AGENT_BOUNDS.inflated_bytes
    huge = part(bytes(bound + 1))
    assert len(huge) < 60_000
    patch = change(None, bytes(bound + 1), huge)
    tree = tree_of(store, {})
    tracemalloc.start()
    assert code(tree, patch) == "patch_binary_too_large"
    assert code(tree, patch.replace(b"literal %d" % (bound + 1), b"literal 5")) == "patch_malformed"
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()


def test_the_bound_is_on_all_parts_together(store: BlobStore) -> None:
    half = AGENT_BOUNDS.inflated_bytes // 2 + 1
    one = change(None, bytes(half), part(bytes(half)))
    tree = tree_of(store, {})
    assert code(tree, one) is None
    assert code(tree, one + one.replace(b"/x", b"/y")) == "patch_binary_too_large"


def delta(source: int, result: int, *commands: bytes) -> bytes:
    def number(value: int) -> bytes:
        low = bytes((value & 0x7F,))
        return low if value < 0x80 else bytes((value & 0x7F | 0x80,)) + number(value >> 7)

    return number(source) + number(result) + b"".join(commands)


def test_a_delta_that_makes_too_much_is_refused_before_it_runs(store: BlobStore) -> None:
    old = b"\0" * 65_536
    commands = [b"\x80"] * (AGENT_BOUNDS.inflated_bytes // 65_536 + 1)
    result = 65_536 * len(commands)
    patch = change(old, bytes(result), part(delta(65_536, result, *commands), kind=b"delta"))

    assert code(tree_of(store, {"x": old}), patch) == "patch_binary_too_large"


def test_deltas_are_bounded_by_their_instructions_too() -> None:
    size = AGENT_BOUNDS.delta_bytes + 1
    patch = change(b"", b"\0", part(bytes(size), kind=b"delta"))
    (file,) = parse_patch(patch).files

    assert isinstance(file.change, BinaryChange)
    assert file.change.over_bounds


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x80" * 20, id="number without end"),
        pytest.param(delta(3, 1, b"\x01x"), id="another source"),
        pytest.param(delta(4, 2, b"\x01x"), id="too little"),
        pytest.param(delta(4, 1, b"\x02xy"), id="too much"),
        pytest.param(delta(4, 4, b"\x04x"), id="insert cut short"),
        pytest.param(delta(4, 1, b"\x00"), id="reserved command"),
        pytest.param(delta(4, 5, b"\x90\x05"), id="copy past the end"),
        pytest.param(delta(4, 2, b"\x91\x03\x02"), id="copy from near the end"),
        pytest.param(delta(4, 65_536, b"\x80"), id="copy of the default size"),
        pytest.param(delta(4, 2, b"\x91\x03"), id="copy cut short"),
        pytest.param(delta(4, 1, b"\x01x", b"\x01y"), id="more commands"),
    ],
)
def test_a_wrong_delta_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        apply_part(BinaryPart(kind="delta", body=body), b"abcd")


def test_a_right_delta_is_applied() -> None:
    body = delta(4, 7, b"\x90\x02", b"\x03xyz", b"\x91\x02\x02")

    assert apply_part(BinaryPart(kind="delta", body=body), b"abcd") == b"abxyzcd"


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=60), source=st.binary(max_size=20))
def test_any_delta_gives_bytes_or_is_malformed(body: bytes, source: bytes) -> None:
    with suppress(Malformed):
        assert len(apply_part(BinaryPart(kind="delta", body=body), source)) < 1 << 63


def test_two_hash_functions_do_not_mix(store: BlobStore) -> None:
    old, new = b"\0old", b"\0new"
    patch = change(old, new, part(new), part(old))
    mixed = patch.replace(git_id(new, like=ABSENT), git_id(new, like=b"0" * 64))
    with pytest.raises(PatchRefusal) as refused:
        parse_patch(mixed)
    assert refused.value.code == "patch_malformed"
