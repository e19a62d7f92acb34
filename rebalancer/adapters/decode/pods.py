"""Pod objects into pod facts: a small digest of what demand, loans and victims need.

Nothing of managedFields, environment or large annotations is kept. A GPU amount that cannot be read is unknown,
which keeps the pod's node from being lent; it is never zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rebalancer.adapters.decode.claims import Claims, claimed_gpus
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.gang_keys import gang_of
from rebalancer.adapters.decode.moments import UNKNOWN_MOMENT, moment
from rebalancer.adapters.decode.nodes import opted_out
from rebalancer.adapters.decode.objects import (
    annotations_of,
    condition,
    items,
    labels_of,
    mapping,
    metadata,
    required,
    text,
    truthy,
    whole,
)
from rebalancer.adapters.decode.owners import controller, queue_of, top_owner, workload_identity
from rebalancer.adapters.decode.placement import host_anti_affinity, node_terms, tolerations
from rebalancer.adapters.decode.protection import owner_class, protections
from rebalancer.adapters.decode.resources import pod_gpus, shares_gpus
from rebalancer.core.facts import Pod, PodPhase
from rebalancer.core.units import PREFIX

STAGE = "pod"
RECLAIMABLE = PREFIX + "reclaimable"
NOTICE_SECONDS = PREFIX + "notice-seconds"
CHECKPOINTED_AT = PREFIX + "checkpointed-at"
CHECKPOINT_IN_PROGRESS = PREFIX + "checkpoint-in-progress"
PROGRESS = PREFIX + "progress"
FINISHES_AT = PREFIX + "finishes-at"
DEFAULT_GRACE = 30
"""Seconds, what the API server writes when a pod does not say."""
NOTICE_LIMIT = 86_400
"""Seconds; a longer notice than a day is read as a day."""


def decode_pod(raw: Mapping[str, Any], claims: Claims | None = None) -> Pod:
    """A pod fact. ``claims``: resource claims that are known; a pod whose claims are not has ``gpus`` None.

    Raises:
        DecodeError: it has no name, namespace or uid.
    """
    meta, spec, status = metadata(raw), mapping(raw.get("spec")), mapping(raw.get("status"))
    marks, uid = annotations_of(raw), required(meta.get("uid"), STAGE, "uid")
    owner, held_by, phase, gang = owner_class(raw), controller(raw), _phase(status), gang_of(raw, uid)
    created = moment(meta.get("creationTimestamp"))
    return Pod(
        uid=uid,
        name=required(meta.get("name"), STAGE, "name"),
        namespace=required(meta.get("namespace"), STAGE, "namespace"),
        gpus=_gpus(raw, uid, claims or {}),
        phase=phase,
        owner=owner,
        gang=gang.key,
        workload=workload_identity(raw),
        created_at=created or UNKNOWN_MOMENT,
        node=text(spec.get("nodeName")),
        gang_size=gang.size,
        gang_min=gang.least,
        queue=queue_of(raw),
        priority=whole(spec.get("priority")) or 0,
        labels=labels_of(raw),
        node_terms=node_terms(spec),
        tolerations=tolerations(spec),
        anti_affinity=host_anti_affinity(spec),
        reclaimable=truthy(labels_of(raw).get(RECLAIMABLE, "")),
        protected=protections(raw, owner, held_by, phase.value),
        controller_kind=held_by.kind,
        top_owner=top_owner(raw).reference,
        grace_seconds=_grace(spec, meta),
        notice_seconds=min(max(whole(marks.get(NOTICE_SECONDS, "")) or 0, 0), NOTICE_LIMIT),
        started_at=_started(status),
        deleting_at=moment(meta.get("deletionTimestamp")),
        checkpointed_at=moment(marks.get(CHECKPOINTED_AT)),
        checkpoint_in_progress=truthy(marks.get(CHECKPOINT_IN_PROGRESS, "")),
        progress=_progress(marks.get(PROGRESS, "")),
        finishes_at=moment(marks.get(FINISHES_AT)),
        nominated_node=text(status.get("nominatedNodeName")),
        gated=bool(items(spec.get("schedulingGates"))),
        unschedulable_since=_unschedulable_since(raw, created),
        ready=condition(raw, "Ready").get("status") == "True",
        opted_out=opted_out(marks),
        resource_version=text(meta.get("resourceVersion")),
    )


def _gpus(raw: Mapping[str, Any], uid: str, claims: Claims) -> int | None:
    """Devices by resource name plus those by claim; extended resources served by a claim are the former."""
    spec = mapping(raw.get("spec"))
    if not items(spec.get("containers")) or shares_gpus(raw):
        return None
    try:
        named = pod_gpus(spec)
    except DecodeError:
        return None
    claimed = claimed_gpus(raw, uid, claims)
    return named + claimed if claimed is not None else None


def _phase(status: Mapping[str, Any]) -> PodPhase:
    try:
        return PodPhase(text(status.get("phase")))
    except ValueError:
        return PodPhase.UNKNOWN


def _grace(spec: Mapping[str, Any], meta: Mapping[str, Any]) -> int:
    """Once a deletion runs, what that deletion was given; it may differ from the pod's own."""
    for value in (meta.get("deletionGracePeriodSeconds"), spec.get("terminationGracePeriodSeconds")):
        number = whole(value)
        if number is not None and number >= 0:
            return number
    return DEFAULT_GRACE


def _started(status: Mapping[str, Any]) -> datetime | None:
    """When the pod's work began: its latest running container, so a restart counts as a new start."""
    running = [mapping(mapping(item.get("state")).get("running")) for item in items(status.get("containerStatuses"))]
    starts = [start for start in (moment(state.get("startedAt")) for state in running) if start is not None]
    return max(starts) if starts else moment(status.get("startTime"))


def _progress(value: str) -> float | None:
    try:
        share = float(value)
    except ValueError:
        return None
    return share if math.isfinite(share) and 0.0 <= share <= 1.0 else None


def _unschedulable_since(raw: Mapping[str, Any], created: datetime | None) -> datetime | None:
    """A scheduler tried and failed: since when; since creation where the condition does not say."""
    tried = condition(raw, "PodScheduled")
    if tried.get("status") != "False" or tried.get("reason") != "Unschedulable":
        return None
    return moment(tried.get("lastTransitionTime")) or created
