"""One line from bytes to a checked message, accepted or refused.

What is timed, inside one process on one CPU and in batches of the same line: for ours
``protocol.codec`` with all its checks (duplicate keys, depth, surrogates, numbers,
bounds, patterns); for the peers their decoder into types with similar bounds, without
those checks. A malformed line differs from the accepted one in one place.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

from tests.benchmarks.model import Goal, Measure, Row, Sizes, Subject, Unit
from tests.benchmarks.processes import own_python, peer_python, peer_version, single

OURS: Final = "airlock"

#: The length of the line that the design's figures were taken on.
SMALL_BYTES: Final = 157

SMALL: Final = (
    '{"v":1,"type":"tool.request","requestId":"request-0000001","tool":"read_file",'
    '"input":{"path":"src/package/reading/modules.py","startLine":1,"maxLines":200}}'
)

#: Flaw to the accepted line with it.
MALFORMED: Final = {
    "duplicate key": SMALL.replace('"maxLines":', '"startLine":'),
    "unknown field": SMALL.replace('"tool":', '"taal":"x","tool":'),
    "wrong type": SMALL.replace('"request-0000001"', "1234567"),
    "cut off": SMALL[:-2],
    "lone surrogate": SMALL.replace("module", "modu\\ud800"),
    "unsafe integer": SMALL.replace("200", "9007199254740993"),
    "too deep": SMALL.replace("200", "[" * 70 + "]" * 70),
    "not UTF-8": SMALL,  # made when it is bytes
}

SMALL_BATCH: Final = 200
LARGE_BATCH: Final = 2


def rows(sizes: Sizes) -> Iterator[Row]:
    """Short and large accepted messages, and short malformed ones."""
    with tempfile.TemporaryDirectory(prefix="airlock-bench-") as name:
        folder = Path(name)
        small = SMALL.encode()
        assert len(small) == SMALL_BYTES
        yield Row(
            name=f"decode + validate, {SMALL_BYTES} bytes",
            unit=Unit.MICROSECONDS,
            subjects=tuple(_subjects(folder, "small", small, SMALL_BATCH, sizes.batches)),
            goals=(Goal(subject=OURS, bound=3.0),),
            rounds=15,
            work=SMALL_BATCH,
        )
        large = large_message(sizes.large_message)
        yield Row(
            name=f"decode + validate, {len(large) / 1e6:.2f} MB",
            unit=Unit.MEGABYTES_PER_SECOND,
            subjects=tuple(_subjects(folder, "large", large, LARGE_BATCH, 3)),
            goals=(Goal(subject=OURS, bound=100.0),),
            rounds=7,
            work=len(large) * LARGE_BATCH,
        )
        yield _malformed_row(folder, small, sizes.batches)


def large_message(size: int) -> bytes:
    """An inference request of about ``size`` bytes: a conversation with source text in it."""
    text = "".join(f'    if value[{n}] == "item-{n}":\n\treturn {n} * 2\n' for n in range(40))
    turn = {"role": "user", "content": [{"type": "text", "text": text}]}
    turns = max(1, size // len(json.dumps(turn)))
    message = {
        "v": 1,
        "type": "inference.request",
        "requestId": "request-0000001",
        "api": "anthropic.messages",
        "model": "main",
        "stream": True,
        "body": {"model": "main", "max_tokens": 1024, "messages": [turn] * turns},
    }
    return json.dumps(message, separators=(",", ":")).encode()


def _subjects(folder: Path, name: str, line: bytes, batch: int, batches: int) -> Iterator[Subject]:
    file = folder / name
    file.write_bytes(line)

    def own(label: str, program: str, *arguments: str, ours: bool = False) -> Subject:
        command = own_python(program, file, batch, *arguments)
        opening = partial(single, command, times=batches, samples=batches)
        return Subject(name=label, open=opening, ours=ours)

    def peer(label: str, program: str, needs: str) -> Subject:
        return Subject(name=label, open=partial(_open_peer, program, needs, file, batch, batches))

    yield own(OURS, "decode_airlock.py", "accepted", ours=True)
    yield own("msgspec, untyped", "decode_msgspec.py", "untyped")
    yield own("msgspec, typed union", "decode_msgspec.py", "typed")
    yield peer(f"pydantic {peer_version('pydantic')}".strip(), "decode_pydantic.py", "pydantic")
    yield peer("json + jsonschema", "decode_jsonschema.py", "jsonschema")


def _open_peer(
    program: str, needs: str, file: Path, batch: int, batches: int
) -> AbstractContextManager[Measure]:
    command = peer_python(program, file, batch, needs=needs)
    return single(command, times=batches, samples=batches)


def _malformed_row(folder: Path, accepted: bytes, batches: int) -> Row:
    lines = {flaw: text.encode() for flaw, text in MALFORMED.items()}
    lines["not UTF-8"] = lines["not UTF-8"].replace(b"module", b"modul\xff")
    subjects = [_own_line(folder, OURS, accepted, "accepted", batches)]
    subjects += [_own_line(folder, flaw, line, "refused", batches) for flaw, line in lines.items()]
    return Row(
        name=f"refuse a malformed line of {SMALL_BYTES} bytes",
        unit=Unit.MICROSECONDS,
        subjects=tuple(subjects),
        goals=tuple(Goal(subject=flaw, bound=3.0, against=OURS) for flaw in lines),
        rounds=15,
        work=SMALL_BATCH,
    )


def _own_line(folder: Path, name: str, line: bytes, expected: str, batches: int) -> Subject:
    file = folder / name.replace(" ", "-")
    file.write_bytes(line)
    command = own_python("decode_airlock.py", file, SMALL_BATCH, expected)
    return Subject(
        name=name, open=partial(single, command, times=batches, samples=batches), ours=name == OURS
    )
