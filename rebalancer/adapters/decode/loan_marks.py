"""The loan annotation on a node, both ways.

What is written must be enough to restore the node without any other memory; what cannot be read is reported,
never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.moments import moment
from rebalancer.adapters.decode.objects import mapping, required, text, whole
from rebalancer.core.facts import LoanMark, Taint
from rebalancer.core.units import PREFIX, OwnerClass

STAGE = "loan-annotation"
LOAN = PREFIX + "loan"
"""Annotation key."""


def loan_mark_to_json(mark: LoanMark) -> str:
    """The annotation's text; keys sorted, so that equal marks are equal texts."""
    taint = None
    if mark.taint is not None:
        taint = {"key": mark.taint.key, "value": mark.taint.value, "effect": mark.taint.effect}
    body = {
        "loan": mark.loan,
        "nodeUid": mark.node_uid,
        "lender": mark.lender,
        "borrower": mark.borrower.value,
        "gang": mark.gang,
        "due": mark.due.isoformat(),
        "recallAt": mark.recall_at.isoformat(),
        "phase": mark.phase,
        "plan": mark.plan,
        "epoch": mark.epoch,
        "openedAt": mark.opened_at.isoformat(),
        "taint": taint,
        "taintIndex": mark.taint_index,
    }
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS).decode()


def loan_mark_from_json(annotation: str) -> LoanMark:
    """Read the annotation.

    Raises:
        DecodeError: it is not JSON, or lacks something that undoing the loan needs.
    """
    try:
        body = mapping(orjson.loads(annotation))
    except (orjson.JSONDecodeError, UnicodeEncodeError) as broken:
        raise DecodeError(STAGE, "not JSON") from broken
    epoch = whole(body.get("epoch"))
    borrower = text(body.get("borrower"))
    if epoch is None or borrower not in {member.value for member in OwnerClass}:
        raise DecodeError(STAGE, "epoch or borrower is missing or unreadable")
    return LoanMark(
        loan=required(body.get("loan"), STAGE, "loan"),
        node_uid=required(body.get("nodeUid"), STAGE, "nodeUid"),
        lender=required(body.get("lender"), STAGE, "lender"),
        borrower=OwnerClass(borrower),
        gang=text(body.get("gang")),
        due=_moment(body, "due"),
        recall_at=_moment(body, "recallAt"),
        phase=required(body.get("phase"), STAGE, "phase"),
        plan=text(body.get("plan")),
        epoch=epoch,
        opened_at=_moment(body, "openedAt"),
        taint=_taint(body.get("taint")),
        taint_index=whole(body.get("taintIndex")),
    )


def _moment(body: Mapping[str, Any], key: str) -> datetime:
    found = moment(body.get(key))
    if found is None:
        raise DecodeError(STAGE, f"{key} is missing or no time")
    return found


def _taint(raw: object) -> Taint | None:
    if raw is None:
        return None
    found = mapping(raw)
    return Taint(required(found.get("key"), STAGE, "taint key"), text(found.get("value")), text(found.get("effect")))
