"""Plays a world story: a small simulated cluster under the engine and the actor, without Kafka.

The same scenario format as the simulator's. What happened is kept with its time; a second run under ``same_as``
(other faults, another mode) must decide the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from rebalancer.core.instructions import ClearAlert, RaiseAlert
from rebalancer.core.plan import Method, Plan
from rebalancer.core.units import Mode
from rebalancer.simulate.cluster import SimulatedCluster
from rebalancer.simulate.direct import Direct
from rebalancer.simulate.loading import load
from rebalancer.simulate.policies import policy_of
from tests.scenarios.memory import Played
from tests.scenarios.patterns import targets, within
from tests.scenarios.terms import Plain, TableError, Words, merged

Decision = tuple[str, str, str, str, str]
"""When, which pool, what, on whom, why."""


@dataclass(slots=True)
class Lived:
    """A whole run: what was told, the cluster afterwards, and which nodes were away at which step."""

    played: Played
    driver: Direct
    away: list[tuple[datetime, frozenset[str]]] = field(default_factory=list)

    @property
    def world(self) -> SimulatedCluster:
        """The simulated cluster, after the last step."""
        return self.driver.world


def live(data: Plain, mode: str = "act") -> Lived:
    """Live through a scenario; ``mode`` is act or shadow, for all pools."""
    scenario = load(data)
    words = Words(scenario.start, ZoneInfo(scenario.zone))
    driver = Direct(SimulatedCluster(scenario), policy_of(scenario, Mode(mode)), cluster=scenario.cluster, check=True)
    lived = Lived(Played(words), driver)
    while not driver.world.done():
        _step(lived)
    lived.played.pools.update(driver.pools)
    return lived


def _step(lived: Lived) -> None:
    driver, played = lived.driver, lived.played
    plans, outcomes = len(driver.told.plans), len(driver.told.outcomes)
    made = driver.step()
    now = driver.world.moment
    played.plans += [(now, plan) for plan in driver.told.plans[plans:]]
    played.outcomes += [(now, outcome) for outcome in driver.told.outcomes[outcomes:]]
    for item in made:
        if isinstance(item, RaiseAlert):
            played.alerts.append((now, item))
        elif isinstance(item, ClearAlert):
            played.cleared[item.id] = now
    marked = (node.name for node in driver.world.store.nodes.values() if node.loan is not None or _ours(node.taints))
    lived.away.append((now, frozenset(marked)))


def _ours(taints: Iterable[Any]) -> bool:
    return any(taint.key.startswith("gpu-rebalancer.io/") for taint in taints)


def complaints(expect: Plain, lived: Lived, data: Plain) -> Iterable[str]:
    """What is not as expected of the cluster itself, and against the other run."""
    world = expect.get("world", {})
    unknown = sorted(set(world) - {"summary", "away", "home", "untouched"})
    if unknown:
        raise TableError(f"world does not know {', '.join(unknown)}")
    if "summary" in world:
        summary = lived.world.summary()
        yield from (f"{k} is {summary[k]}, not {b}" for k, b in world["summary"].items() if not within(b, summary[k]))
    for row in world.get("home", ()):
        yield from _home(row, lived)
    for row in world.get("away", ()):
        if not within(row["nodes"], max(_between(row, lived), default=0)):
            yield f"at most {max(_between(row, lived), default=0)} nodes were away in {row}"
    if world.get("untouched") and any(nodes for _, nodes in lived.away):
        yield "nodes were touched"
    if "same_as" in expect:
        yield from _same(expect["same_as"], lived, data)


def _between(row: Plain, lived: Lived) -> list[int]:
    first, last = (lived.played.words.moment(value) for value in row["between"])
    return [len(nodes) for at, nodes in lived.away if first <= at <= last]


def _home(row: Plain, lived: Lived) -> Iterable[str]:
    """``by`` (and up to ``until``, else the end): nothing of ours on ``node`` (all nodes when none is named)."""
    words = lived.played.words
    first, last = words.moment(row["by"]), words.moment(row["until"]) if "until" in row else lived.away[-1][0]
    for at, nodes in lived.away:
        late = sorted(nodes & {row["node"]} if "node" in row else nodes)
        if first <= at <= last and late:
            yield f"at {at.astimezone(words.zone):%H:%M} {', '.join(late)} was not home"
            return


def _same(row: Plain, lived: Lived, data: Plain) -> Iterable[str]:
    other = merged(data, row.get("world", {}))
    mine, theirs = decisions(lived.played), _decided(json.dumps(other, default=str), row.get("mode", "act"))
    if row.get("until") == "first-loan":
        mine, theirs = _first_loans(mine), _first_loans(theirs)
    if not mine:
        yield "there is nothing to compare"
    if mine != theirs:
        odd = [pair for pair in zip([*mine, None], [*theirs, None], strict=False) if pair[0] != pair[1]]
        yield f"decided otherwise than in the other run ({len(mine)} and {len(theirs)} plans), first: {odd[0]}"


def decisions(played: Played) -> list[Decision]:
    """What runs are compared on."""
    return [
        (at.isoformat(), plan.pool, plan.method.value, _whom(plan), plan.because.reason.value)
        for at, plan in played.plans
    ]


def _whom(plan: Plan) -> str:
    parts = [f"{kind}:{','.join(sorted(targets(plan, kind)))}" for kind in ("lend", "close", "evict")]
    return " ".join(parts)


@cache
def _decided(data: str, mode: str) -> list[Decision]:
    """What another run decides: several stories are compared with the same clean one."""
    return decisions(live(json.loads(data), mode).played)


def _first_loans(found: list[Decision]) -> list[Decision]:
    """The decisions of each pool up to its first loan."""
    kept, lent = [], set()
    for decision in found:
        _, pool, method, _, _ = decision
        if pool not in lent:
            kept.append(decision)
        if method == Method.LEND.value:
            lent.add(pool)
    return kept
