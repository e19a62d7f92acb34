"""Act's own count of nodes touched: many small plans are as much as one large one, and a decider is never refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rebalancer.core.plan import Method, Plan, RestoreNode
from rebalancer.core.policy import Pace
from rebalancer.core.protocol.caps import SLACK, Caps
from rebalancer.core.reasons import Reason
from tests.core.protocol.fake import POLICY, T0, Driver, lend_step, lending_cluster, plan_of

PACE = Pace(nodes_per_pool=4, nodes_per_cluster=6)


def lending(*names: str, pool: str = "infer-a100", **changes: Any) -> Plan:
    return replace(plan_of(*map(lend_step, names), pressing=False), pool=pool, **changes)


def taken(caps: Caps, plan: Plan, seconds: float = 0.0) -> bool:
    now = T0 + timedelta(seconds=seconds)
    if caps.over(plan, PACE, now) is not None:
        return False
    caps.accepted(plan, now)
    return True


def test_many_small_plans_are_as_much_as_one_large_one() -> None:
    names = [f"n{number:02}" for number in range(POLICY.pace.nodes_per_pool + 3)]
    driver = Driver(lending_cluster(*names))
    for name in names:
        driver.feed(replace(plan_of(lend_step(name)), id=f"plan-{name}"))
    driver.run()
    refused = [one for one in driver.finals() if one.because.reason is Reason.CAP]
    assert len(refused) == 3


def test_a_pools_cap_and_the_clusters_both_hold_and_end_with_their_span() -> None:
    caps = Caps()
    assert taken(caps, lending("a", "b", "c"))
    assert not taken(caps, lending("d", "e"))
    assert taken(caps, lending("f", "g", "h", pool="other"))
    assert not taken(caps, lending("i", pool="third")), "the cluster's"
    later = PACE.per.total_seconds()
    assert not taken(caps, lending("d", "e"), later - SLACK.total_seconds() - 1)
    assert taken(caps, lending("d", "e"), later - SLACK.total_seconds())


def test_what_presses_is_never_refused_and_counts_where_the_decider_counts_it() -> None:
    caps = Caps()
    assert taken(caps, lending("a", "b", "c", "d", "e", pressing=True, method=Method.RETURN))
    assert taken(caps, lending("a", "b"))
    assert taken(caps, lending("c", "d", "e", pressing=True, method=Method.RECLAIM))
    assert not taken(caps, lending("f"))


def test_an_actor_that_begins_anew_counts_what_it_did_when_it_did_it() -> None:
    """Every plan of the last hours is fed to it again, with what was told of them."""
    names = [f"n{number:02}" for number in range(POLICY.pace.nodes_per_pool)]
    cluster = lending_cluster(*names, "new")
    before = Driver(cluster)
    old = [replace(plan_of(lend_step(name)), id=f"plan-{name}") for name in names]
    before.feed(*old)
    before.run()
    cluster.move(cluster.now + POLICY.pace.per)
    after = Driver(cluster)
    after.actor.adopt(before.outcomes)
    now = cluster.now
    new = replace(plan_of(lend_step("new")), id="plan-new", made_at=now, valid_until=now + POLICY.pace.per)
    after.feed(*old, new)
    after.run()
    assert not [one for one in after.finals() if one.because.reason is Reason.CAP]


def test_what_neither_lends_nor_closes_counts_nothing() -> None:
    caps = Caps()
    home = plan_of(RestoreNode("", "uid-n1", "n1", T0), method=Method.RETURN, pressing=False)
    assert all(taken(caps, home) for _ in range(20))


@given(st.lists(st.tuples(st.floats(1, 300), st.integers(1, 4), st.floats(0, 59)), max_size=40))
def test_a_decider_that_keeps_to_the_caps_is_never_refused(moves: list[tuple[float, int, float]]) -> None:
    """Plans made within the caps, each arriving up to a minute after it was made."""
    caps, made, now, arrived = Caps(), list[tuple[float, int]](), 0.0, 0.0
    for number, (wait, nodes, delay) in enumerate(moves):
        now += wait
        lately = sum(count for at, count in made if now - at < PACE.per.total_seconds())
        if lately + nodes > PACE.nodes_per_pool:
            continue
        made.append((now, nodes))
        arrived = max(arrived, now + delay)
        assert taken(caps, lending(*(f"{number}-{one}" for one in range(nodes))), arrived)
