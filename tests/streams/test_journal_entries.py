"""The journal as a broker may have it after faults: repeated, reordered, cut at its beginning, with a hole."""

from datetime import UTC, datetime, timedelta

import pytest

from rebalancer.adapters.streams.journal import entries
from rebalancer.adapters.streams.loader import Came
from rebalancer.adapters.translate import WireError, encode_journal
from rebalancer.core.stimuli import TermBegan

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


def came(*places: tuple[int, int]) -> list[Came]:
    """Records of (session, number), each of its own stimulus, at the offsets in which they are named."""
    made = []
    for offset, (session, number) in enumerate(places):
        now = BEGAN + timedelta(hours=session, seconds=number)
        topic, key, value, headers = encode_journal(TermBegan(100 * session + number), now, "c", session, number)
        made.append(Came(topic, 0, offset, key, value, tuple(headers)))
    return made


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param([(7, 0), (7, 1), (7, 2)], [700, 701, 702], id="as written"),
        pytest.param([(7, 0), (7, 1), (7, 0), (7, 1), (7, 2)], [700, 701, 702], id="a batch that came twice"),
        pytest.param([(7, 0), (7, 2), (7, 1)], [700, 701, 702], id="an entry that was overtaken"),
        pytest.param([(7, 8), (7, 9)], [708, 709], id="a journal that forgot its beginning"),
        pytest.param([(7, 0), (9, 0), (7, 1), (9, 1)], [700, 701, 900, 901], id="an old decider that still writes"),
        pytest.param([(0, 0), (0, 0)], [0, 0], id="entries of a release that did not count them"),
    ],
)
def test_entries_come_once_and_in_the_order_handled(written: list[tuple[int, int]], read: list[int]) -> None:
    found = [entry.stimulus for entry in entries(came(*written), "c")]
    assert found == [TermBegan(term) for term in read]


def test_a_hole_is_told_and_nothing_is_made_of_it() -> None:
    with pytest.raises(WireError, match="lacks entries 2 to 4 of session 7"):
        list(entries(came((7, 0), (7, 1), (7, 5)), "c"))
