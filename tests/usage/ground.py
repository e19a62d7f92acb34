"""An engine with the topics around it, in memory: everything told and answered lies there as records.

A restart is what it is in production: a fresh engine is told what those records say. Loans come and go by the marks
that nodes bear and by outcomes, so that nothing here depends on what would be decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from rebalancer.adapters import translate as wire
from rebalancer.adapters.streams.restore import rebuild
from rebalancer.core.charges import Charge, LoanUsage, PoolUsage
from rebalancer.core.engine import Engine
from rebalancer.core.facts import LoanMark, Pod, Taint
from rebalancer.core.instructions import Instruction, RecordUsage
from rebalancer.core.plan import Outcome, Result
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import (
    Fact,
    FactDeleted,
    FactKind,
    FactObserved,
    OutcomeReported,
    PolicyAdopted,
    Stimulus,
    TimePassed,
    VerdictGiven,
)
from rebalancer.core.telemetry import Verdict
from rebalancer.core.units import ON_LOAN, Activity, OwnerClass
from rebalancer.wire import v1
from rebalancer.wire.envelope import Record
from tests.core.build import OWNER_TAINT, gang, node, policy, replica
from tests.streams.fakes import lying

CLUSTER = "test"
POOL = "infer-a100"
START = datetime(2026, 3, 2, 21, 30, tzinfo=node("any").created_at.tzinfo)
HOUR = timedelta(hours=1)


class Ground:
    """A pool of inference nodes, one of training nodes, and the time in minutes since ``START``."""

    def __init__(self, nodes: int = 2) -> None:
        """All nodes are there, ready and empty, since ``START``."""
        self.records: list[Record] = []
        self.journal: list[tuple[Stimulus, datetime]] = []
        self.now = START
        self.deciding = True
        self.nodes = {item.name: item for item in (node(f"n{index}") for index in range(nodes))}
        self.pods: dict[str, Pod] = {}
        self.engine = Engine(CLUSTER, policy())
        self.tell(PolicyAdopted(policy(), "test"))
        for item in self.nodes.values():
            self.see(item)
        self.at(0)

    # -- what happens ----------------------------------------------------------------------------------------------

    def at(self, minutes: float) -> list[Charge]:
        """The clock stands there now, and plans would be made."""
        self.now = max(self.now, START + timedelta(minutes=minutes))
        asked = self.tell(TimePassed())
        return [one.charge for one in asked if isinstance(one, RecordUsage)]

    def tell(self, stimulus: Stimulus) -> list[Instruction]:
        """Handle one stimulus, and lay down what it asks for; while nobody decides, nothing."""
        if not self.deciding:
            return []
        self.journal.append((stimulus, self.now))
        asked = self.engine.handle(stimulus, self.now)
        self.engine.check()
        self.records += [wire.encode_instruction(one, CLUSTER, self.now) for one in asked]
        return asked

    def see(self, fact: Fact, late: float = 0.0) -> None:
        """A fact of now, or of so many minutes ago."""
        at = self.now - timedelta(minutes=late)
        self.records.append(wire.encode_fact(fact, CLUSTER, at))
        self.tell(FactObserved(fact, at))

    def gone(self, of: FactKind, uid: str) -> None:
        """An object was deleted now."""
        told = FactDeleted(of, uid, self.now)
        self.records.append(wire.encode_deleted(told, CLUSTER))
        self.tell(told)

    def change(self, name: str, late: float = 0.0, **changes: Any) -> None:
        """A node is otherwise from now on."""
        self.nodes[name] = replace(self.nodes[name], **changes)
        self.see(self.nodes[name], late)

    def serve(self, pod: str, name: str, late: float = 0.0, **changes: Any) -> None:
        """An inference replica runs on a node."""
        self.pods[pod] = replica(pod, **{"on": name, "uid": self._uid(pod), **changes})
        self.see(self.pods[pod], late)

    def _uid(self, pod: str) -> str:
        """Of the pod that has this name; another one after it is another object."""
        return self.pods[pod].uid if pod in self.pods else f"{pod}-{self.now.isoformat()}"

    def train(self, pod: str, name: str, **changes: Any) -> None:
        """A gang of one pod runs on a node."""
        self.pods[pod] = replace(gang(pod, on=[name])[0], queue="research", uid=self._uid(pod), **changes)
        self.see(self.pods[pod])

    def wait(self, pod: str) -> None:
        """A gang of one pod waits, unless it is there already."""
        if pod not in self.pods:
            self.pods[pod] = replace(gang(pod)[0], queue="research", uid=self._uid(pod))
            self.see(self.pods[pod])

    def end(self, pod: str) -> None:
        """A pod is gone."""
        held = self.pods.pop(pod, None)
        if held is not None:
            self.gone("pod", held.uid)

    def judge(self, name: str, activity: Activity) -> None:
        """Telemetry says what a node is doing."""
        told = Verdict(self.nodes[name].uid, activity, 4.0, 8, self.now, self.now)
        self.records.append(wire.encode_verdict(told, CLUSTER))
        self.tell(VerdictGiven(told))

    def lend(self, name: str, loan: str, for_gang: str = "ml/g") -> None:
        """A node bears the mark of a loan from now on."""
        due = self.now + 8 * HOUR
        mark = LoanMark(
            loan, self.nodes[name].uid, POOL, OwnerClass.TRAINING, for_gang, due, due, "on-loan", "plan", 1, self.now,
            OWNER_TAINT, 0,
        )  # fmt: skip
        self.change(name, loan=mark, taints=(Taint(ON_LOAN, "training"),))

    def report(self, kind: str, name: str, loan: str, result: Result = Result.DONE) -> None:
        """Act reports on a loan's node."""
        target = self.nodes[name].uid
        plan = f"{kind}-{loan}-{self.now.isoformat()}"
        self._report(Outcome(plan, POOL, 0, kind, target, result, Because(Reason.CONFIRMED), self.now, loan=loan))

    def restore(self, name: str, loan: str) -> None:
        """A node is home again."""
        self.report("restore", name, loan)
        self.change(name, loan=None, taints=(OWNER_TAINT,))

    def evicted(self, gang_id: str, lost: float) -> None:
        """A gang was evicted by a plan that nobody here made."""
        numbers: dict[str, float | int | str] = {
            "members": 1,
            "lost_gpu_seconds": lost,
            "workload": gang_id,
            "namespace": "ml",
        }
        because = Because(Reason.CONFIRMED)
        plan = f"evict-{self.now.isoformat()}"
        self._report(Outcome(plan, POOL, 0, "evict", gang_id, Result.DONE, because, self.now, numbers=numbers))

    def _report(self, told: Outcome) -> None:
        self.records.append(wire.encode_outcome(told, CLUSTER))
        self.tell(OutcomeReported(told))

    def restart(self) -> None:
        """The decider is another one, that knows what lies on the topics."""
        self.engine, self.deciding = Engine(CLUSTER, policy()), True
        self.tell(PolicyAdopted(policy(), "test"))
        for stimulus in rebuild(lying(self.records), CLUSTER, self.now).stimuli:
            self.tell(stimulus)

    # -- what was told ---------------------------------------------------------------------------------------------

    @property
    def charges(self) -> list[Charge]:
        """Usage records as they lie on the topic."""
        told = (wire.decode(*record) for record in self.records if record.topic == v1.USAGE_LOAN)
        return [one for one in told if isinstance(one, PoolUsage | LoanUsage)]


def in_force(charges: Iterable[Charge]) -> dict[tuple[str, str, datetime], Charge]:
    """What counts: of one id the last, none that was corrected; by pool or loan, gang, and hour."""
    latest = {charge.id: charge for charge in charges}
    corrected = {charge.corrects for charge in latest.values()}
    return {_line(charge): charge for charge in latest.values() if charge.id not in corrected}


def _line(charge: Charge) -> tuple[str, str, datetime]:
    hour = charge.since.replace(minute=0, second=0, microsecond=0)
    names = (charge.loan, charge.gang) if isinstance(charge, LoanUsage) else (charge.pool, "")
    return (*names, hour)


def sums(charge: Charge) -> dict[str, float]:
    """The amounts of a record by field, in GPU-seconds, zeros left out."""
    names = [name for name in type(charge).__slots__ if name.endswith("_gpu_seconds")]
    return {name.removesuffix("_gpu_seconds"): getattr(charge, name) for name in names if getattr(charge, name)}
