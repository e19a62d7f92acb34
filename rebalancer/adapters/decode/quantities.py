"""Kubernetes quantities: "2", 2, "2k", "500m", "1e3", "16Gi".

Grammar of apimachinery's ``resource.Quantity``; bounded, so that no text can ask for a gigantic number.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from rebalancer.adapters.decode.errors import DecodeError

STAGE = "quantity"
LIMIT = 2**63 - 1
"""Kubernetes caps a quantity at the largest int64; more than that is refused here."""
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_GRAMMAR = re.compile(
    r"([+-]?)(\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:([eE][+-]?\d{1,2})|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?))",
    re.ASCII,
)


def quantity(value: object) -> Fraction:
    """The exact number that a quantity stands for.

    Raises:
        DecodeError: it is not a quantity, or lies beyond what Kubernetes can hold.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise DecodeError(STAGE, f"{type(value).__name__} is not a quantity")
    if isinstance(value, int):
        return _bounded(Fraction(value))
    found = _GRAMMAR.fullmatch(repr(value) if isinstance(value, float) else value)
    if found is None:
        raise DecodeError(STAGE, f"{str(value)[:40]!r} is not a quantity")
    sign, digits, exponent, suffix = found.groups()
    scale = _power(10, int(exponent[1:])) if exponent else _scale(suffix)
    return _bounded((-1 if sign == "-" else 1) * Fraction(digits.rstrip(".") if digits != "." else "0") * scale)


def _scale(suffix: str) -> Fraction:
    return _power(2, _BINARY[suffix]) if suffix in _BINARY else _power(10, _DECIMAL[suffix])


def _power(base: int, exponent: int) -> Fraction:
    return Fraction(base**exponent) if exponent >= 0 else Fraction(1, base**-exponent)


def _bounded(number: Fraction) -> Fraction:
    if abs(number) > LIMIT:
        raise DecodeError(STAGE, "beyond the largest quantity that Kubernetes can hold")
    return number


def count(value: object) -> int:
    """A quantity of devices: rounded up as the scheduler does (``Quantity.Value``), never negative.

    Raises:
        DecodeError: as :func:`quantity`, or a negative amount.
    """
    if isinstance(value, str) and len(value) < 19 and value.isascii() and value.isdigit():
        return int(value)
    number = quantity(value)
    if number < 0:
        raise DecodeError(STAGE, "a negative number of devices")
    return math.ceil(number)
