"""Bodies of the writes we make, from what the core wants and what the server really holds. Nothing is sent here.

The core's taint has three fields; the server's may have more (timeAdded). So a patch is built from the raw list of
the version that it is guarded by: taints that stay are sent back as they came, byte for byte, and what a removed
owner taint had beside the core's fields is kept in the loan annotation, to come back with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from rebalancer.adapters.decode.loan_marks import LOAN, loan_mark_from_json, loan_mark_to_json
from rebalancer.adapters.decode.nodes import node_taints
from rebalancer.adapters.decode.objects import annotations_of, items, mapping, metadata, text
from rebalancer.core.facts import LoanMark, Taint
from rebalancer.core.plan import Member
from rebalancer.core.protocol.calls import EvictPod, PatchNode
from rebalancer.core.units import PREFIX

EVICT_AT = PREFIX + "evict-at"
"""Pod annotation: when we shall evict it at the earliest."""
LAST_RECALL = PREFIX + "last-recall"
"""Annotation on a gang's top owner: when, and why, we last took its nodes back."""
EXTRA = "taintExtra"
"""Key in the loan annotation: fields of the removed owner taint that the core does not carry."""
CARRIED = frozenset({"key", "value", "effect"})
Raw = Mapping[str, Any]


def node_patch(call: PatchNode, node: Raw) -> dict[str, Any]:
    """A JSON merge patch of taints and loan annotation for the raw ``node`` that the call was decided upon."""
    extra = _extra(call.loan, node)
    spelled = None if call.loan is None else _annotation(call.loan, extra)
    meta = {"uid": call.node, "resourceVersion": call.resource_version, "annotations": {LOAN: spelled}}
    return {"metadata": meta, "spec": {"taints": _taints(call.taints, node, extra) or None}}


def _taints(wanted: tuple[Taint, ...], node: Raw, extra: Raw) -> list[dict[str, Any]]:
    listed = items(mapping(node.get("spec")).get("taints"))
    there = dict(zip(node_taints(node), [one for one in listed if text(one.get("key"))], strict=True))
    owner = _owner(node)
    return [
        dict(there[taint]) if taint in there else {**_spelled(taint), **(extra if taint == owner else {})}
        for taint in wanted
    ]


def _spelled(taint: Taint) -> dict[str, Any]:
    value = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, **value, "effect": taint.effect}


def _owner(node: Raw) -> Taint | None:
    """The owner taint that the node's mark keeps; a mark that cannot be read keeps none."""
    said = annotations_of(node).get(LOAN)
    try:
        return loan_mark_from_json(said).taint if said is not None else None
    except ValueError:
        return None


def _extra(mark: LoanMark | None, node: Raw) -> dict[str, Any]:
    """What the owner taint has beside the core's fields: as it stands on the node, else as the annotation kept it."""
    owner = (mark.taint if mark is not None else None) or _owner(node)
    for raw in items(mapping(node.get("spec")).get("taints")):
        if owner is not None and (raw.get("key"), raw.get("effect")) == (owner.key, owner.effect):
            return {key: value for key, value in raw.items() if key not in CARRIED}
    said = annotations_of(node).get(LOAN)
    try:
        return dict(mapping(mapping(orjson.loads(said)).get(EXTRA))) if said is not None else {}
    except orjson.JSONDecodeError:
        return {}


def _annotation(mark: LoanMark, extra: Raw) -> str:
    spelled = loan_mark_to_json(mark)
    if not extra:
        return spelled
    return orjson.dumps({**orjson.loads(spelled), EXTRA: extra}, option=orjson.OPT_SORT_KEYS).decode()


def eviction(call: EvictPod) -> dict[str, Any]:
    """A policy/v1 Eviction of this pod and no other of its name."""
    options: dict[str, Any] = {"preconditions": {"uid": call.member.uid}}
    if call.dry_run:
        options["dryRun"] = ["All"]
    meta = {"name": call.member.name, "namespace": call.member.namespace}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}


def notice_patch(member: Member, evict_at: datetime) -> dict[str, Any]:
    """A JSON merge patch of a pod; the uid refuses a pod that took over the name."""
    return {"metadata": {"uid": member.uid, "annotations": {EVICT_AT: zulu(evict_at)}}}


def recall_patch(evict_at: datetime, why: str) -> dict[str, Any]:
    """A JSON merge patch of a top owner, for its owner to read."""
    return {"metadata": {"annotations": {LAST_RECALL: f"{zulu(evict_at)} {why}"}}}


def zulu(moment: datetime) -> str:
    """RFC 3339 in whole seconds, as Kubernetes writes times."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def uid_refused(status: int, body: object) -> bool:
    """Whether a patch was refused because the object is another one of the same name: 422 on its uid."""
    causes = items(mapping(mapping(body).get("details")).get("causes"))
    return status == 422 and any(cause.get("field") == "metadata.uid" for cause in causes)


def same_version(node: Raw, call: PatchNode) -> bool:
    """Whether this raw node is the one that the call was decided upon."""
    meta = metadata(node)
    return (meta.get("uid"), meta.get("resourceVersion")) == (call.node, call.resource_version)
