"""Single values as people write them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rebalancer.adapters import scalars
from rebalancer.core.facts import Taint
from rebalancer.core.units import Mode


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        pytest.param(scalars.duration, "90s", timedelta(seconds=90), id="seconds"),
        pytest.param(scalars.duration, "1h30m", timedelta(minutes=90), id="hours and minutes"),
        pytest.param(scalars.duration, " 2d ", timedelta(days=2), id="days, with blanks around"),
        pytest.param(scalars.duration, "250ms", timedelta(milliseconds=250), id="milliseconds"),
        pytest.param(scalars.duration, "1.5h", timedelta(minutes=90), id="a fraction"),
        pytest.param(scalars.number, "20%", 0.2, id="per cent"),
        pytest.param(scalars.number, "1e-4", 1e-4, id="an exponent"),
        pytest.param(scalars.integer, "-3", -3, id="a whole number"),
        pytest.param(scalars.boolean, "Yes", True, id="yes"),
        pytest.param(scalars.boolean, "off", False, id="off"),
        pytest.param(scalars.choice(Mode), "SHADOW", Mode.SHADOW, id="a choice, in any case"),
        pytest.param(scalars.taint, "a=b:NoSchedule", Taint("a", "b"), id="a taint"),
        pytest.param(scalars.taint, "a:PreferNoSchedule", Taint("a", "", "PreferNoSchedule"), id="a taint, no value"),
    ],
)
def test_it_is_read(parse: Callable[[str], Any], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        pytest.param(scalars.duration, "20", id="a duration without unit"),
        pytest.param(scalars.duration, "20 m", id="a blank before the unit"),
        pytest.param(scalars.duration, "-5m", id="a negative duration"),
        pytest.param(scalars.duration, "5m later", id="words after it"),
        pytest.param(scalars.duration, "99999999999999d", id="longer than can be counted"),
        pytest.param(scalars.number, "nan", id="not a number"),
        pytest.param(scalars.number, "inf", id="infinity"),
        pytest.param(scalars.integer, "1_000", id="an underscore"),
        pytest.param(scalars.integer, "9" * 30, id="a number that no counter holds"),
        pytest.param(scalars.boolean, "1", id="a digit for true"),
        pytest.param(scalars.word, "  ", id="an empty word"),
        pytest.param(scalars.taint, "a=b", id="a taint without effect"),
        pytest.param(scalars.taint, "a=b:NoExecute", id="a taint that evicts"),
        pytest.param(scalars.zone, "Mars/Base", id="a zone that is nowhere"),
        pytest.param(scalars.zone, "", id="no zone"),
    ],
)
def test_it_is_refused(parse: Callable[[str], Any], text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)


@given(some.integers(min_value=0, max_value=10**9))
def test_a_duration_reads_back_as_it_is_spoken(count: int) -> None:
    length = timedelta(milliseconds=count * 500)
    assert abs(scalars.duration(scalars.spoken(length)) - length) < timedelta(milliseconds=1)
