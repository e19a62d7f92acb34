"""Quantities in every spelling, and GPU counts by the scheduler's formula."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.quantities import LIMIT, count, quantity
from rebalancer.adapters.decode.resources import WHOLE, is_gpu, pod_gpus


@pytest.mark.parametrize(
    ("spelled", "number"),
    [
        ("2", 2),
        (2, 2),
        (2.0, 2),
        ("2k", 2000),
        ("500m", Fraction(1, 2)),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("12e-1", Fraction(6, 5)),
        ("+1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("0", 0),
        ("1Ki", 1024),
        ("16Gi", 16 * 2**30),
        ("7n", Fraction(7, 10**9)),
        ("-3", -3),
        ("1031840Ki", 1031840 * 1024),
    ],
)
def test_a_quantity_is_the_number_it_spells(spelled: Any, number: Fraction) -> None:
    assert quantity(spelled) == number


@pytest.mark.parametrize(
    "spelled",
    ["", " 2", "2 ", "2kk", "2ki", "1_000", "two", "NaN", "inf", "1e999", "10E", "٣", ".", "--1", None, True, [], {},
     "1e", float("nan"), float("inf"), 2**64, "9" * 60],
)  # fmt: skip
def test_what_is_no_quantity_is_refused(spelled: Any) -> None:
    with pytest.raises(DecodeError):
        quantity(spelled)


@pytest.mark.parametrize(("spelled", "devices"), [("2k", 2000), ("1500m", 2), (0, 0), ("1", 1)])
def test_devices_are_counted_as_the_scheduler_does(spelled: Any, devices: int) -> None:
    assert count(spelled) == devices


def test_a_negative_number_of_devices_is_refused() -> None:
    with pytest.raises(DecodeError):
        count("-1")


@given(st.text(max_size=50) | st.integers() | st.floats() | st.none() | st.booleans() | st.lists(st.integers()))
def test_any_value_is_a_bounded_number_or_a_decode_error(value: Any) -> None:
    try:
        number = quantity(value)
    except DecodeError:
        return
    assert abs(number) <= LIMIT


@given(st.integers(0, 2**40))
def test_plain_numbers_come_back_as_text_or_number(number: int) -> None:
    assert quantity(str(number)) == quantity(number) == number


def box(amount: Any, where: str = "requests", *, stays: bool = False, name: str = WHOLE) -> dict[str, Any]:
    made: dict[str, Any] = {"name": "c", "resources": {where: {name: amount}}}
    return {**made, "restartPolicy": "Always"} if stays else made


@pytest.mark.parametrize(
    ("spec", "gpus"),
    [
        pytest.param({"containers": [box(2), box("3")]}, 5, id="containers add up"),
        pytest.param({"containers": [box(3, "limits")]}, 3, id="limits alone count"),
        pytest.param({"containers": [box(2)], "initContainers": [box(5)]}, 5, id="the init peak holds for life"),
        pytest.param({"containers": [box(2)], "initContainers": [box(1), box(1)]}, 2, id="inits run one by one"),
        pytest.param({"containers": [box(2)], "initContainers": [box(1, stays=True)]}, 3, id="a sidecar adds"),
        pytest.param(
            {"containers": [box(1)], "initContainers": [box(1, stays=True), box(4)]}, 5, id="an init beside a sidecar"
        ),
        pytest.param(
            {"containers": [box(1)], "initContainers": [box(4), box(1, stays=True)]}, 4, id="an init before a sidecar"
        ),
        pytest.param({"containers": [box(2)], "overhead": {WHOLE: "1"}}, 3, id="overhead adds"),
        pytest.param(
            {"containers": [box(3)], "resources": {"requests": {"cpu": "8", WHOLE: "1"}}},
            3,
            id="pod level is no device",
        ),
        pytest.param({"containers": [box("1k")]}, 1000, id="suffixes count"),
        pytest.param(
            {"containers": [box(2, name="nvidia.com/mig-1g.10gb"), box(1, name="nvidia.com/gpu.shared")]}, 3, id="parts"
        ),
        pytest.param({"containers": [box(2, name="nvidia.com/mig-1g.10gb.me")]}, 2, id="a MIG profile with media"),
        pytest.param({"containers": [box("x", name="nvidia.com/hostdev")]}, 0, id="other devices are not read"),
        pytest.param({"containers": [{"resources": None}, "garbled"]}, 0, id="nothing asked"),
    ],
)
def test_a_pod_holds_what_the_scheduler_reserves(spec: dict[str, Any], gpus: int) -> None:
    assert pod_gpus(spec) == gpus


@pytest.mark.parametrize(
    ("name", "gpu"),
    [(WHOLE, True), ("nvidia.com/mig-3g.40gb", True), ("nvidia.com/gpu.shared", True),
     ("nvidia.com/mig-1g.10gb.shared", True), ("nvidia.com/mig.config", False),
     ("nvidia.com/gpumem", False),
     ("nvidia.com/gpu.memory", False), ("requests.nvidia.com/gpu", False), ("cpu", False)],
)  # fmt: skip
def test_only_gpu_resources_are_gpus(name: str, gpu: bool) -> None:
    assert is_gpu(name) is gpu
