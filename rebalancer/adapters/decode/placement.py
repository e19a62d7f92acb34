"""Where a pod may run: selectors, required affinity, required spreading over hosts, tolerations.

Only what a scheduler requires is read; preferences are not. A term that Kubernetes lets match nothing stays a
term that matches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rebalancer.adapters.decode.objects import items, mapping, strings, text, texts
from rebalancer.core.facts import Requirement, Selector, Toleration

HOST = "kubernetes.io/hostname"
NAME_FIELD = "metadata.name"
"""The only field that node affinity can match; kept as the key of a requirement."""
NOTHING: Selector = (Requirement(HOST, "In", ()),)
"""A selector that no node satisfies."""


def label_selector(raw: object) -> Selector | None:
    """A LabelSelector: None (matches nothing) when absent, empty (matches all) when empty."""
    if not isinstance(raw, Mapping):
        return None
    equals = [Requirement(key, "In", (value,)) for key, value in sorted(texts(raw.get("matchLabels")).items())]
    return (*equals, *_expressions(raw.get("matchExpressions")))


def _expressions(raw: object) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(text(item.get("key")), text(item.get("operator")), strings(item.get("values")))
        for item in items(raw)
    )


def node_terms(spec: Mapping[str, Any]) -> tuple[Selector, ...]:
    """Node selector and required node affinity as OR of ANDs; empty when the pod may run anywhere."""
    base = tuple(Requirement(key, "In", (value,)) for key, value in sorted(texts(spec.get("nodeSelector")).items()))
    affinity = mapping(mapping(spec.get("affinity")).get("nodeAffinity"))
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not isinstance(required, Mapping):
        return (base,) if base else ()
    terms = [_term(item) for item in items(required.get("nodeSelectorTerms"))]
    return tuple(base + term for term in terms if term) or (NOTHING,)


def _term(raw: Mapping[str, Any]) -> Selector:
    """An empty term matches no node (core/v1 NodeSelectorTerm), so the caller leaves it out."""
    fields = tuple(item for item in _expressions(raw.get("matchFields")) if item.key == NAME_FIELD)
    return (*_expressions(raw.get("matchExpressions")), *fields)


def host_anti_affinity(spec: Mapping[str, Any]) -> tuple[Selector, ...]:
    """Required pod anti-affinity terms over hosts."""
    affinity = mapping(mapping(spec.get("affinity")).get("podAntiAffinity"))
    listed = items(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    found = (label_selector(item.get("labelSelector")) for item in listed if item.get("topologyKey") == HOST)
    return tuple(selector for selector in found if selector is not None)


def tolerations(spec: Mapping[str, Any]) -> tuple[Toleration, ...]:
    """All tolerations, in order; an unset operator is Equal, as the API server has it."""
    return tuple(
        Toleration(
            text(item.get("key")),
            text(item.get("operator")) or "Equal",
            text(item.get("value")),
            text(item.get("effect")),
        )
        for item in items(spec.get("tolerations"))
    )
