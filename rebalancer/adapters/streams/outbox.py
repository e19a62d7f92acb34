"""What act holds while Kafka may be away: outcomes to be told later, and what falls due by the nodes' own marks.

The buffer is bounded, what it must drop is counted, and an outcome told twice is one (its id is stable). It lives in
memory alone: what a process could not tell before its end is lost, and said so. What a return consists of is the core's
to say; here it is only asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice
from typing import Protocol

import structlog

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.publish import NotPublished, Publisher
from rebalancer.adapters.translate import encode_outcome, encode_plan
from rebalancer.core.facts import Budget, Control, Node, Pod
from rebalancer.core.plan import Outcome, Plan
from rebalancer.core.policy import Policy
from rebalancer.core.ports import Eyes, Hands
from rebalancer.core.protocol.calls import Answer, AnswerKind, Call
from rebalancer.core.protocol.fallback import called, due_returns, falls_due
from rebalancer.core.protocol.strays import Strays
from rebalancer.core.reasons import sentence
from rebalancer.core.units import PlanId
from rebalancer.wire import v1
from rebalancer.wire.envelope import Record

log = structlog.get_logger(__name__)
BUFFER = 10_000
"""Records that wait for Kafka; the oldest go first when there are more."""
PORTION = 500
"""Records offered at once: a silent broker is handed no more of them again and again."""
REMEMBERED = 4_096
"""Plans made alone that are remembered, so that each is told once."""
LOOK = 60.0
"""Seconds for one look at the whole cluster: its lists have many pages, far more than one call's time holds."""


class Witness(Protocol):
    """Somebody who tells others, best effort, what act does; must neither raise nor wait."""

    def heard(self, plan: Plan) -> None:
        """A plan whose outcomes may follow."""

    def told(self, outcome: Outcome) -> None:
        """What became of one of its steps."""


class Outbox:
    """Outcomes of one cluster, in order, whoever of this process made them."""

    def __init__(self, publisher: Publisher, cluster: str, metrics: Metrics, witness: Witness | None = None) -> None:
        self._publisher, self._cluster, self._metrics, self._witness = publisher, cluster, metrics, witness
        self._waiting: deque[Record] = deque()
        self._alone: dict[PlanId, None] = {}
        self._telling: asyncio.Task[None] | None = None
        self._dropping = False

    @property
    def empty(self) -> bool:
        """Whether all is told."""
        return not self._waiting

    @property
    def offering(self) -> bool:
        """Whether what waits is being told: that goes on until nothing waits, or time is over."""
        return self._telling is not None and not self._telling.done()

    @property
    def waiting(self) -> int:
        """Records not told yet."""
        return len(self._waiting)

    def heard(self, plan: Plan) -> None:
        """A plan whose outcomes will be told."""
        if self._metrics.evictions is not None:
            self._metrics.evictions.heard(plan)
        if self._witness is not None:
            self._witness.heard(plan)

    def decided(self, plan: Plan) -> None:
        """What act decided alone is told like any plan, once, when Kafka hears again."""
        if plan.id in self._alone:
            return
        self._alone[plan.id] = None
        self.heard(plan)
        if len(self._alone) > REMEMBERED:
            del self._alone[next(iter(self._alone))]
        self._keep(encode_plan(plan, self._cluster))

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Remember to tell these."""
        for outcome in outcomes:
            self._keep(encode_outcome(outcome, self._cluster))
            self._metrics.outcomes.labels(outcome.result.value).inc()
            if self._metrics.evictions is not None:
                self._metrics.evictions.told(outcome)
            if self._witness is not None:
                self._witness.told(outcome)
            _logged(outcome)

    async def flush(self, patience: float) -> None:
        """Tell what waits, for at most ``patience`` seconds; what the broker does not take stays and is told later.

        Whoever asks meanwhile waits for the same, so that a silent broker is offered nothing twice at a time.
        """
        if self._telling is None or self._telling.done():
            if not self._waiting:
                return
            self._telling = asyncio.create_task(self._tell(patience))
        await asyncio.shield(self._telling)

    async def _tell(self, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                while self._waiting:
                    await self._offer(list(islice(self._waiting, PORTION)), patience)
        except (NotPublished, TimeoutError):
            self._metrics.failures.labels("act").inc()
        except Exception:  # whatever the client makes of a record, what is to be done is done all the same
            self._metrics.failures.labels("act").inc()
            log.exception("outcomes not told")

    async def _offer(self, records: list[Record], patience: float) -> None:
        posted = []
        for one in records:
            posted.append(await self._publisher.post(one, self._cluster))
            if posted[-1].refused:
                break  # the next ones would each wait as long for room in the producer's buffer
        await self._publisher.settle(posted, patience)
        told = {id(one.record) for one in posted}
        self._waiting = deque(one for one in self._waiting if id(one) not in told)
        self._dropping = False

    def _keep(self, record: Record) -> None:
        if len(self._waiting) >= BUFFER:
            dropped = self._waiting.popleft()
            self._metrics.outbox_dropped.labels("plan" if dropped.topic == v1.PLAN else "outcome").inc()
            if not self._dropping:  # said once, until something is taken again
                log.error("more outcomes than may wait for Kafka, the oldest are dropped", most=BUFFER)
            self._dropping = True
        self._waiting.append(record)


async def brakes_now(eyes: Eyes, known: Control) -> Control:
    """The brakes as they stand in the cluster; those that were ``known`` where it has none, or none can be read."""
    try:
        seen = await eyes.snapshot("control")
    except Exception:
        log.exception("the brakes cannot be read, those known before hold")
        return known
    return next((one for one in seen if isinstance(one, Control)), known)


def _logged(outcome: Outcome) -> None:
    """A line for each outcome, under the ids by which `why` knows it."""
    told_as = {"plan": outcome.plan, "pool": outcome.pool, "step": outcome.step, "kind": outcome.kind}
    told_as |= {"gang" if outcome.kind == "evict" else "node": outcome.target}
    told_as |= {"loan": outcome.loan} if outcome.loan else {}
    log.info("outcome", **told_as, result=outcome.result.value, sentence=sentence(outcome.because))


async def due_now(  # noqa: PLR0917 - passed on to the core in its own order
    eyes: Eyes, policy: Policy, now: datetime, term: int, silent: timedelta, control: Control | None = None,
    strays: Strays | None = None,
) -> list[Plan]:  # fmt: skip
    """What marks, brakes and leftovers alone ask for; the pods are only listed when there are any."""
    nodes = [one for one in await eyes.snapshot("node") if isinstance(one, Node)]
    alone = strays is not None and silent >= policy.acting.kafka_silent
    ripe = strays.ripe(nodes, policy, now, control) if strays is not None and alone else []
    if not ripe and not any(falls_due(node, now) or called(node, control) is not None for node in nodes):
        return []
    pods = [one for one in await eyes.snapshot("pod") if isinstance(one, Pod)]
    budgets = [one for one in await eyes.snapshot("budget") if isinstance(one, Budget)]
    repairs = strays.plans(ripe, pods, policy, now, term) if strays is not None else []
    return [*due_returns(nodes, pods, budgets, policy, now, term, silent, control), *repairs]


async def answer(hands: Hands, call: Call, within: float) -> Answer:
    """Carry out one call, at most ``within`` seconds; hands that raise have failed, they stop nobody."""
    try:
        async with asyncio.timeout(within):
            return await hands.perform(call)
    except TimeoutError:
        return Answer(AnswerKind.TIMED_OUT)
    except Exception as error:
        log.exception("hands raised", call=call.kind)
        return Answer(AnswerKind.FAILED, message=repr(error))
