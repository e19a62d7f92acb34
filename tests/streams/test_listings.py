"""Lists of foreign sources: only what was seen whole may say that something is gone."""

import pytest

from rebalancer.adapters.streams import listings
from rebalancer.adapters.streams.listings import Listing, Versions
from rebalancer.core.facts import Node
from rebalancer.core.stimuli import FactObserved
from tests.streams.things import NOW, node


def saw(listing: Listing, *uids: str) -> None:
    for uid in uids:
        listing.saw(FactObserved(node(uid), NOW))


def ended(listing: Listing) -> set[str] | None:
    found = listing.ended()
    return None if found is None else {one.fact.uid for one in found}


def test_a_list_whose_beginning_was_not_seen_says_nothing_and_the_next_one_does() -> None:
    listing = Listing("node", 1, whole=False)
    saw(listing, "a")
    assert ended(listing) is None
    saw(listing, "b")
    assert ended(listing) == {"b"}


def test_a_topic_read_from_its_beginning_has_its_first_list_whole() -> None:
    listing = Listing("node", 1, whole=True)
    saw(listing, "a", "b")
    listing.gone("b")
    assert ended(listing) == {"a"}
    assert ended(listing) == set()


def test_without_order_an_object_must_be_missing_twice() -> None:
    listing = Listing("node", 2, whole=False)
    assert [ended(listing), ended(listing)] == [None, None]
    saw(listing, "a", "b")
    assert ended(listing) == {"a", "b"}
    saw(listing, "a")
    assert ended(listing) == {"a", "b"}
    saw(listing, "a")
    assert ended(listing) == {"a"}


def test_a_break_spoils_the_list_under_way_only() -> None:
    listing = Listing("node", 1, whole=True)
    saw(listing, "a")
    listing.broke()
    assert ended(listing) is None
    assert ended(listing) == set()


def test_a_list_beyond_the_bound_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "OBJECTS", 2)
    listing = Listing("node", 1, whole=True)
    saw(listing, "a", "b", "c", "d")
    assert ended(listing) is None


def versioned(uid: str, version: str) -> Node:
    return Node(**{name: getattr(node(uid), name) for name in Node.__slots__} | {"resource_version": version})


def test_older_versions_are_not_fresh_and_unknown_ones_are() -> None:
    known = Versions()
    told = [known.fresh(versioned("a", version)) for version in ("9", "10", "10", "9", "", "x")]
    assert told == [True, True, True, False, True, True]


def test_the_dead_stay_dead_and_graves_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "GRAVES", 2)
    known = Versions()
    for uid in ("a", "b", "c"):
        known.bury(uid)
    assert [known.dead(uid) for uid in ("a", "b", "c", "d")] == [False, True, True, False]
