"""The command lines of the control plane's parts: every flag that the tests rely on, and why.

Pure text; `controlplane` starts them. Each part listens on 127.0.0.1 only, on ports drawn by the caller.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.servers.audit import POLICY
from tests.servers.credentials import Credentials
from tests.servers.goparts import binary, kept_file

STAGES = Path(__file__).with_name("stages.yaml")
FAKE_NODE = {"kwok.x-k8s.io/node": "fake"}  # a label: kwok plays the kubelet of nodes that carry it
GANG_GATES = ("GenericWorkload=true",)  # native PodGroups; their API is scheduling.k8s.io/v1beta1
GANG_APIS = ("scheduling.k8s.io/v1beta1=true",)
SERVICES = "10.96.0.0/16"


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """How fast a node whose kubelet went silent is noticed. All in seconds."""

    lease: int = 40  # kubelet's default; shorter ones expire by themselves on busy cores
    grace: int = 120  # longer than the default 50, so that an outage that a test makes is not taken for 40 dead nodes
    toleration: int = 300  # the API server's default: how long pods stay on such a node


@dataclass(frozen=True, slots=True)
class Ports:
    etcd: int
    etcd_peer: int
    apiserver: int
    jobset_webhook: int
    jobset_health: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a control plane is made of: its folder, its ports, and what differs from the ordinary one."""

    folder: Path
    ports: Ports
    failure: NodeFailure = field(default_factory=NodeFailure)
    gates: tuple[str, ...] = ()
    apis: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.ports.apiserver}"

    @property
    def etcd_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.etcd}"

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"


def etcd(plan: Plan) -> list[str]:
    peer = f"http://127.0.0.1:{plan.ports.etcd_peer}"
    return [
        str(binary("kubemini")), "etcd", "--name=one", f"--data-dir={plan.folder / 'etcd'}",
        f"--listen-client-urls={plan.etcd_url}", f"--advertise-client-urls={plan.etcd_url}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=one={peer}",
        "--unsafe-no-fsync",  # what a killed process wrote survives; a machine that loses power is not tested
        "--log-level=error",
    ]  # fmt: skip


def apiserver(plan: Plan, credentials: Credentials) -> list[str]:
    policy = plan.folder / "audit-policy.json"
    policy.write_text(json.dumps(POLICY))
    return [
        str(binary("kubemini")), "kube-apiserver", f"--etcd-servers={plan.etcd_url}", "--bind-address=127.0.0.1",
        f"--secure-port={plan.ports.apiserver}",
        f"--tls-cert-file={credentials.certificate}", f"--tls-private-key-file={credentials.key}",
        f"--token-auth-file={credentials.tokens}", "--authorization-mode=RBAC",
        f"--service-account-key-file={credentials.accounts}",
        f"--service-account-signing-key-file={credentials.accounts}",
        "--service-account-issuer=https://kubernetes.default.svc", f"--service-cluster-ip-range={SERVICES}",
        "--endpoint-reconciler-type=none",  # nothing in a pod ever calls the service `kubernetes`
        f"--audit-policy-file={policy}", f"--audit-log-path={plan.audit_log}",
        "--audit-log-mode=blocking",  # an answer that a client has seen is in the log
        f"--default-not-ready-toleration-seconds={plan.failure.toleration}",
        f"--default-unreachable-toleration-seconds={plan.failure.toleration}",
        "--profiling=false", "--v=1", *_switches(plan), *_apis(plan),
    ]  # fmt: skip


def controller_manager(plan: Plan, credentials: Credentials, kubeconfig: Path) -> list[str]:
    return [
        str(binary("kubemini")), "kube-controller-manager", f"--kubeconfig={kubeconfig}",
        "--leader-elect=false", "--secure-port=0",
        "--use-service-account-credentials=true",  # the bootstrap roles are made for these
        f"--service-account-private-key-file={credentials.accounts}", f"--root-ca-file={credentials.authority}",
        "--kube-api-qps=1000", "--kube-api-burst=2000", "--node-monitor-period=1s",
        f"--node-monitor-grace-period={plan.failure.grace}s",
        "--node-eviction-rate=100", "--secondary-node-eviction-rate=100", "--v=1", *_switches(plan),
    ]  # fmt: skip


def scheduler(plan: Plan, kubeconfig: Path) -> list[str]:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000},
        "leaderElection": {"leaderElect": False},
        "podMaxBackoffSeconds": 2,  # default 10: a test of minutes stands for a night of hours
    }
    path = plan.folder / "scheduler.json"
    path.write_text(json.dumps(config))
    return [str(binary("kubemini")), "kube-scheduler", f"--config={path}", "--secure-port=0", "--v=1", *_switches(plan)]


def kwok(plan: Plan, kubeconfig: Path) -> list[str]:
    stock = ("node-initialize.yaml", "node-heartbeat-with-lease.yaml", "pod-ready.yaml")
    texts = [kept_file("kwok", name).read_text() for name in stock] + [STAGES.read_text()]
    path = plan.folder / "stages.yaml"
    path.write_text("\n---\n".join(texts))
    label, value = next(iter(FAKE_NODE.items()))
    return [
        str(binary("kwok")), f"--kubeconfig={kubeconfig}", f"--config={path}", "--manage-all-nodes=false",
        f"--manage-nodes-with-label-selector={label}={value}",
        f"--node-lease-duration-seconds={plan.failure.lease}", "--cidr=10.0.0.0/8", "--node-ip=127.0.0.1",
    ]  # fmt: skip


def jobset(plan: Plan, credentials: Credentials, kubeconfig: Path) -> list[str]:
    config = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},  # it would wait for a Service that nobody routes to
        "webhook": {"host": "127.0.0.1", "port": plan.ports.jobset_webhook, "certDir": str(credentials.folder)},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{plan.ports.jobset_health}"},
    }
    path = plan.folder / "jobset.yaml"
    path.write_text(yaml.safe_dump(config))
    return [
        str(binary("jobset-controller")), f"--config={path}", f"--kubeconfig={kubeconfig}",
        "--metrics-bind-address=0", "--zap-log-level=error",
    ]  # fmt: skip


def _switches(plan: Plan) -> list[str]:
    return [f"--feature-gates={','.join(plan.gates)}"] if plan.gates else []


def _apis(plan: Plan) -> list[str]:
    return [f"--runtime-config={','.join(plan.apis)}"] if plan.apis else []
