"""One lent node on its way home: closed, waited for until nothing holds its GPUs, handed back in one patch.

Also the way back: a closed node that cannot come home now is opened to its borrowers again. Nothing is
evicted here, and a node is never handed back while a pod holds GPUs on it, however late it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rebalancer.core.facts import Node, Pod, Taint
from rebalancer.core.protocol import guard
from rebalancer.core.protocol.calls import Answer, AnswerKind, ListPods
from rebalancer.core.protocol.edit import NodeEdit
from rebalancer.core.protocol.pace import Ask
from rebalancer.core.protocol.site import Question, Site, why
from rebalancer.core.protocol.tables import RETURN, Returned, Returning, move
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import LoanId, NodeUid, OwnerClass, PlanId

ENDS = frozenset({Returning.RESTORED, Returning.REOPENED, Returning.REFUSED})


def holds(pod: Pod) -> bool:
    """Whether a pod holds GPUs; one whose count is unknown is held to."""
    return bool(pod.node) and not pod.terminal and pod.gpus != 0


class Homeward:
    """The return of one node. ``closed_at``: when closing was confirmed; ``because``: why it stays away.

    ``begun_at``: an earlier actor had already closed it at that moment. ``patience`` is how long a pod that
    nobody is evicting may keep the node before the return is given up (None: as the policy has it). ``repair``:
    the node bears something of ours without a mark; its owner's pods may stay, and ``owner_taint`` goes back.
    """

    def __init__(
        self, site: Site, node: tuple[NodeUid, str], loan: LoanId, plan: PlanId, *,
        begun_at: datetime | None = None, patience: timedelta | None = None,
        repair: bool = False, owner_taint: Taint | None = None,
    ) -> None:  # fmt: skip
        self.node, self.name = node
        self.phase = Returning.CLOSING
        self.closed_at = begun_at
        self.restored_at: datetime | None = None
        self.because: Because | None = None
        self.stuck: Because | None = None
        self._site, self._loan, self._plan = site, loan, plan
        self._acting = site.policy.acting
        self._patience = patience
        self._repair, self._owner_taint = repair, owner_taint
        self._host: OwnerClass | None = None
        self._began = begun_at is not None
        self._back = False  # nothing of ours was on it when it was looked at: whoever runs there is at home
        self._go = False
        self._leaving: Because | None = None
        self._tries = 0
        self._foreign_since: datetime | None = None
        self._edit: NodeEdit | None = self._closing()
        self._ask = Ask(self._acting, self.name)

    @property
    def over(self) -> bool:
        """Whether it has come to an end."""
        return self.phase in ENDS

    @property
    def shut(self) -> bool:
        """Whether closing is confirmed and not undone."""
        return self.phase in (Returning.CLOSED, Returning.LISTING, Returning.RESTORING, Returning.RESTORED)

    @property
    def gone(self) -> bool:
        """Whether the node does not exist any more."""
        refused = self.phase is Returning.REFUSED
        return refused and self.because is not None and self.because.reason is Reason.NODE_GONE

    @property
    def patched(self) -> bool:
        """Whether anything was written in the phase at hand."""
        return self._edit is not None and self._edit.patched

    def go(self) -> None:
        """Everything planned has left: hand it back as soon as it is seen to be empty."""
        self._go = True
        if self.phase is Returning.CLOSED:
            self._move(Returned.GO)

    def abandon(self, because: Because) -> bool:
        """Open it to its borrowers again; False if it is past that."""
        if (self.phase, Returned.ABANDONED) not in RETURN:
            return False
        self._leaving = self._leaving or because
        self._leave()
        return True

    def _leave(self) -> None:
        # A closing patch that is out may still land: undoing it before its answer could come too early.
        out = self._edit is not None and self._edit.out
        if self._leaving is None or out or (self.phase, Returned.ABANDONED) not in RETURN:
            return
        self.because = self._leaving
        self._move(Returned.ABANDONED)
        self._edit = NodeEdit(self._acting, self.name, self._opened)

    def due(self, now: datetime) -> datetime | None:
        """When the next call may be made; None while waiting for an answer or for others."""
        if self.phase is Returning.LISTING:
            return self._ask.due(now)
        return self._edit.due(now) if self._edit is not None else None

    def questions(self, now: datetime) -> list[Question]:
        """Calls that may be made now."""
        if self.phase is Returning.LISTING and self._ask.ready(now):
            self._ask.sent()
            return [Question(ListPods(self.name), self._listed)]
        return self._edit.questions(now) if self._edit is not None else []

    def settle(self, now: datetime) -> None:
        """Take note of what answers have brought."""
        self._leave()
        edit = self._edit
        if edit is None or not edit.over:
            return
        self._edit = None
        if edit.node is not None:
            self._host, self._back = edit.node.owner, not guard.touched(edit.node)
        if edit.confirmed:
            self._confirmed(now)
        elif edit.because is not None:
            self._refused(edit.because)

    def _confirmed(self, now: datetime) -> None:
        if self.phase is Returning.CLOSING:
            self.closed_at = self.closed_at or now
            self._move(Returned.CLOSED)
            if self._go and self._leaving is None:
                self._move(Returned.GO)
            self._leave()
            return
        if self.phase is Returning.RESTORING:
            self.restored_at = now
        self._move(Returned.DONE)

    def _refused(self, because: Because) -> None:
        if guard.unclosed(because) and self._tries + 1 < self._acting.contended_tries:
            self._tries += 1
            self._edit = self._closing()
            self._move(Returned.UNCLOSED)
            return
        self.because = self.because or because
        self._move(Returned.FAILED)

    def _listed(self, answer: Answer, now: datetime) -> None:
        if self.phase is not Returning.LISTING:
            return
        if answer.kind is AnswerKind.OK:
            self._look([pod for pod in answer.pods if holds(pod) and not self._at_home(pod)], now)
        elif answer.kind is AnswerKind.GONE:
            self._fail(Because(Reason.NODE_GONE, {"node": self.name}))
        elif not self._ask.failed(answer, now):
            self._fail(why(answer, self.name, self._acting.call_timeout.total_seconds()))

    def _look(self, pods: Sequence[Pod], now: datetime) -> None:
        if not pods:
            self._ask.back()
            self._move(Returned.EMPTY)
            self._edit = NodeEdit(self._acting, self.name, self._restored)
            return
        staying = [pod for pod in pods if pod.deleting_at is None]
        self._foreign_since = (self._foreign_since or now) if staying else None
        self._complain(pods, staying, now)
        waited = now - self._foreign_since if self._foreign_since else timedelta(0)
        if staying and waited >= self._allowed(staying) and self.abandon(self._taken(staying[0])):
            return
        self._move(Returned.OCCUPIED)
        self._ask.again(now + (self._acting.retry_max if self.stuck else self._acting.poll))

    def _at_home(self, pod: Pod) -> bool:
        return self._back or (self._repair and pod.owner is self._host)

    def _allowed(self, staying: Sequence[Pod]) -> timedelta:
        # A borrower that came unplanned leaves by the next plan, so this one should not keep it waiting.
        soon = all(pod.reclaimable for pod in staying)
        usual = self._acting.stuck_after if soon else self._acting.retry_deadline
        return usual if self._patience is None else self._patience

    def _complain(self, pods: Sequence[Pod], staying: Sequence[Pod], now: datetime) -> None:
        late = [pod for pod in pods if pod.deleting_at and now - pod.deleting_at > self._acting.stuck_after]
        if self.stuck is None and staying:
            self.stuck = self._taken(staying[0])
        elif self.stuck is None and late:
            seconds = (now - (late[0].deleting_at or now)).total_seconds()
            self.stuck = Because(Reason.STUCK, {"pod": _named(late[0]), "seconds": seconds})

    def _taken(self, pod: Pod) -> Because:
        reason = Reason.NODE_TAKEN if pod.reclaimable else Reason.SQUATTER
        return Because(reason, {"pod": _named(pod), "node": self.name})

    def _fail(self, because: Because) -> None:
        self.because = because
        self._move(Returned.FAILED)

    def _closing(self) -> NodeEdit:
        return NodeEdit(self._acting, self.name, self._closed)

    def _closed(self, node: Node) -> guard.Edit:
        if (self._began or self._repair) and not guard.touched(node) and node.uid == self.node:
            return None  # an earlier actor got as far as the restoring patch, or somebody else repaired it
        return guard.close_lent(node, self.node, self._loan, self._plan, self._site.epoch)

    def _opened(self, node: Node) -> guard.Edit:
        return guard.reopen(node, self.node, self._plan, self._site.epoch)

    def _restored(self, node: Node) -> guard.Edit:
        return guard.restore(node, self.node, self._loan, self._site.epoch, self._owner_taint)

    def _move(self, event: Returned) -> None:
        self.phase = move(RETURN, self.phase, event)


def _named(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"
