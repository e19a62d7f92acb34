"""What a node's labels and taints say it is: pool, model, owner class; or why they cannot be believed.

Reads through the dialect map only. Contradictions quarantine, they never crash and never pick a winner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rebalancer.adapters.decode import dialects
from rebalancer.adapters.decode.dialects import Dialect, Model
from rebalancer.adapters.decode.objects import first, whole
from rebalancer.core.facts import Taint
from rebalancer.core.units import OwnerClass, PoolName

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
REPLICAS = "nvidia.com/gpu.replicas"
_UNDIVIDED = frozenset({"", "none", "false", "0", "1"})


@dataclass(frozen=True, slots=True)
class Identity:
    """What a node is, by its labels. ``quarantine`` "" when nothing contradicts."""

    pool: PoolName
    model: str
    owner: OwnerClass
    divided: bool
    network: str
    labelled: bool
    """Whether any label promises a GPU."""
    quarantine: str


def identify(labels: Mapping[str, str], taints: tuple[Taint, ...], known: Dialect) -> Identity:
    """Read the labels. ``taints`` include an owner taint that a loan has put aside."""
    complaints: list[str] = []
    model = _model(labels, known, complaints)
    owner = _owner(labels, taints, complaints)
    pool = _pool(labels, model.name, owner, known, complaints)
    owner = _agree_with_policy(pool, model.name, owner, known, complaints)
    divided = model.divided or (whole(labels.get(REPLICAS, "")) or 1) > 1
    divided = divided or any(labels.get(key, "none").lower() not in _UNDIVIDED for key in dialects.DIVIDING)
    _counts(labels, divided, complaints)
    return Identity(
        pool=pool,
        model=model.name,
        owner=owner,
        divided=divided,
        network=first(labels, (dialects.NETWORK, *dialects.NETWORK_LEGACY)),
        labelled=_labelled(labels, model),
        quarantine="; ".join(complaints),
    )


def _model(labels: Mapping[str, str], known: Dialect, complaints: list[str]) -> Model:
    spelled = _present(labels, (dialects.MODEL, *dialects.MODEL_LEGACY))
    for key, value in spelled:
        if dialects.is_boolean(value):
            complaints.append(f"{key}={value} is no model; {dialects.MODEL} names one, such as H100")
    read = [(key, dialects.canonical_model(value, known.models)) for key, value in spelled]
    read += [(key, dialects.canonical_model(labels.get(key, ""), known.models)) for key in dialects.MODEL_LOOSE]
    named = [(key, model) for key, model in read if model.name]
    if labels.get(dialects.MODEL) and not dialects.is_boolean(labels[dialects.MODEL]) and not read[0][1].name:
        complaints.append(f"{dialects.MODEL}={labels[dialects.MODEL]} is not a known model")
    if len({model.name for _, model in named}) > 1:
        complaints.append(_disagree(dialects.MODEL, ((key, model.name) for key, model in named)))
        return Model("", any(model.divided for _, model in read))
    fallback = known.instance_types.get(labels.get(INSTANCE_TYPE, ""), "")
    return Model(named[0][1].name if named else fallback, any(model.divided for _, model in read))


def _owner(labels: Mapping[str, str], taints: tuple[Taint, ...], complaints: list[str]) -> OwnerClass:
    said: list[tuple[str, OwnerClass]] = []
    for key, value in _present(labels, (dialects.OWNER, *dialects.OWNER_LEGACY)):
        owner = dialects.owner_word(value)
        if owner is not OwnerClass.UNKNOWN:
            said.append((key, owner))
        elif key == dialects.OWNER or dialects.is_boolean(value):
            complaints.append(f"{key}={value} is no class; {dialects.OWNER} must be one of {dialects.ALLOWED_OWNERS}")
    for taint in taints:
        owner = dialects.owner_word(taint.value)
        if taint.key in dialects.OWNER_TAINTS and owner is not OwnerClass.UNKNOWN:
            said.append((f"taint {taint.key}", owner))
    if len({owner for _, owner in said}) > 1:
        complaints.append(_disagree(dialects.OWNER, ((key, owner.value) for key, owner in said)))
        return OwnerClass.UNKNOWN
    return said[0][1] if said else OwnerClass.UNKNOWN


def _pool(labels: Mapping[str, str], model: str, owner: OwnerClass, known: Dialect, complaints: list[str]) -> PoolName:
    """Canonical label; a legacy one that the policy knows; composed if the policy has such a pool; a cloud's."""
    canonical = labels.get(dialects.POOL, "")
    if dialects.is_boolean(canonical):
        complaints.append(f"{dialects.POOL}={canonical} is no pool; {dialects.POOL} names one")
        canonical = ""
    legacy = [(key, value) for key, value in _present(labels, dialects.POOL_LEGACY) if value in known.pools]
    named = [(dialects.POOL, canonical), *legacy] if canonical else legacy
    if len({value for _, value in named}) > 1:
        complaints.append(_disagree(dialects.POOL, named))
        return ""
    if named:
        return named[0][1]
    return known.composed(model, owner) or first(labels, dialects.POOL_CLOUD)


def _agree_with_policy(
    pool: PoolName, model: str, owner: OwnerClass, known: Dialect, complaints: list[str]
) -> OwnerClass:
    """The policy says what a pool is made of; a node that says otherwise is in the wrong pool."""
    if pool not in known.pools:
        return owner
    pool_model, pool_owner = known.pools[pool]
    if model and pool_model and model != pool_model:
        complaints.append(f"pool {pool} is {pool_model}, the node says {dialects.MODEL} {model}")
    if owner is not OwnerClass.UNKNOWN and owner is not pool_owner:
        complaints.append(f"pool {pool} is for {pool_owner}, the node says {dialects.OWNER} {owner}")
    return pool_owner if owner is OwnerClass.UNKNOWN and not complaints else owner


def _counts(labels: Mapping[str, str], divided: bool, complaints: list[str]) -> None:
    """Counts in labels mean slices on divided nodes, so they can only disagree on whole ones."""
    said = [(key, whole(value)) for key, value in _present(labels, (dialects.COUNT, *dialects.COUNT_LEGACY))]
    numbers = {number for _, number in said if number is not None}
    if not divided and dialects.COUNT in labels and len(numbers) > 1:
        complaints.append(_disagree(dialects.COUNT, ((key, str(number)) for key, number in said)))


def _labelled(labels: Mapping[str, str], model: Model) -> bool:
    promised = (
        dialects.MODEL,
        *dialects.MODEL_LEGACY,
        *dialects.COUNT_LEGACY,
        dialects.COUNT,
        *dialects.PRESENCE,
    )
    return model.name != "" or any(labels.get(key, "").lower() not in ("", "false", "0", "none") for key in promised)


def _present(labels: Mapping[str, str], keys: Iterable[str]) -> list[tuple[str, str]]:
    return [(key, labels[key]) for key in keys if labels.get(key)]


def _disagree(canonical: str, said: Iterable[tuple[str, str]]) -> str:
    return f"labels disagree on {canonical}: " + ", ".join(f"{key} says {value}" for key, value in said)
