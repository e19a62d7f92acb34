"""Pure edits of a node's taint list and loan mark: what one guarded patch replaces (DESIGN 6).

Each edit takes a freshly read node and says: patch it (:class:`PatchNode`, valid for that version only),
nothing to do (None: it is so already), or no (a :class:`Because`). Foreign taints keep their bytes and order.
Nothing is performed here, and nothing is ever added with an effect other than NoSchedule.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from rebalancer.core.facts import LoanMark, Node, Taint
from rebalancer.core.loans import LoanPhase
from rebalancer.core.plan import LendNode, RenewLoan
from rebalancer.core.protocol.calls import PatchNode
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import CLOSING, ON_LOAN, LoanId, NodeUid, PlanId

Edit: TypeAlias = PatchNode | Because | None
OURS = frozenset({CLOSING, ON_LOAN})
CLOSING_TAINT = Taint(CLOSING)
_UNCLOSED = "the closing taint was taken off"


def closed(node: Node) -> bool:
    """Whether the closing taint is on."""
    return any(taint.key == CLOSING for taint in node.taints)


def touched(node: Node) -> bool:
    """Whether anything of ours is on the node."""
    return node.loan is not None or any(taint.key in OURS for taint in node.taints)


def unclosed(because: Because) -> bool:
    """Whether an edit was refused because someone took the closing taint off."""
    return because.reason is Reason.CONTENDED and because.numbers.get("why") == _UNCLOSED


def close_home(node: Node, step: LendNode, epoch: int) -> Edit:
    """Closing taint on a node that is at home and is to be lent; nothing to do if it is lent by this loan."""
    if refused := _stale(node, step.node, epoch):
        return refused
    if node.loan is not None:
        return None if node.loan.loan == step.loan else _changed(node, f"it carries loan {node.loan.loan}")
    if why := _unusable(node):
        return Because(Reason.NODE_NOT_USABLE, {"node": node.name, "why": why})
    if step.owner_taint is not None and step.owner_taint not in node.taints:
        return _changed(node, "the owner's taint is missing")
    return None if closed(node) else _patch(node, (*node.taints, CLOSING_TAINT), None)


def close_lent(node: Node, want: NodeUid, loan: LoanId, plan: PlanId, epoch: int) -> Edit:
    """Closing taint on a lent node; the mark says who recalls it. An empty ``loan`` fences one at home."""
    if refused := _stale(node, want, epoch) or _other_loan(node, loan):
        return refused
    mark = _moved(node, LoanPhase.RECALLING, plan, epoch)
    if closed(node) and mark == node.loan:
        return None
    return _patch(node, node.taints if closed(node) else (*node.taints, CLOSING_TAINT), mark)


def reopen(node: Node, want: NodeUid, plan: PlanId, epoch: int) -> Edit:
    """Undo closing: the closing taint off, and a mark back to on-loan."""
    if refused := _stale(node, want, epoch):
        return refused
    mark = _moved(node, LoanPhase.ON_LOAN, plan, epoch)
    if not closed(node) and (node.mark is None or node.mark.phase == LoanPhase.ON_LOAN):
        return None
    return _patch(node, tuple(taint for taint in node.taints if taint.key != CLOSING), mark)


def lend(node: Node, step: LendNode, plan: PlanId, epoch: int, now: datetime) -> Edit:
    """Owner taint off and the on-loan taint in its place, closing off, mark on: all in one patch.

    CONTENDED means that the closing taint was taken off meanwhile: whoever calls must close and look again.
    """
    if refused := _stale(node, step.node, epoch):
        return refused
    if node.loan is not None:
        return None if node.loan.loan == step.loan else _changed(node, f"it carries loan {node.loan.loan}")
    if not closed(node):
        return Because(Reason.CONTENDED, {"node": node.name, "why": _UNCLOSED})
    foreign = [taint for taint in node.taints if taint.key not in OURS]
    if step.owner_taint is not None and step.owner_taint not in foreign:
        return _changed(node, "the owner's taint is missing")
    index = foreign.index(step.owner_taint) if step.owner_taint is not None else None
    place = Taint(ON_LOAN, step.borrower.value)
    taints = [*foreign, place] if index is None else [*foreign[:index], place, *foreign[index + 1 :]]
    return _patch(node, tuple(taints), _mark(step, index, plan, epoch, now))


def renew(node: Node, step: RenewLoan, plan: PlanId, epoch: int) -> Edit:
    """A later due time in the mark of a loan that is not on its way home; taints stay as they are."""
    if refused := _stale(node, step.node, epoch) or _other_loan(node, step.loan):
        return refused
    mark = node.mark
    if mark is None or mark.due == step.due:
        return None
    if mark.due > step.due:
        return _changed(node, "it is renewed until later")
    if closed(node) or mark.phase != LoanPhase.ON_LOAN:
        return Because(Reason.IN_TRANSIT, {"node": node.name})
    later = replace(mark, due=step.due, recall_at=step.recall_at, plan=plan, epoch=epoch)
    return _patch(node, node.taints, later)


def restore(node: Node, want: NodeUid, loan: LoanId, epoch: int, owner_taint: Taint | None = None) -> Edit:
    """Owner taint back where on-loan stands, everything of ours off. Already so if nothing of ours is there.

    ``owner_taint`` goes back where no mark says which it was: on a node without one of its own.

    CONTENDED means that the closing taint was taken off: a pod may have come since the node was looked at.
    """
    if refused := _stale(node, want, epoch):
        return refused
    if not touched(node):
        return None
    if refused := _other_loan(node, loan):
        return refused
    if not closed(node):
        return Because(Reason.CONTENDED, {"node": node.name, "why": _UNCLOSED})
    return _patch(node, home_taints(node, owner_taint), None)


def home_taints(node: Node, otherwise: Taint | None = None) -> tuple[Taint, ...]:
    """The node's taints once it is home: ours off, the owner's back in its place; ``otherwise`` where no mark says."""
    foreign = [taint for taint in node.taints if taint.key not in OURS]
    mark = node.mark
    owner = mark.taint if mark is not None else otherwise
    if owner is None or _has(foreign, owner):
        return tuple(foreign)
    index = _place(node, min(mark.taint_index or 0 if mark is not None else 0, len(foreign)))
    return (*foreign[:index], owner, *foreign[index:])


def _place(node: Node, otherwise: int) -> int:
    """Where on-loan stands among the foreign taints: it keeps the owner's place while others come and go."""
    before = 0
    for taint in node.taints:
        if taint.key == ON_LOAN:
            return before
        before += taint.key not in OURS
    return otherwise


def _has(taints: list[Taint], wanted: Taint) -> bool:
    # Kubernetes holds taints to be the same by key and effect.
    return any((taint.key, taint.effect) == (wanted.key, wanted.effect) for taint in taints)


def _stale(node: Node, want: NodeUid, epoch: int) -> Because | None:
    if node.uid != want:
        return Because(Reason.NODE_GONE, {"node": node.name})
    if node.mark is not None and node.mark.epoch > epoch:
        return Because(Reason.STALE_EPOCH, {"epoch": epoch, "current": node.mark.epoch})
    return None


def _other_loan(node: Node, loan: LoanId) -> Because | None:
    if node.mark is None:
        return Because(Reason.LOAN_LOST, {"node": node.name}) if loan else None
    return None if node.mark.loan == loan else _changed(node, f"it carries loan {node.mark.loan}")


def _unusable(node: Node) -> str:
    checks = (
        (not node.ready, "it is not ready"),
        (node.cordoned, "it is cordoned"),
        (node.opted_out, "it opted out"),
        (bool(node.quarantine), node.quarantine),
    )
    return next((why for bad, why in checks if bad), "")


def _moved(node: Node, phase: LoanPhase, plan: PlanId, epoch: int) -> LoanMark | None:
    mark = node.mark
    return node.loan if mark is None else replace(mark, phase=phase.value, plan=plan, epoch=epoch)


def _mark(step: LendNode, index: int | None, plan: PlanId, epoch: int, now: datetime) -> LoanMark:
    return LoanMark(
        loan=step.loan, node_uid=step.node, lender=step.lender, borrower=step.borrower, gang=step.gang,
        due=step.due, recall_at=step.recall_at, phase=LoanPhase.ON_LOAN.value, plan=plan, epoch=epoch,
        opened_at=now, taint=step.owner_taint, taint_index=index,
    )  # fmt: skip


def _changed(node: Node, why: str) -> Because:
    return Because(Reason.NODE_CHANGED, {"node": node.name, "why": why})


def _patch(node: Node, taints: tuple[Taint, ...], mark: LoanMark | None) -> PatchNode:
    return PatchNode(node.uid, node.name, node.resource_version, taints, mark)
