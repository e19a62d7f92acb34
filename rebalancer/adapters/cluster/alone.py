"""Bringing loans home with nobody else there: no Kafka, no decider, no other actor. For retirement only.

The plans are the core's own for a silent Kafka and go through its actor, so budgets, notices, pace and guarded
patches hold as ever. Nothing is decided or lent here; the lease must be held by whoever calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

import structlog

from rebalancer.adapters.cluster.listing import NotListed
from rebalancer.adapters.streams.beside import Beside
from rebalancer.core.facts import Budget, Control, Node, Pod
from rebalancer.core.optout import marked
from rebalancer.core.plan import Outcome, Result
from rebalancer.core.policy import Policy
from rebalancer.core.ports import Eyes, Hands
from rebalancer.core.protocol.actor import Actor
from rebalancer.core.protocol.brakes import nodes as plan_nodes
from rebalancer.core.protocol.calls import Call
from rebalancer.core.protocol.fallback import due_returns, stayers
from rebalancer.core.reasons import Because, sentence
from rebalancer.core.stimuli import Fact
from rebalancer.core.units import NodeUid, PlanId

log = structlog.get_logger(__name__)
LOOK_EVERY = 5.0
"""Seconds between full looks at the cluster: three lists, far cheaper than what they wait for."""


class Alone:
    """One actor and its eyes, until everything is home."""

    def __init__(self, eyes: Eyes, hands: Hands, policy: Policy, epoch: int, tell: Callable[[str], None]) -> None:
        """``eyes`` look at the cluster as it is at that moment, and may raise NotListed."""
        self._eyes, self._hands, self._policy, self._tell = eyes, hands, policy, tell
        self._control = Control(retired=True)
        self._actor = Actor(policy, epoch)
        self._actor.control(self._control)
        self._calls = Beside()
        self._under_way: dict[PlanId, frozenset[NodeUid]] = {}
        self._wake = asyncio.Event()
        self._kept: frozenset[str] = frozenset()

    async def bring_home(self) -> None:
        """Until no node carries a loan; cancelled by whoever has waited long enough."""
        loop = asyncio.get_running_loop()
        try:
            look_at = loop.time()
            while True:
                if loop.time() >= look_at:
                    if not await self._look():
                        return
                    look_at = loop.time() + LOOK_EVERY
                self._act()
                await self._sleep(max(0.0, look_at - loop.time()))
        finally:
            await self._calls.end()

    async def _look(self) -> bool:
        """Plan for what is still out; False if nothing is. A look that fails is taken again later."""
        try:
            nodes = [one for one in await self._eyes.snapshot("node") if isinstance(one, Node)]
            if not any(node.mark is not None for node in nodes):
                return False
            pods = [one for one in await self._eyes.snapshot("pod") if isinstance(one, Pod)]
            pods = marked(pods, await self._others())
            budgets = [one for one in await self._eyes.snapshot("budget") if isinstance(one, Budget)]
        except (ConnectionError, TimeoutError, NotListed) as error:
            if isinstance(error, NotListed) and not error.passing:
                raise
            self._tell(str(error))
            return True
        self._told_of(stayers(pods, self._policy), nodes)
        now, busy = datetime.now(UTC), self._busy()
        left = [node for node in nodes if node.uid not in busy]
        for plan in due_returns(left, pods, budgets, self._policy, now, control=self._control):
            self._under_way[plan.id] = plan_nodes(plan)
            self._heard(self._actor.plan(plan, now))
        return True

    async def _others(self) -> list[Fact]:
        """Who may have opted out for their pods; nobody is asked where the policy takes them all the same."""
        if self._policy.pace.recall_while_paused:
            return []
        return [*await self._eyes.snapshot("namespace"), *await self._eyes.snapshot("group")]

    def _told_of(self, kept: Mapping[str, Because], nodes: Iterable[Node]) -> None:
        """Who waits here hears once for whom a node stays out."""
        stay = {node.name: kept[node.name] for node in nodes if node.mark is not None and node.name in kept}
        if stay and stay.keys() != self._kept:
            self._tell("; ".join(f"{name} stays out: {sentence(because)}" for name, because in sorted(stay.items())))
        self._kept = frozenset(stay)

    def _busy(self) -> set[NodeUid]:
        """Nodes that a plan is at work on: they are planned anew only once it is over."""
        ids = {step.plan for step in self._actor.snapshot()}
        self._under_way = {plan: nodes for plan, nodes in self._under_way.items() if plan in ids}
        return {node for nodes in self._under_way.values() for node in nodes}

    def _act(self) -> None:
        for call_id, call in self._actor.advance(datetime.now(UTC)):
            self._calls.begin(self._perform(call_id, call))
        self._heard(self._actor.outcomes())

    def _heard(self, outcomes: Iterable[Outcome]) -> None:
        """What became of steps is told to the person who waits, as far as it is not just going on."""
        for outcome in outcomes:
            log.info("step", plan=outcome.plan, target=outcome.target, result=outcome.result.value)
            if outcome.result not in {Result.STARTED, Result.DONE}:
                self._tell(f"{outcome.kind} of {outcome.target} {outcome.result}: {sentence(outcome.because)}")

    async def _perform(self, call_id: int, call: Call) -> None:
        answer = await self._hands.perform(call)
        try:
            told = self._actor.answered(call_id, answer, datetime.now(UTC))
        except Exception:
            log.exception("an answer could not be taken in", call=call.kind)
            told = []
        self._heard(told)
        self._wake.set()

    async def _sleep(self, longest: float) -> None:
        """Until an answer came or the actor wants to be woken."""
        now = datetime.now(UTC)
        due = self._actor.next_wake(now)
        left = longest if due is None else min(longest, max(0.0, (due - now).total_seconds()))
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._wake.wait()
        self._wake.clear()
