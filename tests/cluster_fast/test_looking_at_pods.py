"""What preflight says of gangs, from their objects alone."""

from __future__ import annotations

import pytest

from rebalancer.adapters.cluster.lookatpods import cannot_borrow, state_of
from rebalancer.core.facts import Pod
from tests.core.build import START, gang, node, policy


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        pytest.param(gang("a", created_at=START), [], id="a gang that was created just now could borrow"),
        pytest.param(
            gang("a", created_at=START, reclaimable=False), ["ml/a"],
            id="one that was created just now and did not opt in could not",
        ),
    ],
)  # fmt: skip
def test_who_could_never_borrow(pods: list[Pod], found: list[str]) -> None:
    state = state_of([node("n0"), *pods], policy(), START)
    assert [one.object for one in cannot_borrow(state, START)] == found
