"""Pipelined reads: 64 requests of 200-byte texts in flight, answers in any order.

What is timed, in the asker: all requests of a round, from the first write until the last
answer is read, both ends on one CPU; as soon as answers arrive, as many requests follow.
"""

from collections.abc import Iterator

from tests.benchmarks.model import Goal, Row, Sizes, Unit
from tests.benchmarks.round_trip import OURS, acp_name, mcp_name, our_subject, peer_subjects

#: Above the default of ``maxInFlight``; our end raises that limit to it.
WINDOW = 64

TEXT_BYTES = 200


def rows(sizes: Sizes) -> Iterator[Row]:
    """One row."""
    peers = tuple(peer_subjects(TEXT_BYTES, window=WINDOW, times=sizes.pipelined))
    yield Row(
        name="pipelined reads, 64 in flight, 200 B",
        unit=Unit.PER_SECOND,
        subjects=(our_subject(TEXT_BYTES, window=WINDOW, times=sizes.pipelined), *peers),
        goals=(
            Goal(subject=OURS, bound=4.0, against=acp_name()),
            Goal(subject=OURS, bound=40.0, against=mcp_name()),
        ),
        rounds=7,
        work=sizes.pipelined,
    )
