"""What the JobSet controller needs in the cluster: its CRD and its webhooks, both from its own module.

The webhooks point at 127.0.0.1 instead of a Service, which nothing would route here. Those for pods are limited
to pods of JobSets, as in the project's own installation.
"""

import base64
from pathlib import Path
from typing import Any

import yaml

from tests.servers.adminclient import AdminClient
from tests.servers.goparts import kept_file

PROGRAM = "jobset-controller"
MARK = "jobset.sigs.k8s.io/jobset-name"
NAME = "jobset-controller"
ESTABLISHED_WITHIN = 15.0  # seconds; tenths on idle cores


def install(api: AdminClient, authority: Path, port: int) -> None:
    """Make the CRD and point the webhooks at 127.0.0.1:`port`; doing it again changes nothing."""
    crd = yaml.safe_load(kept_file(PROGRAM, "jobset.x-k8s.io_jobsets.yaml").read_text())
    crd.pop("status", None)  # the server's to say
    api.apply([crd])
    path = api.path_of(crd)
    api.wait(lambda: _established(api.get(path)), ESTABLISHED_WITHIN, "the CRD of JobSets to be established")
    api.apply(_webhooks(authority, port))


def _established(crd: dict[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _webhooks(authority: Path, port: int) -> list[dict[str, Any]]:
    documents = list(yaml.safe_load_all(kept_file(PROGRAM, "manifests.yaml").read_text()))
    bundle = base64.b64encode(authority.read_bytes()).decode()
    for document in documents:
        document["metadata"]["name"] = NAME
        for hook in document["webhooks"]:
            at = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{at}", "caBundle": bundle}
            if "pods" in hook["rules"][0]["resources"]:
                hook["objectSelector"] = {"matchExpressions": [{"key": MARK, "operator": "Exists"}]}
    return documents
