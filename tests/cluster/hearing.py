"""What the topics say, read beside a story as a subscriber would: the latest of everything, and every alert there was.

A thread of its own follows all partitions from their beginning; stories ask what has been heard so far. Nothing is
ever committed or sent.
"""

import asyncio
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from rebalancer.adapters.store import TOPICS, RawRecord, Store
from rebalancer.adapters.translate import Received
from rebalancer.core.instructions import RaiseAlert
from rebalancer.core.loans import Loan
from rebalancer.core.plan import EvictGang, Outcome, Plan
from rebalancer.core.reasons import Reason
from rebalancer.wire import v1

STARTS_WITHIN = 30.0  # seconds
ENDS_WITHIN = 10.0
AGAIN_MS = 500  # a broker that is away is asked twice a second, not a thousand times: each is a line of log
KEPT = (v1.STATE_LOAN, v1.ALERT)
"""Topics of which every record is kept, not only the latest of a key."""


class Hearing:
    """While its context is open: everything on our topics about one cluster."""

    def __init__(self, bootstrap: str, cluster: str) -> None:
        self.store = Store(cluster=cluster)
        self.history: list[Received] = []
        self._bootstrap = bootstrap
        self._began, self._ending = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="hearing", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._began.wait(STARTS_WITHIN), "nothing heard of the brokers"
        assert self._error is None, self._error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ending.set()
        self._thread.join(ENDS_WITHIN)

    # -- what was heard ----------------------------------------------------------------------------------------------

    def loans(self, pool: str) -> list[Loan]:
        """The latest of each loan of a lender."""
        return sorted((one for one in list(self.store.loans.values()) if one.lender == pool), key=lambda one: one.id)

    def plans(self, pool: str) -> list[Plan]:
        """All plans of a pool, in the order in which they were made."""
        found = [one for one in list(self.store.plans.values()) if one.pool == pool]
        return sorted(found, key=lambda one: (one.made_at, one.id))

    def outcomes(self, pool: str) -> list[Outcome]:
        """All outcomes of a pool's plans, in the order of time."""
        plans = {one.id for one in self.plans(pool)}
        found = [one for plan, each in list(self.store.outcomes.items()) if plan in plans for one in each.values()]
        return sorted(found, key=lambda one: one.at)

    def evicted(self, pool: str) -> list[str]:
        """Gangs that plans of the pool meant to evict, in order, each as often as a plan named it."""
        return [step.gang for plan in self.plans(pool) for step in plan.steps if isinstance(step, EvictGang)]

    def alerts(self, reason: Reason, target: str = "") -> list[RaiseAlert]:
        """Every alert of this reason that was ever raised (about this target)."""
        return [one for one in self._raised() if one.because.reason is reason and target in ("", one.target)]

    def standing(self, pool: str) -> list[RaiseAlert]:
        """Alerts of a pool that stand now."""
        return [one for one in list(self.store.alerts.values()) if one.pool == pool]

    def _raised(self) -> Iterator[RaiseAlert]:
        return (one.content for one in list(self.history) if isinstance(one.content, RaiseAlert))

    def phases(self, loan: str) -> list[str]:
        """The phases that a loan was told in, without repetitions."""
        told = [one.content.phase.value for one in list(self.history)
                if isinstance(one.content, Loan) and one.content.id == loan]  # fmt: skip
        return [phase for index, phase in enumerate(told) if index == 0 or told[index - 1] != phase]

    def summary(self, pool: str) -> str:
        """What was heard about a pool, for a message."""
        lines = [f"loans: {[(one.node_name, one.phase.value, one.gang) for one in self.loans(pool)]}"]
        for plan in self.plans(pool)[-6:]:
            steps = [(step.kind, getattr(step, "gang", "") or getattr(step, "node_name", "")) for step in plan.steps]
            lines.append(f"plan {plan.id[:8]} {plan.method} {plan.because.reason} {steps}")
        lines += [
            f"outcome {one.plan[:8]}/{one.step} {one.result} {one.because.reason} {dict(one.because.numbers)}"
            for one in self.outcomes(pool)[-10:]
        ]
        state = self.store.pools.get(pool)
        lines.append(f"pool: {state}")
        lines.append(f"alerts: {[(one.target, one.because.reason.value) for one in self.standing(pool)]}")
        return "\n".join(lines)

    # -- hearing -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._follow())
        except BaseException as error:  # noqa: BLE001 - a thread tells nobody but through this
            self._error = error
            self._began.set()

    async def _follow(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, group_id=None, enable_auto_commit=False, auto_offset_reset="earliest",
            retry_backoff_ms=AGAIN_MS,
        )  # fmt: skip
        await consumer.start()
        try:
            consumer.assign(await self._places())
            self._began.set()
            while not self._ending.is_set():
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    self._take(records)
        finally:
            await consumer.stop()

    async def _places(self) -> list[TopicPartition]:
        client = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await client.start()
        try:
            described = {one["topic"]: one["partitions"] for one in await client.describe_topics(list(TOPICS))}
        finally:
            await client.close()
        return [TopicPartition(topic, part["partition"]) for topic in TOPICS for part in described[topic]]

    def _take(self, records: list[Any]) -> None:
        for one in records:
            told = self.store.feed(RawRecord(one.topic, one.key or b"", one.value, tuple(one.headers)))
            if told is not None and one.topic in KEPT:
                self.history.append(told)
