"""Which node a row belongs to.

Exporters name the node in many places and sometimes name only themselves. The order of belief: explicit node
labels, a Hostname that is a node, a Hostname that is a pod, the scraped address, what the GPU's UUID taught
before. A row that fits nowhere is counted; it never makes a new node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rebalancer.core.units import NodeUid

NODE_KEYS = ("node", "kubernetes_node", "nodename", "node_name", "kubernetes_node_name", "k8s_node_name",
             "k8s.node.name", "exported_node")  # fmt: skip
HOST_KEYS = ("Hostname", "hostname")
NAMING = (*NODE_KEYS, *HOST_KEYS)
ADDRESS_KEYS = ("instance", "service.instance.id", "server.address", "net.host.name")


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A node as rows may refer to it. ``expected``: GPUs that should report; ``aliases``: other names."""

    uid: NodeUid
    name: str
    expected: int
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodEntry:
    """A pod as rows may refer to it; ``gpus`` None: not known."""

    namespace: str
    name: str
    node: str
    gpus: int | None = None
    addresses: tuple[str, ...] = ()


@dataclass(slots=True)
class Directory:
    """A cluster's nodes and pods by name and address; ``learnt`` grows by :meth:`learn`, an entry a GPU."""

    nodes: Mapping[str, NodeEntry]
    by_alias: Mapping[str, NodeEntry] = field(default_factory=dict)
    pods: Mapping[str, PodEntry] = field(default_factory=dict)
    """By ``namespace/name``."""
    pod_hosts: Mapping[str, NodeEntry] = field(default_factory=dict)
    """Pod name or address to node, where only one node comes into question."""
    by_uid: Mapping[NodeUid, NodeEntry] = field(default_factory=dict)
    learnt: dict[str, NodeUid] = field(default_factory=dict)

    def learn(self, uuid: str, node: NodeEntry) -> None:
        """Remember on which node a GPU was seen; cards move between nodes, so the latest holds."""
        self.learnt[uuid] = node.uid

    def forget_strangers(self) -> None:
        """Drop what was learnt about nodes that no longer exist, so that memory ends with the fleet."""
        self.learnt = {uuid: uid for uuid, uid in self.learnt.items() if uid in self.by_uid}


def directory(
    nodes: Iterable[NodeEntry], pods: Iterable[PodEntry] = (), learnt: dict[str, NodeUid] | None = None
) -> Directory:
    """Index a cluster. An alias that two nodes share names neither."""
    entries = {entry.name: entry for entry in nodes}
    aliases = _unambiguous((alias, entry) for entry in entries.values() for alias in _aliases(entry))
    known = list(pods)
    hosts = _unambiguous(
        (key, entries[pod.node]) for pod in known if pod.node in entries for key in (pod.name, *pod.addresses) if key
    )
    by_name = {f"{pod.namespace}/{pod.name}": pod for pod in known}
    by_uid = {entry.uid: entry for entry in entries.values()}
    return Directory(entries, aliases, by_name, hosts, by_uid, {} if learnt is None else learnt)


def _aliases(entry: NodeEntry) -> set[str]:
    """Also the first part of a full domain name: exporters and kubelets disagree about which to use."""
    full = {entry.name.lower(), *(alias.lower() for alias in entry.aliases if alias)}
    return full | {name.partition(".")[0] for name in full if not _is_address(name)}


def _unambiguous(pairs: Iterable[tuple[str, NodeEntry]]) -> dict[str, NodeEntry]:
    found: dict[str, NodeEntry] = {}
    contested: set[str] = set()
    for key, entry in pairs:
        if found.setdefault(key, entry).uid != entry.uid:
            contested.add(key)
    return {key: entry for key, entry in found.items() if key not in contested}


def resolve_node(labels: Mapping[str, str], uuid: str, known: Directory) -> NodeEntry | None:
    """The node of a row with these labels, or None when nothing that it says is known."""
    for key in NAMING:
        if (name := labels.get(key)) and (entry := _named(name, known)) is not None:
            return entry
    for key in (*HOST_KEYS, *ADDRESS_KEYS):
        host = without_port(labels.get(key, ""))
        entry = known.pod_hosts.get(host) or _named(host, known)
        if entry is not None:
            return entry
    return _exporters_node(labels, known) or known.by_uid.get(known.learnt.get(uuid, ""))


def _exporters_node(labels: Mapping[str, str], known: Directory) -> NodeEntry | None:
    """A pod label that names a pod without GPUs names the exporter itself, which runs on the node it reports."""
    pod = known.pods.get(f"{labels.get('namespace', '')}/{labels.get('pod', '')}")
    return known.nodes.get(pod.node) if pod is not None and pod.gpus == 0 else None


def _named(name: str, known: Directory) -> NodeEntry | None:
    if name == "":
        return None
    found = known.nodes.get(name)
    if found is not None:
        return found
    lower = name.lower()
    found = known.by_alias.get(lower)
    if found is None and "." in lower and not _is_address(lower):
        found = known.by_alias.get(lower.partition(".")[0])
        # gpu-1.site-a must not pass for gpu-1.site-b: only a bare node name may be met half-way
        found = found if found is not None and "." not in found.name else None
    return found


def pod_entry(raw: Mapping[str, Any], gpus: int | None) -> PodEntry:
    """An entry from a Kubernetes Pod object; what it lacks is ""."""
    parts = {name: raw.get(name) for name in ("metadata", "spec", "status")}
    meta, spec, status = (part if isinstance(part, Mapping) else {} for part in parts.values())
    named = [meta.get("namespace"), meta.get("name"), spec.get("nodeName"), status.get("podIP")]
    namespace, name, node, address = (value if isinstance(value, str) else "" for value in named)
    return PodEntry(namespace, name, node, gpus, (address,) if address else ())


def without_port(address: str) -> str:
    """``10.0.0.1:9400`` and ``[fd00::1]:9400`` without the port."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdigit() and ":" not in host else address


def _is_address(name: str) -> bool:
    return ":" in name or name.replace(".", "").isdigit()


def node_entry(raw: Mapping[str, Any], uid: NodeUid, name: str, expected: int) -> NodeEntry:
    """An entry from a Kubernetes Node object: its addresses and its hostname label are aliases."""
    status, metadata = raw.get("status"), raw.get("metadata")
    listed = status.get("addresses") if isinstance(status, Mapping) else None
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    aliases = [item.get("address") for item in listed if isinstance(item, Mapping)] if isinstance(listed, list) else []
    if isinstance(labels, Mapping):
        aliases.append(labels.get("kubernetes.io/hostname"))
    return NodeEntry(uid, name, expected, tuple(alias for alias in aliases if isinstance(alias, str) and alias))
