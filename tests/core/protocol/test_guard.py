"""Guarded edits: foreign taints keep their bytes and order, the owner's taint its place, whatever happens between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.core.facts import LoanMark, Node, Taint
from rebalancer.core.protocol import guard
from rebalancer.core.protocol.calls import PatchNode
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import CLOSING, ON_LOAN
from tests.core.protocol.fake import FOREIGN, OWNER, T0, lend_step, lent, mark, node

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
foreign_taints = st.lists(
    st.builds(Taint, st.sampled_from([f"example.com/k{i}" for i in range(6)]), st.text("abc", max_size=3),
              st.sampled_from(EFFECTS)),
    max_size=6, unique_by=lambda taint: (taint.key, taint.effect),
)  # fmt: skip


def apply(on: Node, edit: guard.Edit) -> Node:
    assert isinstance(edit, PatchNode)
    assert edit.resource_version == on.resource_version
    return replace(on, taints=edit.taints, loan=edit.loan, resource_version=on.resource_version + "+")


def close_lend_close(on: Node, between: Callable[[Node], Node]) -> Node:
    step = lend_step()
    on = between(apply(on, guard.close_home(on, step, 1)))
    on = between(apply(on, guard.lend(on, step, "p", 1, T0)))
    return between(apply(on, guard.close_lent(on, on.uid, step.loan, "q", 1)))


@given(before=foreign_taints, after=foreign_taints)
def test_lending_and_restoring_gives_back_exactly_the_taints_that_were_there(
    before: list[Taint], after: list[Taint]
) -> None:
    taints = (*before, OWNER, *(item for item in after if item not in before))
    away = close_lend_close(node(taints=taints), lambda on: on)
    assert OWNER not in away.taints
    assert sum(item.key == ON_LOAN for item in away.taints) == 1
    home = apply(away, guard.restore(away, away.uid, "loan-n1", 1))
    assert home.taints == taints
    assert home.loan is None


@given(
    before=foreign_taints, after=foreign_taints,
    removed=st.sets(st.integers(0, 11)), added=foreign_taints, at=st.integers(0, 12),
)  # fmt: skip
def test_foreign_edits_in_between_survive_and_the_owner_keeps_its_place_among_them(
    before: list[Taint], after: list[Taint], removed: set[int], added: list[Taint], at: int
) -> None:
    keys = {(item.key, item.effect) for item in before}
    after = [item for item in after if (item.key, item.effect) not in keys]
    new = [replace(item, key="other.org/" + item.key) for item in added]

    def between(on: Node) -> Node:
        own = {item.key for item in on.taints} & guard.OURS | {OWNER.key}
        kept = [item for index, item in enumerate(on.taints) if item.key in own or index not in removed]
        if not any(item in kept for item in new):
            kept = [*kept[:at], *new, *kept[at:]]
        return replace(on, taints=tuple(kept))

    away = close_lend_close(node(taints=(*before, OWNER, *after)), between)
    home = apply(away, guard.restore(away, away.uid, "loan-n1", 1))
    expected = [OWNER if item.key == ON_LOAN else item for item in away.taints if item.key != CLOSING]
    assert list(home.taints) == expected
    assert [item for item in home.taints if item != OWNER] == [i for i in away.taints if i.key not in guard.OURS]


@given(foreign_taints)
def test_a_node_without_an_owner_taint_comes_back_without_one(taints: list[Taint]) -> None:
    step = replace(lend_step(), owner_taint=None)
    on = node(taints=tuple(taints))
    on = apply(on, guard.close_home(on, step, 1))
    on = apply(on, guard.lend(on, step, "p", 1, T0))
    on = apply(on, guard.close_lent(on, on.uid, step.loan, "q", 1))
    assert apply(on, guard.restore(on, on.uid, step.loan, 1)).taints == tuple(taints)


def test_the_mark_remembers_the_exact_taint_and_its_place() -> None:
    on = node(taints=(FOREIGN, OWNER, Taint(CLOSING)))
    edit = guard.lend(on, lend_step(), "p", 3, T0)
    assert isinstance(edit, PatchNode)
    assert edit.loan is not None
    assert (edit.loan.taint, edit.loan.taint_index, edit.loan.epoch) == (OWNER, 1, 3)
    assert edit.taints == (FOREIGN, Taint(ON_LOAN, "training"))


def test_an_on_loan_taint_that_someone_removed_leaves_the_old_index_as_the_place() -> None:
    on = replace(lent(), taints=(FOREIGN, Taint("a"), Taint(CLOSING)), loan=replace(mark(), taint_index=1))
    edit = guard.restore(on, on.uid, "loan-n1", 1)
    assert isinstance(edit, PatchNode)
    assert edit.taints == (FOREIGN, OWNER, Taint("a"))


def test_an_owner_taint_that_someone_put_back_is_not_put_back_twice() -> None:
    other = replace(OWNER, value="edited")
    on = replace(lent(), taints=(other, Taint(ON_LOAN, "training"), Taint(CLOSING)))
    edit = guard.restore(on, on.uid, "loan-n1", 1)
    assert isinstance(edit, PatchNode)
    assert edit.taints == (other,)


CLOSED = replace(lent(), taints=(*lent().taints, Taint(CLOSING)), loan=replace(mark(), phase="recalling", plan="q"))
SO: dict[str, guard.Edit] = {
    "closing a node that is closed for lending": guard.close_home(node(taints=(OWNER, Taint(CLOSING))), lend_step(), 1),
    "closing for a lend that already happened": guard.close_home(lent(), lend_step(), 1),
    "lending a node that this loan already has": guard.lend(lent(), lend_step(), "p", 1, T0),
    "closing a lent node that this plan already closed": guard.close_lent(CLOSED, "uid-n1", "loan-n1", "q", 1),
    "opening a node that is open": guard.reopen(lent(), "uid-n1", "p", 1),
    "restoring a node that carries nothing of ours": guard.restore(node(), "uid-n1", "loan-n1", 1),
}


@pytest.mark.parametrize("edit", SO.values(), ids=SO)
def test_nothing_is_patched_when_it_is_so_already(edit: guard.Edit) -> None:
    assert edit is None


NEWER = replace(lent(), loan=mark(epoch=5))
OTHER: LoanMark = mark(loan="other")
NO: dict[str, tuple[guard.Edit, Reason]] = {
    "closing a node that a newer actor marked": (
        guard.close_lent(NEWER, "uid-n1", "loan-n1", "p", 4), Reason.STALE_EPOCH),
    "opening a node that a newer actor marked": (guard.reopen(NEWER, "uid-n1", "p", 4), Reason.STALE_EPOCH),
    "restoring a node that a newer actor marked": (guard.restore(NEWER, "uid-n1", "loan-n1", 4), Reason.STALE_EPOCH),
    "lending a node that a newer actor marked": (guard.lend(NEWER, lend_step(), "p", 4, T0), Reason.STALE_EPOCH),
    "closing another node of the same name": (guard.close_lent(lent(), "old", "loan-n1", "p", 1), Reason.NODE_GONE),
    "lending a node that is not closed": (guard.lend(node(), lend_step(), "p", 1, T0), Reason.CONTENDED),
    "restoring a node that is not closed": (guard.restore(lent(), "uid-n1", "loan-n1", 1), Reason.CONTENDED),
    "restoring another loan": (guard.restore(replace(lent(), loan=OTHER), "uid-n1", "loan-n1", 1), Reason.NODE_CHANGED),
    "recalling a loan without a mark": (guard.close_lent(node(), "uid-n1", "loan-n1", "p", 1), Reason.LOAN_LOST),
    "lending without the owner's taint": (
        guard.lend(node(taints=(Taint(CLOSING),)), lend_step(), "p", 1, T0), Reason.NODE_CHANGED),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "reason"), NO.values(), ids=NO)
def test_an_edit_refuses(edit: guard.Edit, reason: Reason) -> None:
    assert isinstance(edit, Because)
    assert edit.reason is reason


def test_a_node_at_home_may_be_fenced_without_a_loan() -> None:
    edit = guard.close_lent(node(), "uid-n1", "", "p", 1)
    assert isinstance(edit, PatchNode)
    assert edit.taints == (OWNER, FOREIGN, Taint(CLOSING))
    assert edit.loan is None


def test_every_patch_of_a_lent_node_carries_our_epoch() -> None:
    closing = guard.close_lent(lent(), "uid-n1", "loan-n1", "q", 4)
    opening = guard.reopen(CLOSED, "uid-n1", "q", 4)
    for edit, phase in ((closing, "recalling"), (opening, "on-loan")):
        assert isinstance(edit, PatchNode)
        assert edit.loan is not None
        assert (edit.loan.epoch, edit.loan.phase, edit.loan.plan) == (4, phase, "q")


def test_no_edit_ever_adds_a_taint_that_evicts() -> None:
    on = node()
    away = close_lend_close(on, lambda item: item)
    assert {item.effect for item in away.taints if item.key in guard.OURS} == {"NoSchedule"}
