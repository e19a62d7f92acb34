"""Exact round trip of every stimulus, for the journal: what was handled can be handled again, bit for bit.

These bytes are our own and were the core's objects before, so they are decoded straight into its dataclasses.
A fact carries its kind beside it (``of``), because facts have no tag of their own.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Annotated, Any, cast

import orjson
from pydantic import Discriminator, TypeAdapter, ValidationError

from rebalancer.adapters.translate.messages import WireError
from rebalancer.adapters.translate.plain import exact, internal
from rebalancer.core import stimuli as told
from rebalancer.core.facts import Budget, Control, GangSpec, Namespace, Node, Pod
from rebalancer.core.stimuli import FactObserved, Stimulus

_FACTS: dict[str, type] = {
    "node": Node,
    "pod": Pod,
    "budget": Budget,
    "group": GangSpec,
    "namespace": Namespace,
    "control": Control,
}
_OF: dict[type, str] = {kind: of for of, kind in _FACTS.items()}
_Tagged = Annotated[
    told.FactDeleted | told.SnapshotBegan | told.SnapshotEnded | told.VerdictGiven | told.HeartbeatHeard
    | told.DemandReported | told.OutcomeReported | told.PolicyAdopted | told.PolicyRefused | told.Approved
    | told.RecallRequested | told.Restored | told.TermBegan | told.StreamLagged | told.TimePassed,
    Discriminator("kind"),
]  # fmt: skip
_AT: TypeAdapter[datetime] = TypeAdapter(datetime)


@cache
def _tagged() -> TypeAdapter[Any]:
    return TypeAdapter(_Tagged)


@cache
def _fact(of: str) -> TypeAdapter[Any]:
    return TypeAdapter(_FACTS[of])


def stimulus_bytes(stimulus: Stimulus) -> bytes:
    """A stimulus as JSON, tagged by ``kind``."""
    if not isinstance(stimulus, FactObserved):
        return exact(stimulus)
    return orjson.dumps(
        {
            "kind": stimulus.kind,
            "of": _OF[type(stimulus.fact)],
            "at": stimulus.at,
            "fact": orjson.Fragment(internal(stimulus.fact)),
        },
        option=orjson.OPT_UTC_Z,
    )


def encode_stimulus(stimulus: Stimulus) -> dict[str, Any]:
    """A stimulus as plain JSON values, tagged by ``kind``."""
    plain: dict[str, Any] = orjson.loads(stimulus_bytes(stimulus))
    return plain


def decode_stimulus(plain: Any) -> Stimulus:
    """The stimulus that :func:`encode_stimulus` was given; raises WireError("shape") for anything else."""
    if not isinstance(plain, dict):
        raise WireError("shape", "a stimulus is an object")
    try:
        if plain.get("kind") != "fact-observed":
            return cast("Stimulus", _tagged().validate_python(plain))
        if plain.get("of") not in _FACTS:
            raise WireError("shape", f"unknown kind of fact {plain.get('of')!r}")
        return FactObserved(_fact(plain["of"]).validate_python(plain.get("fact")), _AT.validate_python(plain.get("at")))
    except ValidationError as refused:
        raise WireError("shape", str(refused.errors(include_url=False, include_input=False)[:3])) from refused
