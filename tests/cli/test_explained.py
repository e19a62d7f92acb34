"""Unexplained: what a subscriber could not find on the topics is found here, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rebalancer.adapters.explained import missing_numbers, unexplained
from rebalancer.adapters.store import Store
from rebalancer.core.loans import LoanPhase
from rebalancer.core.plan import Alternative
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import Mode
from tests.cli import night

Spoil = Callable[[Store], None]


def change_plan(store: Store, plan: str, **changes: object) -> None:
    store.plans[plan] = replace(store.plans[plan], **changes)  # type: ignore[arg-type]


def lose_outcome(store: Store) -> None:
    kept = {key: told for key, told in store.outcomes[night.RECLAIM].items() if told.step != 2}
    store.outcomes[night.RECLAIM] = kept


def only_shadow(store: Store) -> None:
    del store.outcomes[night.LEND]
    change_plan(store, night.LEND, mode=Mode.SHADOW)


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        pytest.param(lambda _: None, [], id="a night that is explained"),
        pytest.param(
            lambda store: change_plan(store, night.LEND, because=Because(Reason.LOAN_DUE, {"node": "a-1"})),
            [f"plan {night.LEND}: its reason (loan-due) lacks due, return_seconds"],
            id="a reason without its numbers",
        ),
        pytest.param(
            lambda store: change_plan(
                store, night.LEND, alternatives=(Alternative("b", Because(Reason.CHECKPOINTING)),)
            ),
            [f"plan {night.LEND}: alternative b (checkpointing) lacks gang"],
            id="an alternative without its numbers",
        ),
        pytest.param(
            lose_outcome, [f"plan {night.RECLAIM}: step 2 (restore) has no outcome"], id="a step without an outcome"
        ),
        pytest.param(
            only_shadow,
            [],
            id="a shadow plan is never carried out",
        ),
        pytest.param(
            lambda store: store.plans.pop(night.LEND) and None,
            [
                f"outcomes of plan {night.LEND}, which is on no topic",
                f"loan loan-1: its plan {night.LEND} is on no topic",
            ],
            id="a plan that was not published",
        ),
        pytest.param(
            lambda store: store.loans.update(
                {"loan-1": replace(night.loan(LoanPhase.LOST), because=Because(Reason.HELD))}
            ),
            [
                "loan loan-1: its reason (held) lacks held_gpus",
                "loan loan-1: is lost and does not say since when",
            ],
            id="a loan that is over without a word",
        ),
    ],
)
def test_what_is_missing_is_found(store: Store, spoil: Spoil, found: list[str]) -> None:
    spoil(store)
    assert list(unexplained(store)) == found


def test_a_sentence_that_needs_nothing_lacks_nothing() -> None:
    assert missing_numbers(Because(Reason.NOT_NEEDED)) == ()
    assert missing_numbers(Because(Reason.COSTS_MORE)) == ("gang", "lost_gpu_seconds")
