"""Return: bring loans home because they fall due, or because a person said so.

Paced so that the last gang is out on time: a loan that shares its due time with more nodes than the caps allow
in one span starts that many spans earlier. Caps and budgets pace a return and raise alerts; they do not stop it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from rebalancer.core.facts import Control
from rebalancer.core.loans import Loan, LoanPhase
from rebalancer.core.look import Look
from rebalancer.core.methods import guards, takeback
from rebalancer.core.plan import Alternative, Method
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.state import State
from rebalancer.core.underway import Draft
from rebalancer.core.units import Number, PoolName, seconds
from rebalancer.core.victims import Casualty, Homecoming, homecoming, immovable, lost_work

MARGIN = timedelta(seconds=60)
"""Added to every return: clocks differ, and the last step of the way is not ours."""


def propose(state: State, look: Look, now: datetime) -> Iterator[Draft]:
    """Drafts for every loan of this pool that has to start home now, one per reason."""
    if guards.stops_return(state, look, now) is not None:
        return
    waiting = idle_hands(state, look)
    due = startable(state, look, now)
    called = _called(state, waiting, due)
    for loans, because in _reasons(state, look, due, called):
        comings, notes = _comings(state, loans, now)
        if not comings:
            continue
        falls_due = because.reason is Reason.LOAN_DUE
        last = min(item.loan.due for item in comings) if falls_due else now + state.policy.acting.retry_deadline
        deadline = max(now, last)
        steps = takeback.steps(state, comings, because, now=now, not_before=now, deadline=deadline)
        yield Draft(look.pool, Method.RETURN, because, steps, notes, pressing=True)


def idle_hands(state: State, look: Look) -> Sequence[Loan]:
    """Loans of the pool that no plan is busy with, in the order in which they fall due."""
    return state.books(look.pool).free_to_act


def start_of_return(state: State, pool: str, loan: Loan, later: int) -> datetime:
    """When the way home begins: the return time before due, and one span earlier per batch that comes later.

    A gang that may take longer to leave than returns took so far is given the time it may take.
    """
    pace, node = state.policy.pace, state.inventory.nodes.get(loan.node)
    leave = state.leave_time(node) if node is not None else timedelta(0)
    return loan.due - max(state.return_time(pool), leave) - MARGIN - (later // pace.nodes_per_pool) * pace.per


def startable(state: State, look: Look, now: datetime) -> list[Loan]:
    """Loans whose way home has to begin now; guests are looked at only where it might."""
    books, pool = state.books(look.pool), look.pool
    soonest = max(state.return_time(pool), state.inventory.longest_leave) + MARGIN
    if not books.unfinished and (not books.starts or now < min(books.starts) - soonest):
        return []
    return [
        loan
        for loan, later, start in zip(books.free_to_act, books.later, books.starts, strict=True)
        if loan.phase is LoanPhase.RECALLING
        or (now >= start - soonest and now >= start_of_return(state, pool, loan, later))
    ]


def _called(state: State, waiting: Sequence[Loan], due: Sequence[Loan]) -> list[Loan]:
    control = state.inventory.control
    if not (state.recalls or control.retired or control.recall_all or control.recall_pools or control.recall_nodes):
        return []
    starting = {loan.id for loan in due}
    return [loan for loan in waiting if loan.id not in starting and recalled(state, loan) is not None]


def recalled(state: State, loan: Loan) -> Because | None:
    """What a person said about a loan that makes it come home, or None."""
    asked = state.recalls.get(loan.node)
    if asked is not None:
        return asked
    return called_home(state.inventory.control, loan.lender, loan.node_name)


def called_home(control: Control, lender: PoolName, node_name: str) -> Because | None:
    """What the brakes say that brings a lent node of this pool home, or None."""
    by = control.by or "control"
    if control.retired:
        return Because(Reason.RETIRING)
    if control.recall_all or lender in control.recall_pools:
        return Because(Reason.OPERATOR_RECALL, {"by": by, "target": lender if not control.recall_all else "all"})
    if node_name in control.recall_nodes:
        return Because(Reason.OPERATOR_RECALL, {"by": by, "target": node_name})
    return None


def _reasons(
    state: State, look: Look, due: Sequence[Loan], called: Sequence[Loan]
) -> Iterator[tuple[Sequence[Loan], Because]]:
    if due:
        first = due[0]
        numbers: dict[str, Number] = {
            "node": first.node_name if len(due) == 1 else f"{len(due)} nodes",
            "due": first.due.isoformat(timespec="minutes"),
            "return_seconds": seconds(state.return_time(look.pool)),
        }
        yield due, Because(Reason.LOAN_DUE, numbers)
    groups: dict[str, tuple[list[Loan], Because]] = {}
    for loan in called:
        because = recalled(state, loan)
        if because is not None:
            key = f"{because.reason}{sorted(because.numbers.items())}"
            groups.setdefault(key, ([], because))[0].append(loan)
    yield from groups.values()


def _comings(state: State, loans: Sequence[Loan], now: datetime) -> tuple[list[Homecoming], tuple[Alternative, ...]]:
    """All of them come home; what cannot be moved on a node is told, and the rest of that node still goes."""
    found: list[Homecoming] = []
    notes: list[Alternative] = []
    for loan in loans:
        answer = homecoming(state, loan, now, pressing=True)
        if isinstance(answer, Because) and answer.reason is Reason.IN_TRANSIT:
            continue  # part of a gang is leaving in another plan; once it is over the rest is planned
        if isinstance(answer, Because):
            notes.append(Alternative(loan.node_name, answer))
            answer = _without_squatters(state, loan, now)
        found.append(answer)
    return found, tuple(notes)


def _without_squatters(state: State, loan: Loan, now: datetime) -> Homecoming:
    node = state.inventory.nodes[loan.node]
    gangs: list[Casualty] = []
    for gang in dict.fromkeys(pod.gang for pod in state.lent_pods(node) if pod.gang not in state.busy_gangs):
        members = [pod for pod in state.inventory.gang_pods(gang) if pod.node and not pod.terminal]
        live = tuple(pod for pod in members if pod.deleting_at is None)
        if live and all(immovable(state, pod, pressing=True) is None for pod in live):
            gangs.append(Casualty(gang, live, whole=True, lost_gpu_seconds=lost_work(live, now), patience=None))
    return Homecoming(loan, node, tuple(gangs))
