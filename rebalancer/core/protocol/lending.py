"""A lend plan: nodes closed, settled, seen to be empty, and handed to the borrower, all of them or none.

The hand-over patches go out only when every node of the plan is ready. If one node is refused, the others
open again; what was already lent comes home unless a borrower has landed there, for nothing is evicted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rebalancer.core.facts import Node, Pod
from rebalancer.core.plan import LendNode, Plan, Result
from rebalancer.core.protocol import guard
from rebalancer.core.protocol.calls import Answer, AnswerKind, ListPods
from rebalancer.core.protocol.edit import NodeEdit
from rebalancer.core.protocol.homeward import Homeward, holds
from rebalancer.core.protocol.pace import Ask
from rebalancer.core.protocol.site import Question, Site, why
from rebalancer.core.protocol.tables import LEND, Lending, Lent, Returning, move
from rebalancer.core.protocol.telling import Telling
from rebalancer.core.reasons import Because, Reason

UNDOING = frozenset({Lending.UNDOING, Lending.UNWINDING, Lending.UNDONE})
BEFORE_PATCH = frozenset({Lending.CLOSING, Lending.SETTLING, Lending.LISTING, Lending.READY})


def intruder(pods: Sequence[Pod], step: LendNode) -> Pod | None:
    """The first pod that forbids lending: bound or promised GPUs, and not itself a reclaimable borrower."""
    for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid)):
        here = holds(pod) or (pod.nominated_node == step.node_name and not pod.terminal and pod.gpus != 0)
        if here and not (pod.reclaimable and pod.owner is step.borrower and not pod.protected):
            return pod
    return None


class Lend:
    """One node of the plan. ``failure`` is why it cannot be lent; its siblings learn it from the run."""

    def __init__(self, site: Site, step: LendNode, plan: Plan) -> None:
        self.step = step
        self.phase = Lending.CLOSING
        self.failure: Because | None = None
        self.home: Homeward | None = None
        self.wrote = False
        self._site, self._plan = site, plan
        self._acting = site.policy.acting
        self._edit: NodeEdit | None = self._closing()
        self._ask = Ask(self._acting, step.node_name)
        self._settled_at: datetime | None = None
        self._tries = 0
        self._now = plan.made_at
        self._dropped = False

    @property
    def over(self) -> bool:
        """Whether the node stands where it will be left."""
        return self.phase is Lending.UNDONE or (self.phase is Lending.LENT and self.home is not None)

    def go(self) -> None:
        """All siblings are ready: hand it over."""
        if self.phase is Lending.READY:
            self._edit = NodeEdit(self._acting, self.step.node_name, self._lent)
            self._move(Lent.GO)

    def fail(self, because: Because) -> None:
        """It is not to be lent: undo what was done. A patch that is out is answered first."""
        self.failure = self.failure or because
        self._unwind()

    def due(self, now: datetime) -> datetime | None:
        """When something is to be done; None while an answer or a sibling is awaited."""
        if self.phase is Lending.SETTLING:
            return max(now, self._settled_at or now)
        if self.phase is Lending.LISTING:
            return self._ask.due(now)
        if self.phase is Lending.UNWINDING and self.home is not None:
            return self.home.due(now)
        return self._edit.due(now) if self._edit is not None else None

    def questions(self, now: datetime) -> list[Question]:
        """Calls that may be made now."""
        self._now = now
        if self.phase is Lending.LISTING:
            return self._look(now)
        if self.phase is Lending.UNWINDING and self.home is not None:
            return self.home.questions(now)
        asked = self._edit.questions(now) if self._edit is not None else []
        self.wrote = self.wrote or (self._edit is not None and self._edit.patched)
        return asked

    def settle(self, now: datetime) -> None:
        """Take note of what answers and the passage of time have brought."""
        if self.home is not None:
            self._come_home(now)
        if self._edit is not None and self._edit.over:
            edit, self._edit = self._edit, None
            self._edited(edit, now)
        if self.phase is Lending.SETTLING and self._settled_at is not None and now >= self._settled_at:
            self._move(Lent.SETTLED)
        if self.failure is not None:
            self._unwind()

    def _edited(self, edit: NodeEdit, now: datetime) -> None:
        if not edit.confirmed:
            unknown = Because(Reason.NODE_CHANGED, {"node": self.step.node_name, "why": "it cannot be edited"})
            self._refused(edit.because or unknown)
        elif self.phase is Lending.CLOSING:
            found = edit.node is not None and edit.node.loan is not None
            self._settled_at = now + self._acting.settle
            self._move(Lent.FOUND_LENT if found else Lent.CLOSED)
        elif self.phase is Lending.LENDING:
            self._move(Lent.DONE)
        else:
            # A hand-over whose answer was lost may have landed all the same; then it has to come home.
            found = edit.node is not None and edit.node.loan is not None
            self._move(Lent.FOUND_LENT if found else Lent.REOPENED)

    def _refused(self, because: Because) -> None:
        if self.phase is Lending.UNDOING:
            self._move(Lent.REOPENED)  # nothing more can be done; the mark's absence tells that it is not lent
        elif self.failure is None and guard.unclosed(because) and self._tries + 1 < self._acting.contended_tries:
            self._tries += 1
            self._edit = self._closing()
            self._move(Lent.UNCLOSED)
        else:
            self.failure = self.failure or because
            self._dropped = because.reason in (Reason.NODE_GONE, Reason.STALE_EPOCH)

    def _unwind(self) -> None:
        waiting = self._ask.out or (self._edit is not None and self._edit.out)
        if waiting or self.home is not None or self.phase in UNDOING:
            return
        if self.phase is Lending.LENT:
            self.home = self._unlent()
            self._move(Lent.FAILED)
            return
        untouched = self.phase is Lending.CLOSING and not self.wrote
        self._edit = None
        self._move(Lent.UNTOUCHED if untouched else Lent.FAILED)
        if self._dropped and not untouched:
            self._move(Lent.REOPENED)
        elif not untouched:
            self._edit = NodeEdit(self._acting, self.step.node_name, self._opened)

    def _unlent(self) -> Homeward:
        node = (self.step.node, self.step.node_name)
        home = Homeward(self._site, node, self.step.loan, self._plan.id, patience=timedelta(0))
        home.go()
        return home

    def _come_home(self, now: datetime) -> None:
        home = self.home
        if home is None or self.phase is not Lending.UNWINDING:
            return
        home.settle(now)
        if home.over:
            home_again = home.gone or home.phase is Returning.RESTORED
            self._move(Lent.REOPENED if home_again else Lent.OCCUPIED)

    def _look(self, now: datetime) -> list[Question]:
        if not self._ask.ready(now):
            return []
        self._ask.sent()
        return [Question(ListPods(self.step.node_name), self._listed)]

    def _listed(self, answer: Answer, now: datetime) -> None:
        if answer.kind is not AnswerKind.OK:
            self._unlisted(answer, now)
            return
        self._ask.back()
        pod = intruder(answer.pods, self.step)
        if pod is None:
            self._move(Lent.EMPTY)
        else:
            numbers = {"pod": f"{pod.namespace}/{pod.name}", "node": self.step.node_name}
            self.failure = Because(Reason.NODE_TAKEN, numbers)

    def _unlisted(self, answer: Answer, now: datetime) -> None:
        again = self._ask.failed(answer, now)
        if answer.kind is AnswerKind.GONE:
            self.failure = Because(Reason.NODE_GONE, {"node": self.step.node_name})
            self._dropped = True
        elif answer.kind is AnswerKind.FORBIDDEN or not again:
            self.failure = why(answer, self.step.node_name, self._acting.call_timeout.total_seconds())

    def _closing(self) -> NodeEdit:
        return NodeEdit(self._acting, self.step.node_name, self._closed)

    def _closed(self, node: Node) -> guard.Edit:
        return guard.close_home(node, self.step, self._site.epoch)

    def _lent(self, node: Node) -> guard.Edit:
        return guard.lend(node, self.step, self._plan.id, self._site.epoch, self._now)

    def _opened(self, node: Node) -> guard.Edit:
        return guard.reopen(node, self.step.node, self._plan.id, self._site.epoch)

    def _move(self, event: Lent) -> None:
        self.phase = move(LEND, self.phase, event)


class LendRun:
    """All lends of one plan: all or none."""

    def __init__(self, site: Site, plan: Plan, telling: Telling) -> None:
        self.plan, self.telling = plan, telling
        self._result: Result | None = None
        self._lends = [
            (index, Lend(site, step, plan))
            for index, step in enumerate(plan.steps)
            if isinstance(step, LendNode) and not telling.ended(index)
        ]

    @property
    def over(self) -> bool:
        """Whether every step has its final outcome."""
        return self.telling.complete

    @property
    def committed(self) -> bool:
        """Whether a hand-over may already have been written."""
        return any(lend.phase in (Lending.LENDING, Lending.LENT) for _, lend in self._lends)

    def nodes(self) -> frozenset[str]:
        """Uids of the nodes it works on."""
        return frozenset(lend.step.node for _, lend in self._lends)

    def stop(self, because: Because, result: Result, now: datetime) -> bool:
        """Call it off; False once a hand-over may have been written."""
        if self.committed:
            return False
        self._result = result
        for _, lend in self._lends:
            lend.fail(because)
        self.settle(now)
        return True

    def due(self, now: datetime) -> datetime | None:
        """When something is to be done."""
        times = [lend.due(now) for _, lend in self._lends if not lend.over]
        waiting = [lend for _, lend in self._lends if lend.phase in BEFORE_PATCH and lend.failure is None]
        times += [lend.step.recall_at for lend in waiting]
        return min((time for time in times if time is not None), default=None)

    def questions(self, now: datetime) -> list[Question]:
        """Calls that may be made now."""
        found = []
        for index, lend in self._lends:
            asked = lend.questions(now)
            if lend.wrote:
                self.telling.start(index, now)
            found += asked
        return found

    def settle(self, now: datetime) -> None:
        """Take note of what answers and the passage of time have brought."""
        for _, lend in self._lends:
            if lend.phase in BEFORE_PATCH and now >= lend.step.recall_at:
                lend.fail(Because(Reason.WINDOW_CLOSING, {"remaining_minutes": 0}))
            lend.settle(now)
        failure = next((lend.failure for _, lend in self._lends if lend.failure is not None), None)
        if failure is not None:
            self._unwound(failure, now)
        elif all(lend.phase in (Lending.READY, Lending.LENDING, Lending.LENT) for _, lend in self._lends):
            self._ready(now)

    def _ready(self, now: datetime) -> None:
        for _, lend in self._lends:
            lend.go()
        if all(lend.phase is Lending.LENT for _, lend in self._lends):
            for index, _ in self._lends:
                self.telling.done(index, now)

    def _unwound(self, failure: Because, now: datetime) -> None:
        for index, lend in self._lends:
            lend.fail(failure)
            if not lend.over:
                continue
            if lend.phase is Lending.LENT:
                self.telling.done(index, now)  # a borrower has landed: lent it is, and comes home like any other
            else:
                self.telling.refuse(index, lend.failure or failure, now, self._result)

    def status(self) -> list[tuple[int, str]]:
        """Step index and phase of every step."""
        return [(index, lend.phase.value) for index, lend in self._lends]
