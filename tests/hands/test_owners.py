"""Which owners are annotated on notice: those that our rights name, and where retiring looks afterwards."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rebalancer.adapters.cluster.connection import Reply
from rebalancer.adapters.cluster.permissions import ANNOTATED, needed
from rebalancer.adapters.cluster.sweeping import Sweeper
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.core.policy import Policy
from rebalancer.core.protocol.calls import GiveNotice
from tests.hands.fakeapi import Kube, direct
from tests.hands.things import NOW, hands, member, raw_pod

POD = "/api/v1/namespaces/team/pods/p1"
OWNERS = {
    "a Job": ("Job.v1.batch/x", "/apis/batch/v1/namespaces/team/jobs/x"),
    "a JobSet": ("JobSet.v1alpha2.jobset.x-k8s.io/x", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/x"),
    "a PyTorchJob": ("PyTorchJob.v1.kubeflow.org/x", "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/x"),
    "a Deployment": ("Deployment.v1.apps/x", ""),
    "a StatefulSet": ("StatefulSet.v1.apps/x", ""),
    "a LeaderWorkerSet": ("LeaderWorkerSet.v1.leaderworkerset.x-k8s.io/x", ""),
    "a CronJob": ("CronJob.v1.batch/x", ""),
    "a PodGroup": ("PodGroup.v1beta1.scheduling.volcano.sh/x", ""),
    "a kind of the same name elsewhere": ("Job.v1alpha1.batch.volcano.sh/x", ""),
}
"""Owners as pods name them, and where the annotation is written; "" for those that we have no right to write to."""


@pytest.mark.parametrize(("owner", "path"), OWNERS.values(), ids=OWNERS)
async def test_only_owners_that_we_may_annotate_are_asked_for(owner: str, path: str) -> None:
    kube = Kube()
    kube.put(POD, raw_pod("p1", "n1"))
    await hands(direct(kube)[0]).perform(GiveNotice("gang", (member("p1"),), owner, NOW, "due"))
    assert [one.path for one in kube.asked_for("PATCH") if one.path != POD] == ([path] if path else [])


def test_what_act_may_annotate_is_what_retiring_sweeps() -> None:
    """`ANNOTATED` is where the sweeper looks: neither more nor less than act's and the hook's rights to patch."""
    listed = {(group, kind) for group, kinds in ANNOTATED.items() for kind in kinds}
    for profile in ("act", "retire"):
        patched = {
            (one.group, one.resource) for one in needed(profile) if one.verb == "patch" and one.scope == "cluster"
        }
        assert patched - {("", "nodes"), ("", "pods")} == listed


async def test_the_sweeper_looks_where_act_writes() -> None:
    """In the version that the server prefers, of every kind that it has."""
    kube = Kube()
    sure = Reply(200, {}, {"preferredVersion": {"version": "v9"}})
    kube.faults = [lambda asked: sure if asked.path.count("/") == 2 else Reply(200, {}, {"items": []})]
    sweeper = Sweeper(direct(kube)[0], cast("Any", None), cast("Any", None), Policy({}), Reading(), print)
    paths = {f"/apis/{group}/v9/{kind}" for group, kinds in ANNOTATED.items() for kind in kinds}
    assert set(await sweeper._owner_kinds()) == paths
