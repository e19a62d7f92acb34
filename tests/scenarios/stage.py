"""Plays an engine table: a small fleet, a timeline, an honest telemetry, and what the engine makes of it.

The clock moves in steps (``every`` seconds); in each, events fall due, the perfect actor and the scheduler move, the
verdicts that changed are told, plans are made once. The invariants are checked after every stimulus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from rebalancer.adapters.policyfile import PolicyRefused as Refused
from rebalancer.adapters.policyfile import parse_policy
from rebalancer.core.engine import Engine
from rebalancer.core.facts import Node, Pod
from rebalancer.core.instructions import PublishPlan, WorkloadRecord
from rebalancer.core.plan import Plan
from rebalancer.core.stimuli import (
    Approved,
    DemandReported,
    Fact,
    FactDeleted,
    FactObserved,
    HeartbeatHeard,
    PolicyAdopted,
    PolicyRefused,
    RecallRequested,
    Restored,
    StreamLagged,
    TermBegan,
    TimePassed,
    VerdictGiven,
)
from rebalancer.core.telemetry import DemandSample, Heartbeat, Verdict
from rebalancer.core.units import Activity
from tests.scenarios import terms
from tests.scenarios.hands import PerfectActor, schedule
from tests.scenarios.memory import Memory, Played
from tests.scenarios.terms import Plain, TableError, Words, merged

DEFAULTS: Plain = {
    "start": datetime(2026, 3, 2, 22, 0, tzinfo=UTC), "zone": "UTC", "every": 60, "actor": "perfect", "scheduler": True,
    "pools": [{"name": "infer-a100"}], "policy": {"signals": {"headroom_prior_share": 0.0, "bucket": 3600}},
}  # fmt: skip
"""What a table need not say. No headroom unless asked for: no prior, and buckets too long to learn from minutes."""
LOAD = 0.6
"""Utilisation of a GPU that a pod holds, unless a table says otherwise: below the target, so demand is what is held."""


class Stage:
    """One table being played."""

    def __init__(self, table: Plain) -> None:
        table = merged(DEFAULTS, table)
        zone, start = ZoneInfo(table["zone"]), table["start"]
        self.words = Words((start if start.tzinfo else start.replace(tzinfo=zone)).astimezone(UTC), zone)
        self.rig = Memory(self.words, table)
        self._table = table
        self._every = timedelta(seconds=table["every"])
        self._load = table.get("load", LOAD)
        acts = table["actor"]
        if acts not in ("perfect", "none"):
            raise TableError(f"no actor {acts!r}")
        self._actor = PerfectActor(self.rig, table.get("hanging", ()), resubmit=table.get("resubmit", False))
        self._acts, self._schedules = acts == "perfect", table["scheduler"]
        self._pinned: dict[str, Plain] = {}
        self._said: dict[str, Verdict] = {}
        self._telemetry = "alive"
        self._demand: dict[str, float] = {}
        self._events = sorted(table.get("timeline", ()), key=lambda event: self.words.minutes(event["at"]))
        self._known: Mapping[str, Callable[[Any], None]] = {
            "see": self._see, "late": self._late, "gone": self._gone, "change": self._change, "judge": self._judge,
            "telemetry": self._hear, "demand": self._demand.update, "policy": self._policy, "policy_file": self._file,
            "lag": self._lag, "recall": self._recall, "approve": self._approve, "restart": self._restart,
            "control": lambda control: self._see({"control": control}),
        }  # fmt: skip

    def play(self) -> Played:
        """From the start to ``until``."""
        self.rig.sync(*terms.facts(self.words, self._table))
        self._remember()
        self._judge_all(self._table.get("judge", ()))
        end = self.words.moment(self._table["until"])
        while self.rig.now <= end:
            self._step()
            self.rig.now += self._every
        self.rig.now -= self._every
        return self.rig.played

    def _remember(self) -> None:
        rows = self._table.get("workloads", ())
        if rows:
            made = [WorkloadRecord(row["workload"], row["workload"].partition("/")[0]) for row in rows]
            records = tuple(self.words.changed(base, row) for base, row in zip(made, rows, strict=True))
            self.rig.tell(Restored((), records, (), (), (), synced=True, at=self.rig.now))

    def _step(self) -> None:
        while self._events and self.words.moment(self._events[0]["at"]) <= self.rig.now:
            event = dict(self._events.pop(0))
            del event["at"]
            for verb, value in event.items():
                if verb not in self._known:
                    raise TableError(f"no event {verb!r}; known are {', '.join(self._known)}")
                self._known[verb](value)
        if self._acts:
            self._actor.advance()
        if self._schedules:
            schedule(self.rig)
        self._sense()
        for plan in self._plans():
            if self._acts:
                self._actor.take(plan)

    def _plans(self) -> list[Plan]:
        return [item.plan for item in self.rig.tell(TimePassed()) if isinstance(item, PublishPlan)]

    # -- telemetry -------------------------------------------------------------------------------------------

    def _sense(self) -> None:
        if self._telemetry == "alive":
            for node in list(self.rig.engine.state.inventory.nodes.values()):
                self._say(node)
            self.rig.tell(HeartbeatHeard(Heartbeat("w", self.rig.now, (0,), 1, 0.0)))
        for pool, gpus in self._demand.items():
            self.rig.tell(DemandReported(DemandSample(pool, gpus, self.rig.now)))

    def _say(self, node: Node) -> None:
        held = self.rig.engine.state.inventory.held(node)
        pinned = self._pinned.get(node.name, {})
        activity = Activity(pinned.get("activity", Activity.BUSY if held else Activity.IDLE))
        level = pinned.get("utilisation", 0.0 if activity is Activity.IDLE else round(self._load * held, 3))
        before = self._said.get(node.uid)
        began = self.rig.now - timedelta(hours=1) if self.rig.now <= self.words.start else self.rig.now
        since = before.since if before else began
        if before is not None and before.activity is not activity:
            since = self.rig.now
        used = None if activity is Activity.UNKNOWN else level
        verdict = Verdict(node.uid, activity, used, node.gpus, since, self.rig.now, why=pinned.get("why", ""))
        if before is None or replace(verdict, at=before.at) != before:
            self._said[node.uid] = verdict
            self.rig.tell(VerdictGiven(verdict))

    def _judge_all(self, rows: Any) -> None:
        for row in rows:
            self._judge(row)

    def _judge(self, row: Plain) -> None:
        given = {key: value for key, value in row.items() if key != "nodes"}
        for name in terms.names(row["nodes"]):
            if given.get("activity") == "honest":
                self._pinned.pop(name, None)
            else:
                self._pinned[name] = given

    def _hear(self, state: str) -> None:
        if state not in ("alive", "stale"):
            raise TableError(f"telemetry is alive or stale, not {state!r}")
        self._telemetry = state

    # -- events ----------------------------------------------------------------------------------------------

    def _see(self, table: Plain) -> None:
        for _ in range(table.get("times", 1)):
            self.rig.see(*terms.facts(self.words, table))

    def _late(self, table: Plain) -> None:
        """Facts that happened ``minutes`` ago."""
        at = self.rig.now - timedelta(minutes=table["minutes"])
        self.rig.tell(*(FactObserved(fact, at) for fact in terms.facts(self.words, table)))

    def _named(self, called: Any) -> list[Pod | Node]:
        inventory, wanted = self.rig.engine.state.inventory, set(terms.names(called))
        objects: list[Pod | Node] = [*inventory.pods.values(), *inventory.nodes.values()]
        return [item for item in objects if item.name in wanted or item.uid in wanted]

    def _gone(self, called: Any) -> None:
        found = self._named(called)
        for item in found:
            self.rig.lose("pod" if isinstance(item, Pod) else "node", item.uid)
        known = {name for item in found for name in (item.uid, item.name)}
        for uid in (name for name in terms.names(called) if name not in known):
            self.rig.tell(FactDeleted("pod", uid, self.rig.now))

    def _change(self, row: Plain) -> None:
        given = {key: value for key, value in row.items() if key != "names"}
        self.rig.see(*(self.words.changed(item, given) for item in self._named(row["names"])))

    def _policy(self, changes: Plain) -> None:
        table = merged(self._table, changes)
        chosen = terms.policy(self.words, table["pools"], table["policy"])
        self.rig.tell(PolicyAdopted(chosen, "changed"))

    def _file(self, text: str) -> None:
        try:
            chosen = parse_policy(text)
        except Refused as refused:
            self.rig.played.flaws += [str(flaw) for flaw in refused.flaws]
            self.rig.tell(PolicyRefused(str(refused), self.rig.now))
        else:
            self.rig.tell(PolicyAdopted(chosen, "file"))

    def _lag(self, row: Plain) -> None:
        self.rig.tell(StreamLagged(row["behind"], row.get("seconds", 0.0)))

    def _recall(self, row: Plain) -> None:
        self.rig.tell(RecallRequested(row["scope"], row.get("target", ""), row.get("by", "ops"), self.rig.now))

    def _approve(self, by: str) -> None:
        waiting = [plan for _, plan in self.rig.played.plans if plan.awaits_approval]
        answers = self.rig.tell(Approved(waiting[-1].id, by, self.rig.now))
        for item in answers:
            if isinstance(item, PublishPlan) and self._acts:
                self._actor.take(item.plan)

    def _restart(self, _row: Plain) -> None:
        """A new engine under a new term, from our own records, the last plans and a full list."""
        old, kept, told = self.rig.engine.state, self.rig.kept, self.rig.played
        facts: list[Fact] = [*old.inventory.nodes.values(), *old.inventory.pods.values(), old.inventory.control]
        budgets = old.inventory.budgets.all()
        self.rig.engine = Engine("test", old.policy)
        self.rig.tell(TermBegan(old.term + 1))
        self.rig.tell(Restored(
            tuple(item.loan for item in kept.loans.values()),
            tuple(item.record for item in kept.workloads.values()),
            tuple(item.memory for item in kept.pools.values()),
            tuple(plan for _, plan in told.plans), tuple(outcome for _, outcome in told.outcomes),
            synced=False, at=self.rig.now,
        ))  # fmt: skip
        self.rig.tell(*(VerdictGiven(verdict) for verdict in self._said.values()))
        self.rig.sync(*facts, *budgets)
