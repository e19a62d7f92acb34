"""Makes what is generated under deploy/, and says what is stale: `python -m tests.deploy.manifests [--check]`.

The chart's files come from the program (rights from `permissions.py`, the label dialect from `dialects.py`, rules
from deploy/monitoring); plain manifests and admission policies come from the chart by `helm template`. So there is one
source of each, and no helm is needed to use the plain ones. Nothing here is applied to anything.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import yaml

from rebalancer.adapters.cluster.permissions import PERMISSIONS, Profile, Right
from rebalancer.adapters.decode import dialects
from rebalancer.adapters.scalars import spoken
from rebalancer.core.policy import Borrowing, Policy
from tests.deploy.rendering import render

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "chart"
NAMESPACE = "gpu-rebalancer"
ONLY_HELMS = ("app.kubernetes.io/managed-by", "helm.sh/chart")
"""Labels that plain manifests do not carry."""
RIGHTS = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
MADE = "# Made by `make manifests`; change {}, not this file.\n"
Object = dict[str, Any]


# -- the chart's own files ---------------------------------------------------------------------------------------------


def chart_files() -> dict[Path, str]:
    """What the chart reads by `.Files`."""
    alerts = (DEPLOY / "monitoring/rules.yaml").read_text(encoding="utf-8")
    return {
        CHART / "files/rbac.yaml": MADE.format("rebalancer/adapters/cluster/permissions.py") + _yaml(rbac()),
        CHART / "files/dialect.yaml": MADE.format("rebalancer/adapters/decode/dialects.py") + _yaml(dialect()),
        CHART / "files/rules.yaml": MADE.format("deploy/monitoring/rules.yaml") + alerts[alerts.index("groups:") :],
    }


def rbac() -> Mapping[str, Any]:
    """Rules of every profile at both scopes, as a Role spells them."""
    return {
        profile: {
            scope: rules([right for right in rights if right.scope == scope]) for scope in ("cluster", "namespace")
        }
        for profile, rights in PERMISSIONS.items()
    }


def rules(rights: Iterable[Right]) -> list[Object]:
    """Rights as rules: verbs of the same resource and names together, then resources of the same verbs and group."""

    def place(right: Right) -> tuple[str, str, tuple[str, ...]]:
        whole = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
        return right.group, whole, right.names

    found: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, resource, names), alike in groupby(sorted(set(rights), key=place), key=place):
        verbs = tuple(sorted({right.verb for right in alike}))
        found.setdefault((group, names, verbs), []).append(resource)
    return [
        {
            "apiGroups": [group],
            "resources": resources,
            **({"resourceNames": list(names)} if names else {}),
            "verbs": list(verbs),
        }
        for (group, names, verbs), resources in found.items()
    ]


def dialect() -> Mapping[str, Any]:
    """What the admission policy of node labels knows, and defaults of the policy."""
    return {
        "models": list(Policy({}).models),
        "maxGrace": spoken(Borrowing().max_grace),
        "knownModels": sorted(dialects.KNOWN_MODELS),
        "ownerWords": {word: owner.value for word, owner in sorted(dialects._OWNER_WORDS.items())},
        "ownerLegacy": list(dialects.OWNER_LEGACY),
        "modelLegacy": list(dialects.MODEL_LEGACY),
        "modelLoose": list(dialects.MODEL_LOOSE),
        "booleans": sorted(dialects._BOOLEANS),
    }


# -- plain manifests ---------------------------------------------------------------------------------------------------


def plain_files() -> dict[Path, str]:
    """Everything that `helm template` gives, as files that need no helm."""
    shadow, act = rendered("shadow"), rendered("act")
    root, admission = DEPLOY / "kustomize", DEPLOY / "admission"
    base = [one for one in shadow if one["kind"] not in RIGHTS and not hook(one)]
    kinds: dict[str, Callable[[Object], bool]] = {
        "node-labels": lambda one: name(one).endswith("node-labels"),
        "on-loan": lambda one: name(one).endswith("on-loan"),
        "own-limits": lambda one: name(one).endswith("own-limits"),
        "add-toleration": lambda one: name(one).endswith("add-toleration"),
    }
    made = {
        root / "base/gpu-rebalancer.yaml": base,
        root / "overlays/shadow/rbac.yaml": [one for one in shadow if one["kind"] in RIGHTS and not hook(one)],
        root / "overlays/act/rbac.yaml": [one for one in act if one["kind"] in RIGHTS and not hook(one)],
        root / "retire/retire.yaml": [unhooked(one) for one in act if hook(one)],
    }
    made |= {admission / f"{stem}.yaml": [one for one in act if fits(one)] for stem, fits in kinds.items()}
    return {path: MADE.format("deploy/chart") + _documents(objects) for path, objects in made.items()}


def rendered(profile: Profile) -> list[Object]:
    """The chart in a profile, without the labels that only helm means."""
    values: Object = {"profile": profile, "networkPolicy": {"enabled": True}}
    if profile == "act":
        values["admission"] = {"enabled": True, "addToleration": {"enabled": True}}
    return [unlabelled(one) for one in render(CHART, values, release=NAMESPACE, namespace=NAMESPACE)]


def unlabelled(one: Object) -> Object:
    """Without helm's labels, in the object and in its pod template; the order of keys stays."""
    for meta in _metas(one):
        labels = {key: value for key, value in meta.get("labels", {}).items() if key not in ONLY_HELMS}
        if labels:
            meta["labels"] = labels
    return one


def unhooked(one: Object) -> Object:
    """A hook as an ordinary object."""
    kept = {key: value for key, value in one["metadata"]["annotations"].items() if not key.startswith("helm.sh/")}
    meta = {key: value for key, value in one["metadata"].items() if key != "annotations"}
    return {**one, "metadata": {**meta, **({"annotations": kept} if kept else {})}}


def hook(one: Object) -> bool:
    """Whether helm makes it only while uninstalling."""
    return "helm.sh/hook" in one["metadata"].get("annotations", {})


def name(one: Object) -> str:
    """Its name, as text."""
    return str(one["metadata"]["name"])


def _metas(one: Object) -> Iterator[Object]:
    yield one["metadata"]
    template = one.get("spec", {}).get("template")
    if template:
        yield template["metadata"]


SHORT = 100
"""Characters: what is shorter stands on one line."""


class Dumper(yaml.SafeDumper):
    """As a person would write it: short leaves on one line, long texts as blocks, no anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base class's signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - as above
        super().increase_indent(flow, indentless=False)

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        return _laid_out(super().represent_mapping(tag, mapping, flow_style), [*mapping.keys(), *mapping.values()])

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        return _laid_out(super().represent_sequence(tag, sequence, flow_style), sequence)


Node = TypeVar("Node", yaml.MappingNode, yaml.SequenceNode)


def _laid_out(node: Node, held: Iterable[object]) -> Node:
    """On one line if it holds nothing but short scalars."""
    items = list(held)
    flat = all(isinstance(one, str | int | float | bool) and "\n" not in str(one) for one in items)
    node.flow_style = flat and sum(len(str(one)) + 2 for one in items) < SHORT
    return node


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else ">" if len(value) > SHORT else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


Dumper.add_representer(str, _text)


def _yaml(value: object) -> str:
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, width=120, default_flow_style=False)


def _documents(objects: Iterable[Object]) -> str:
    return "---\n".join(_yaml(one) for one in objects)


def main(arguments: list[str]) -> int:
    """Write what is stale, or with --check only say so; 1 when something was stale and was not written."""
    stale = []
    for make in (chart_files, plain_files):  # the chart reads the first ones
        for path, text in make().items():
            if path.is_file() and path.read_text(encoding="utf-8") == text:
                continue
            stale.append(path)
            if "--check" not in arguments:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for path in stale:
        sys.stdout.write(f"{path.relative_to(DEPLOY.parent)}\n")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
