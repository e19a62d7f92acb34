"""What `helm template` makes of the chart: what a pod is, what is refused, what the settings say."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.adapters.policyfile import parse_policy
from rebalancer.settings import Settings, load_settings
from tests.deploy.manifests import CHART, hook
from tests.deploy.rendering import Refused, helm, only, render

pytestmark = pytest.mark.go_binaries("helm")

Objects = list[dict[str, Any]]
SPLIT = {"split": {"eyes": {"roles": ["collect", "act"]}, "brain": {"roles": ["decide"]}}}
TLS = {
    "bootstrap": "a.kafka:9093,b.kafka:9093",
    "protocol": "SASL_SSL",
    "username": "rebalancer",
    "secret": {
        "name": "kafka",
        "caKey": "ca.pem",
        "certKey": "tls.crt",
        "keyKey": "tls.key",
        "passwordKey": "password",
    },
}


def test_the_chart_is_clean() -> None:
    """By helm's own linter, warnings included."""
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


# -- pods --------------------------------------------------------------------------------------------------------------


def pods(objects: Objects) -> Objects:
    """Every pod template."""
    return [one["spec"]["template"]["spec"] for one in objects if one["kind"] in {"Deployment", "Job"}]


@pytest.mark.parametrize("values", [{}, SPLIT], ids=["one Deployment", "split"])
def test_every_pod_is_hardened(values: dict[str, Any]) -> None:
    """As the restricted Pod Security Standard asks, and with a read-only root file system."""
    for pod in pods(render(CHART, values)):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 65532
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["enableServiceLinks"] is False
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == {
            volume["name"] for volume in pod["volumes"]
        }


def test_two_replicas_by_default_with_probes_and_a_budget() -> None:
    """A warm standby, and never both gone in a drain."""
    objects = render(CHART)
    deployment, budget = only(objects, "Deployment"), only(objects, "PodDisruptionBudget")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert deployment["spec"]["replicas"] == 2
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"] == deployment["spec"]["selector"]
    assert deployment["spec"]["template"]["spec"]["priorityClassName"] == "system-cluster-critical"


def test_only_roles_that_touch_the_cluster_hold_its_token() -> None:
    """Telemetry and decide speak Kafka alone."""
    split = {name: {"roles": [name]} for name in ("collect", "telemetry", "decide", "act")}
    held = {
        one["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"]["template"]["spec"][
            "automountServiceAccountToken"
        ]
        for one in render(CHART, {"split": split})
        if one["kind"] == "Deployment"
    }
    assert held == {"collect": True, "telemetry": False, "decide": False, "act": True}
    assert only(render(CHART), "ServiceAccount", "gpu-rebalancer")["automountServiceAccountToken"] is False


def test_changed_settings_replace_pods_and_a_changed_policy_does_not() -> None:
    """The policy is watched; a restart would cost a dwell of watching. Who wants it may have it."""

    def marks(**values: Any) -> dict[str, str]:
        found: dict[str, str] = only(render(CHART, values), "Deployment")["spec"]["template"]["metadata"]["annotations"]
        return found

    other = {"policy": {"pace": {"max_loans": 3}}}
    assert marks(cluster="other") != marks()
    assert marks(**other) == marks()
    assert marks(**other, restartOnPolicyChange=True) != marks(restartOnPolicyChange=True)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"leaderElection": {"enabled": False}}, "need leaderElection.enabled"),
        ({"policy": {"pools": {"infer-a100": {"mode": "act"}}}}, "act needs profile=act"),
        ({"leaderElection": {"leaseDuration": 5}}, "leaseDuration must exceed"),
        ({"kafka": {"secret": {"passwordKey": "p"}}}, "kafka.secret.name is needed"),
        ({"replica": 3}, "replica"),
    ],
    ids=[
        "two replicas without leader election",
        "a pool that acts in profile shadow",
        "a Lease shorter than its renewal",
        "a secret's key without the secret",
        "a misspelt value",
    ],
)
def test_refused(values: dict[str, Any], said: str) -> None:
    """Before anything is installed, with what to do."""
    with pytest.raises(Refused, match=said):
        render(CHART, values)


def test_one_replica_without_leader_election_is_replaced_and_never_doubled() -> None:
    """Recreate instead of a rolling update."""
    values = {"replicas": 1, "leaderElection": {"enabled": False}}
    assert only(render(CHART, values), "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


# -- settings and policy -----------------------------------------------------------------------------------------------


def settled(objects: Objects, folder: Path) -> Settings:
    """The settings in the ConfigMap, as the program reads them."""
    path = folder / "settings.yaml"
    path.write_text(only(objects, "ConfigMap", "-settings")["data"]["settings.yaml"])
    return load_settings(path)


def test_the_program_accepts_the_settings_and_the_policy(tmp_path: Path) -> None:
    """And lives in the release's namespace."""
    objects = render(CHART, {"cluster": "berlin"}, namespace="elsewhere")
    settings = settled(objects, tmp_path)
    assert settings.cluster == "berlin"
    assert settings.kubernetes is not None
    assert settings.kubernetes.namespace == "elsewhere"
    policy = parse_policy(only(objects, "ConfigMap", "-policy")["data"]["policy.yaml"])
    assert set(policy.pools) == {"infer-a100", "infer-l20", "train-a100", "train-h100"}


def test_the_example_policy_passes_through_the_chart_unchanged() -> None:
    """Numbers, shares, durations, windows and dates mean the same afterwards."""
    text = (CHART.parent / "policy.example.yaml").read_text()
    values = {"policy": yaml.load(text, yaml.BaseLoader)}
    held = yaml.safe_load(text)
    del held["pools"]["infer-a100"]["windows"][0]["except"]  # dates are no JSON; given as texts below
    held["pools"]["infer-a100"]["windows"][0]["except"] = values["policy"]["pools"]["infer-a100"]["windows"][0][
        "except"
    ]
    drawn = only(render(CHART, {"policy": held}), "ConfigMap", "-policy")["data"]["policy.yaml"]
    assert parse_policy(drawn) == parse_policy(text)


def test_secrets_of_kafka_become_files(tmp_path: Path) -> None:
    """TLS and SCRAM: the settings name files under the folder where the Secret is mounted; no secret is in them."""
    objects = render(CHART, {"kafka": TLS})
    kafka = settled(objects, tmp_path).kafka
    files = (kafka.ca_file, kafka.cert_file, kafka.key_file, kafka.password_file)
    assert [str(path) for path in files] == [
        f"/etc/gpu-rebalancer/kafka/{name}" for name in ("ca.pem", "tls.crt", "tls.key", "password")
    ]
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    volume = next(one for one in pod["volumes"] if one["name"] == "kafka")
    assert volume["secret"]["secretName"] == "kafka"
    assert {"name": "kafka", "mountPath": "/etc/gpu-rebalancer/kafka", "readOnly": True} in pod["containers"][0][
        "volumeMounts"
    ]


def test_oauth_with_the_pods_own_identity(tmp_path: Path) -> None:
    """A projected token for the broker's audience, not the API server's token."""
    values = {"kafka": {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", "tokenAudience": "kafka"}}
    objects = render(CHART, values)
    kafka = settled(objects, tmp_path).kafka
    assert str(kafka.token_file) == "/var/run/secrets/kafka/token"
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    volume = next(one for one in pod["volumes"] if one["name"] == "kafka-token")
    assert volume["projected"]["sources"][0]["serviceAccountToken"]["audience"] == "kafka"


def test_further_settings_come_last(tmp_path: Path) -> None:
    """Whatever has no value of its own, and over those that have."""
    values = {"settings": {"sources": [{"topic": "gpu-metrics", "format": "telegraf-json"}], "kafka": {"timeout": 3}}}
    settings = settled(render(CHART, values), tmp_path)
    assert settings.sources[0].topic == "gpu-metrics"
    assert settings.kafka.timeout == 3
    assert settings.kafka.bootstrap == "kafka.kafka:9092"


# -- around it ---------------------------------------------------------------------------------------------------------


def test_the_network_policy_opens_what_the_settings_name() -> None:
    """DNS, the API server, Kafka, Prometheus and every Alertmanager; in comes only who reads metrics."""
    values: dict[str, Any] = {
        "networkPolicy": {"enabled": True, "kafka": [{"namespaceSelector": {"matchLabels": {"name": "kafka"}}}]},
        "kafka": {"bootstrap": "a:9093,b:9094"},
        "dcgm": {"url": "https://prometheus.example.org"},
        "alerts": {"alertmanagers": ["http://am-0:9093"]},
    }
    policy = only(render(CHART, values), "NetworkPolicy")["spec"]
    ports = [[port["port"] for port in rule["ports"]] for rule in policy["egress"]]
    assert ports == [[53, 53], [443, 6443], [9093, 9094], [443], [9093]]
    assert policy["egress"][2]["to"] == values["networkPolicy"]["kafka"]
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [9400]
    assert policy["policyTypes"] == ["Ingress", "Egress"]


def test_monitoring_is_there_when_asked_for() -> None:
    """A ServiceMonitor that selects the Service, and the rules of deploy/monitoring."""
    values = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True, "labels": {"release": "p"}}}
    objects = render(CHART, values)
    assert not {"ServiceMonitor", "PrometheusRule"} & {one["kind"] for one in render(CHART)}
    selector = only(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert selector.items() <= only(objects, "Service")["metadata"]["labels"].items()
    rule = only(objects, "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "p"
    assert [group["name"] for group in rule["spec"]["groups"]]


def test_uninstalling_runs_retire_first_and_waits() -> None:
    """The Job names every Deployment, so that nobody lends anew behind its back."""
    objects = render(CHART, SPLIT)
    job = only(objects, "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[:2] == ["rebalancer", "retire"]
    stopped = {command[at + 1] for at, word in enumerate(command) if word == "--stop"}
    assert stopped == {one["metadata"]["name"] for one in objects if one["kind"] == "Deployment"}
    assert int(command[command.index("--timeout") + 1]) < job["spec"]["activeDeadlineSeconds"]
    assert all(hook(one) for one in objects if one["metadata"]["name"].endswith("-retire"))
