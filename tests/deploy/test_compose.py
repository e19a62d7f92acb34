"""docker-compose.yml, checked without Docker: what it mounts exists, what it starts is accepted, ports agree."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from rebalancer.adapters.policyfile import load_policy
from rebalancer.cli.app import app
from rebalancer.settings import load_settings
from rebalancer.simulate.files import open_scenario
from rebalancer.simulate.policies import policy_of

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = ("topics", "rebalancer")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_everything_mounted_is_there_and_read_only(name: str) -> None:
    """Docker would make an empty folder of a file that is missing, and say nothing."""
    for mount in SERVICES[name].get("volumes", ()):
        source, _, mode = mount.split(":")
        assert (ROOT / source).exists(), source
        assert mode == "ro"


@pytest.mark.parametrize("name", OURS)
def test_our_commands_exist_and_are_confined(name: str) -> None:
    """Every word of the command up to its options is a command of ours; the container has no rights."""
    service = SERVICES[name]
    words = service["command"]
    assert words[0] == "rebalancer"
    command: Any = get_command(app)
    for word in words[1:]:
        if word.startswith("--"):
            assert any(word in option.opts for option in command.params), word
        elif hasattr(command, "commands") and word in command.commands:
            command = command.commands[word]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["user"] == "65532:65532"


def test_settings_and_policy_fit_each_other_and_the_simulated_fleet() -> None:
    """The policy names the pools of the scenario, with its owner taints."""
    settings = load_settings(ROOT / "deploy/compose/settings.yaml")
    policy, known = load_policy(ROOT / "deploy/compose/policy.yaml"), policy_of(open_scenario(settings.simulate))
    assert {name: (pool.model, pool.owner, pool.owner_taint) for name, pool in policy.pools.items()} == {
        name: (pool.model, pool.owner, pool.owner_taint) for name, pool in known.pools.items()
    }


def test_addresses_name_services_and_their_ports() -> None:
    """Kafka, Alertmanager and Prometheus are found where the settings say."""
    settings = load_settings(ROOT / "deploy/compose/settings.yaml")
    assert settings.kafka.bootstrap == "kafka:19092"
    assert "INSIDE://kafka:19092" in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert settings.alerts.alertmanagers == ("http://alertmanager:9093",)
    prometheus = yaml.safe_load((ROOT / "deploy/compose/prometheus.yaml").read_text())
    targets = {
        target for job in prometheus["scrape_configs"] for one in job["static_configs"] for target in one["targets"]
    }
    assert targets == {f"rebalancer:{settings.http.port}"}
    mounted = {mount.split(":")[1] for mount in SERVICES["prometheus"]["volumes"]}
    assert set(prometheus["rule_files"]) <= mounted


def test_ports_are_this_machines_only_and_each_once() -> None:
    """There is no security in this set-up."""
    told = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in told)
    assert len({port.split(":")[1] for port in told}) == len(told)


def test_images_are_pinned_to_a_version() -> None:
    """Never `latest`."""
    assert all(service["image"].rpartition(":")[2].strip("v")[0].isdigit() for service in SERVICES.values())


def test_the_rebalancer_starts_after_its_topics() -> None:
    """Topics are not made by accident: the broker does not create them."""
    assert SERVICES["rebalancer"]["depends_on"] == {"topics": {"condition": "service_completed_successfully"}}
    assert SERVICES["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    assert SERVICES["kafka"]["environment"]["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"


def test_dashboards_are_provisioned_with_a_source_that_exists() -> None:
    """Every panel's data source is the one that is provisioned."""
    sources = yaml.safe_load((ROOT / "deploy/compose/grafana/datasources.yaml").read_text())["datasources"]
    provider = yaml.safe_load((ROOT / "deploy/compose/grafana/dashboards.yaml").read_text())["providers"][0]
    under = provider["options"]["path"] + "/"
    mounts = [mount.split(":")[:2] for mount in SERVICES["grafana"]["volumes"]]
    boards = [ROOT / source for source, at in mounts if at.startswith(under) and at.endswith(".json")]
    assert boards
    for board in boards:
        named = {
            uid for uid in _uids(json.loads(board.read_text())) if not uid.startswith("$") and uid != "-- Grafana --"
        }
        assert named <= {source["uid"] for source in sources}


def _uids(node: Any) -> set[str]:
    if isinstance(node, list):
        return {uid for item in node for uid in _uids(item)}
    if not isinstance(node, dict):
        return set()
    source = node.get("datasource")
    own = {source["uid"]} if isinstance(source, dict) and "uid" in source else set()
    return own | {uid for item in node.values() for uid in _uids(item)}
