"""The first term of a topic is offset 0: a term like any other, and not the absence of one."""

from __future__ import annotations

from datetime import UTC, datetime

from rebalancer.core.engine import Engine
from rebalancer.core.policy import Policy, PoolPolicy
from rebalancer.core.stimuli import TermBegan
from rebalancer.core.units import OwnerClass

NOW = datetime(2026, 3, 3, tzinfo=UTC)


def test_an_engine_has_no_term_until_one_began_and_offset_0_is_one() -> None:
    engine = Engine("c", Policy({"a": PoolPolicy("a", "A100", OwnerClass.INFERENCE)}))
    assert engine.state.term < 0
    engine.handle(TermBegan(0), NOW)
    assert engine.state.term == 0
    engine.handle(TermBegan(7), NOW)
    engine.handle(TermBegan(3), NOW)
    assert engine.state.term == 7
