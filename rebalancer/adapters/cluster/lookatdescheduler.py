"""Preflight's judgement of a descheduler beside us: does its policy leave nodes alone that change hands. Pure.

A node that is being taken back bears our closing taint, which its pods do not tolerate; the plugin for violated
taints would evict them one by one, and split their gangs, unless the taint is excluded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from rebalancer.adapters.cluster.findings import Code, Finding, Severity
from rebalancer.adapters.decode.objects import items, mapping, metadata, strings, text, texts
from rebalancer.core.units import CLOSING, ON_LOAN

KIND = "DeschedulerPolicy"
PLUGIN = "RemovePodsViolatingNodeTaints"
TEXT_LIMIT = 256 * 1024
"""Characters of a policy that are read: a ConfigMap holds at most 1 MiB, and policies have a few hundred lines."""
STEP = f"add excludedTaints: [{CLOSING}, {ON_LOAN}] to the args of {PLUGIN} (deploy/descheduler has the snippet)"


def descheduler(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """What a ConfigMap's descheduler policies would do to us; nothing if it holds none."""
    meta = metadata(raw)
    name = f"{text(meta.get('namespace'))}/{text(meta.get('name'))}"
    for key, held in texts(raw.get("data")).items():
        if KIND in held:
            yield from _policy(f"{name}:{key}", held)


def _policy(name: str, held: str) -> Iterator[Finding]:
    try:
        policy = mapping(yaml.safe_load(held[:TEXT_LIMIT]))
    except yaml.YAMLError as unreadable:
        said = f"its policy cannot be read: {str(unreadable).splitlines()[0]}"
        yield Finding(Code.DESCHEDULER_EVICTS, Severity.WARNS, name, said, STEP)
        return
    if policy.get("kind") != KIND:
        return
    for profile in [*items(policy.get("profiles")), *_legacy(policy)]:
        missing = _missing(profile)
        if missing:
            severity = Severity.STOPS if CLOSING in missing else Severity.WARNS
            said = f"{PLUGIN} would evict pods one by one for our taints: {', '.join(missing)} not excluded"
            yield Finding(Code.DESCHEDULER_EVICTS, severity, name, said, STEP)


def _legacy(policy: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A v1alpha1 policy's strategy, as a profile."""
    held = mapping(mapping(policy.get("strategies")).get(PLUGIN))
    if held.get("enabled") is not True:
        return []
    config = {"name": PLUGIN, "args": mapping(held.get("params"))}
    return [{"pluginConfig": [config], "plugins": {"deschedule": {"enabled": [PLUGIN]}}}]


def _missing(profile: Mapping[str, Any]) -> list[str]:
    """Our taints that the profile's plugin acts upon; nothing where it is not enabled."""
    plugins = mapping(profile.get("plugins"))
    enabled = {name for point in plugins.values() for name in strings(mapping(point).get("enabled"))}
    if PLUGIN not in enabled:
        return []
    configs = [one for one in items(profile.get("pluginConfig")) if one.get("name") == PLUGIN]
    args = mapping(configs[0].get("args")) if configs else {}
    excluded, included = (_keys(strings(args.get(key))) for key in ("excludedTaints", "includedTaints"))
    return [key for key in (CLOSING, ON_LOAN) if key not in excluded and (not included or key in included)]


def _keys(spelled: tuple[str, ...]) -> set[str]:
    """Taints are spelled ``key`` or ``key=value``; a value narrows an exclusion, so only a bare key counts."""
    return {item for item in spelled if "=" not in item}
