"""The Eviction API's answers, each with the move that it allows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.adapters.decode.eviction import MESSAGE_LIMIT, RETRY_LIMIT, eviction_answer
from rebalancer.core.protocol.calls import AnswerKind
from tests.decode import samples_here

BUDGET = {"details": {"causes": [{"reason": "DisruptionBudget", "message": "needs 3 and has 3"}]}}


@pytest.mark.parametrize(
    ("sample", "kind", "retry_after"),
    [
        pytest.param("201_success", AnswerKind.OK, None, id="accepted means releasing"),
        pytest.param("429_pdb_blocked", AnswerKind.BLOCKED, None, id="a budget blocks this victim"),
        pytest.param(
            "429_pdb_not_observed_retry10",
            AnswerKind.BLOCKED,
            10.0,
            id="an unobserved budget asks for ten seconds",
        ),
        pytest.param("429_api_throttling", AnswerKind.THROTTLED, 1.0, id="a throttle slows the client only"),
        pytest.param("500_two_pdbs", AnswerKind.TWO_BUDGETS, None, id="two budgets are permanent"),
        pytest.param("404_gone", AnswerKind.GONE, None, id="a missing pod is already gone"),
        pytest.param("409_uid_precondition", AnswerKind.CONFLICT, None, id="another pod has the name now"),
        pytest.param("403_pdb_negative", AnswerKind.FORBIDDEN, None, id="forbidden is reported"),
        pytest.param("504_conflict_timeout", AnswerKind.TIMED_OUT, 10.0, id="a conflict time-out asks to wait"),
    ],
)
def test_every_recorded_answer_means_its_own_move(sample: str, kind: AnswerKind, retry_after: float | None) -> None:
    recorded = samples_here.parsed(f"eviction/{sample}.json")
    answer = eviction_answer(recorded["http_status"], recorded["headers"], recorded["body"])
    assert (answer.kind, answer.retry_after) == (kind, retry_after)


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "retry_after"),
    [
        pytest.param(201, None, None, AnswerKind.OK, None, id="an empty 201 is accepted"),
        pytest.param(200, {}, {"status": "Success"}, AnswerKind.OK, None, id="a dry run answers 200"),
        pytest.param(200, {}, {"status": "Failure"}, AnswerKind.FAILED, None, id="a failure inside 200 is no success"),
        pytest.param(429, {"retry-after": "7"}, b"", AnswerKind.THROTTLED, 7.0, id="header names have no case"),
        pytest.param(429, {"Retry-After": "0"}, BUDGET, AnswerKind.BLOCKED, None, id="waiting for nothing is no wait"),
        pytest.param(
            429,
            {},
            b'{"message": "Cannot evict pod as it would violate the pod\'s disruption budget."}',
            AnswerKind.BLOCKED,
            None,
            id="an older server names the budget in the message only",
        ),
        pytest.param(429, {"Retry-After": "1e9"}, "", AnswerKind.THROTTLED, RETRY_LIMIT, id="a wait has an end"),
        pytest.param(429, {"Retry-After": "nan"}, "", AnswerKind.THROTTLED, None, id="a wait of NaN is none"),
        pytest.param(
            429,
            {"Retry-After": "Tue, 03 Mar 2026 06:00:30 GMT"},
            "",
            AnswerKind.THROTTLED,
            30.0,
            id="a date is a wait from now",
        ),
        pytest.param(500, {}, b"<html>boom</html>", AnswerKind.FAILED, None, id="another 500 may pass"),
        pytest.param(404, {}, b"", AnswerKind.GONE, None, id="a 404 without a body is a missing pod"),
        pytest.param(404, {}, b"404 page not found\n", AnswerKind.FAILED, None, id="a missing API is no missing pod"),
        pytest.param(
            404,
            {},
            {"reason": "NotFound", "message": "the server could not find the requested resource"},
            AnswerKind.FAILED,
            None,
            id="a missing subresource is no missing pod",
        ),
        pytest.param(503, {}, b"", AnswerKind.UNREACHABLE, None, id="no API server behind the balancer"),
        pytest.param(418, {}, [], AnswerKind.FAILED, None, id="an unheard-of number is a failure"),
        pytest.param(429, {}, {"details": {"causes": "x"}}, AnswerKind.THROTTLED, None, id="garbled causes are none"),
    ],
)
def test_answers_beyond_the_recorded_ones(
    status: int, headers: dict[str, str] | None, body: Any, kind: AnswerKind, retry_after: float | None
) -> None:
    now = datetime(2026, 3, 3, 6, 0, tzinfo=UTC)
    answer = eviction_answer(status, headers, body, now)
    assert (answer.kind, answer.retry_after) == (kind, retry_after)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(
    st.integers(100, 599),
    st.dictionaries(st.sampled_from(["Retry-After", "x"]), st.text()),
    st.binary() | JSON | st.fixed_dictionaries({"details": JSON, "message": JSON}),
)
def test_any_answer_at_all_is_an_answer(status: int, headers: dict[str, str], body: Any) -> None:
    answer = eviction_answer(status, headers, body, datetime(2026, 3, 3, tzinfo=UTC))
    assert isinstance(answer.kind, AnswerKind)
    assert len(answer.message) <= MESSAGE_LIMIT
