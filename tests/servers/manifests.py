"""Kubernetes objects of a GPU fleet as plain dictionaries, as real teams write them. Pure; `fleet` creates them.

Inference tolerates its owner's taint and spreads over hosts; training selects a model, not a pool, and opts in
to lent nodes by a label and a toleration. Keys of the product are spelled out here, not imported: this is what
users type.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

GPU = "nvidia.com/gpu"
IMAGE = "registry.example/work:1"  # never pulled: kwok runs nothing
RECLAIMABLE, ON_LOAN = "gpu-rebalancer.io/reclaimable", "gpu-rebalancer.io/on-loan"
RUN_SECONDS, CHECKPOINT_SECONDS = "sim/run-seconds", "sim/checkpoint-seconds"
GROUP_NAME = "scheduling.k8s.io/group-name"
PATIENT = 1000  # backoffLimit: an eviction counts as a failed pod, and a job lives through many nights
MEMORY_GIB = {"H100": 80, "A100": 80, "A40": 48, "L20": 48, "T4": 16}  # NVIDIA data sheets
PRODUCTS = {"H100": "NVIDIA H100 80GB HBM3", "A100": "NVIDIA A100-SXM4-80GB", "A40": "NVIDIA A40", "L20": "NVIDIA L20",
            "T4": "Tesla T4"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Work:
    """What one pod asks for and how it behaves.

    `run`: seconds until it succeeds, None for ever. `checkpoint`: seconds that it goes on after its deletion.
    `grace`: its termination grace period, seconds. `lendable`: it opts in to lent nodes.
    """

    model: str = "A100"
    gpus: int = 8
    run: int | None = None
    checkpoint: int = 0
    grace: int = 30
    lendable: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizers: Sequence[str] = ()
    priority_class: str = ""


def node(name: str, pool: str, model: str, gpus: int, *, owner: str, marks: Mapping[str, str]) -> Json:
    """A GPU node with the canonical labels and its owner's taint; `marks` are further labels."""
    labels = {
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "node-pool": pool, "accelerator": "nvidia", "gpu-model": model, "gpu-count": str(gpus),
        "gpu-memory": f"{MEMORY_GIB.get(model, 80)}Gi", "network": "ib" if owner == "training" else "ethernet",
        "workload-type": owner, **marks,
    }  # fmt: skip
    room = {"cpu": "128", "memory": "1Ti", "pods": "110", GPU: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [{"key": "workload", "value": owner, "effect": "NoSchedule"}]},
        "status": {"capacity": room, "allocatable": room},
    }


def inference_template(app: str, work: Work, spread: bool) -> Json:
    """Pods of a service: on inference nodes of the model, at most one a host when `spread`."""
    spec = _spec(work, [_tolerates("workload", "inference")])
    if spread:
        term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return _template({"app": app, "workload-type": "inference"}, work, spec)


def training_template(name: str, work: Work) -> Json:
    """Pods of a training job: on training nodes of the model, and on lent ones if it opts in."""
    tolerated, labels = [_tolerates("workload", "training")], {"app": name, "workload-type": "training"}
    if work.lendable:
        tolerated.append(_tolerates(ON_LOAN, "training"))
        labels[RECLAIMABLE] = "true"
    return _template(labels, work, {**_spec(work, tolerated), "restartPolicy": "Never"})


def deployment(name: str, replicas: int, template: Json) -> Json:
    return _replicated("Deployment", name, replicas, template)


def statefulset(name: str, replicas: int, template: Json) -> Json:
    """Its pods are made at once: the next does not wait for the one before."""
    made = _replicated("StatefulSet", name, replicas, template)
    made["spec"] |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return made


def job(name: str, pods: int, template: Json) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": _job_spec(pods, template),
    }


def jobset(name: str, pods: int, template: Json, replicas: int = 1) -> Json:
    """`replicas` jobs of `pods` pods each: one gang of `replicas` × `pods`."""
    workers = {"name": "workers", "replicas": replicas, "template": {"spec": _job_spec(pods, template)}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"replicatedJobs": [workers]},
    }


def pod_group(name: str, members: int, queue: str = "training") -> Json:
    """Volcano's gang object."""
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": members, "queue": queue},
    }


def budget(name: str, app: str, minimum: int | str | None, unavailable: int | str | None) -> Json:
    """A PodDisruptionBudget over the pods with the label app=`app`."""
    limits = {"minAvailable": minimum, "maxUnavailable": unavailable}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": app}},
            **{key: value for key, value in limits.items() if value is not None},
        },
    }


def bare_pod(name: str, template: Json, node_name: str = "") -> Json:
    """A pod without an owner; with `node_name` it is bound by whoever made it, past the scheduler and the taints."""
    spec = {**template["spec"], **({"nodeName": node_name} if node_name else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": name}, "spec": spec}


def priority_class(name: str, value: int) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def volcano_crd() -> Json:
    """The least of Volcano's PodGroup CRD: any spec, any status."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "podgroups.scheduling.volcano.sh"},
        "spec": {
            "group": "scheduling.volcano.sh",
            "scope": "Namespaced",
            "names": {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup", "shortNames": ["pg"]},
            "versions": [{**version, "subresources": {"status": {}}}],
        },
    }


def _replicated(kind: str, name: str, replicas: int, template: Json) -> Json:
    labels = {"app": template["metadata"]["labels"]["app"]}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def _job_spec(pods: int, template: Json) -> Json:
    return {
        "parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": PATIENT,
        "template": template,
    }  # fmt: skip


def _template(labels: Mapping[str, str], work: Work, spec: Json) -> Json:
    marks = dict(work.annotations)
    if work.run is not None:
        marks[RUN_SECONDS] = str(work.run)
    if work.checkpoint:
        marks[CHECKPOINT_SECONDS] = str(work.checkpoint)
    meta: Json = {"labels": {**labels, **work.labels}, "annotations": marks}
    if work.finalizers:
        meta["finalizers"] = list(work.finalizers)
    return {"metadata": meta, "spec": spec}


def _spec(work: Work, tolerated: list[Json]) -> Json:
    room = {"cpu": "1", "memory": "1Gi", **({GPU: str(work.gpus)} if work.gpus else {})}
    spec: Json = {
        "nodeSelector": {"gpu-model": work.model},
        "tolerations": tolerated,
        "terminationGracePeriodSeconds": work.grace,
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": IMAGE, "resources": {"requests": room, "limits": room}}],
    }
    if work.priority_class:
        spec["priorityClassName"] = work.priority_class
    return spec


def _tolerates(key: str, value: str) -> Json:
    return {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
