"""Where this installation runs: cluster, brokers, roles, policy file, lease, logs.

From variables `GPU_REBALANCER_...` (nested with `__`), then a YAML file, then the defaults here. What to decide
is the policy's and never a setting; secrets come from variables or files and are never printed.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)
from pydantic_settings.exceptions import SettingsError

from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.source_settings import SourceSettings
from rebalancer.wire.envelope import cluster_partition

PREFIX = "GPU_REBALANCER_"


class NoCluster(ValueError):  # noqa: N818 - says what is missing
    """Roles were asked for without anything to see and touch."""


class Role(StrEnum):
    """The parts of the program that can run apart."""

    COLLECT = "collect"
    TELEMETRY = "telemetry"
    DECIDE = "decide"
    ACT = "act"


class Strict(BaseModel):
    """A group of settings: unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LeaseSettings(Strict):
    """The Leases that make one replica the holder of a role; seconds. Kubernetes' own components use 15/10/2 as well.

    ``name`` is followed by the role: `gpu-rebalancer-act`, `gpu-rebalancer-collect`.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=200)] = "gpu-rebalancer"
    duration: Annotated[float, Field(gt=0, le=300)] = 15.0
    renew: Annotated[float, Field(gt=0, le=300)] = 10.0
    retry: Annotated[float, Field(gt=0, le=60)] = 2.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.duration > self.renew > self.retry:
            raise ValueError("duration must exceed renew, and renew must exceed retry")
        return self


class KubernetesSettings(Strict):
    """The cluster that collect sees and act touches. Without a kubeconfig: the pod's own service account."""

    kubeconfig: Path | None = None
    context: str = ""
    """Of the kubeconfig; "" is its current one."""
    namespace: Annotated[str, Field(min_length=1, max_length=63)] = "gpu-rebalancer"
    """Where our Leases and the control object lie."""


class DcgmSettings(Strict):
    """Where utilisation comes from: a Prometheus query API, the exporters' own pages, or sources only."""

    source: Literal["prometheus", "exporters", "none"] = "prometheus"
    url: str = ""
    """Of the Prometheus query API, such as http://prometheus.monitoring:9090."""
    match: str = ""
    """Label matchers added to the query where one Prometheus sees several clusters, such as cluster="a"."""
    every: Annotated[float, Field(ge=1, le=60)] = 15.0
    """Seconds between two looks."""
    selector: str = "app=nvidia-dcgm-exporter"
    """Labels of the exporter pods, when they are scraped directly."""
    port: Annotated[int, Field(ge=1, le=65535)] = 9400
    timeout: Annotated[float, Field(gt=0, le=60)] = 10.0
    token_file: Path | None = None
    """Bearer token for the query API."""
    ca_file: Path | None = None


class AlertSettings(Strict):
    """Where alerts go beside their topic: every replica of an Alertmanager, told again and again while raised."""

    alertmanagers: tuple[Annotated[str, Field(pattern=r"^https?://[^\s/]+(/\S*)?$")], ...] = ()
    """Base URLs, one a replica."""
    resend: Annotated[float, Field(ge=1, le=600)] = 60.0
    timeout: Annotated[float, Field(gt=0, le=60)] = 5.0
    link: str = ""
    """Base URL under which our own pages are reached; becomes the generatorURL."""
    runbooks: str = ""
    """Base URL under which deploy/monitoring/runbooks is reached; becomes the alert's runbook_url."""


class HttpSettings(Strict):
    """Where metrics, health and readiness are served; port 0 serves nothing."""

    host: str = "0.0.0.0"  # noqa: S104 - probes and scrapers come from outside the pod
    port: Annotated[int, Field(ge=0, le=65535)] = 9400


class LogSettings(Strict):
    """How logs look; `json` has one object a line."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(BaseSettings):
    """All of it, checked as a whole."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    cluster: Annotated[str, Field(min_length=1, max_length=253)] = "default"
    """Name of the Kubernetes cluster, as it stands in every record."""
    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    roles: Annotated[frozenset[Role], NoDecode] = frozenset(Role)
    policy: Path = Path("policy.yaml")
    partitions: Annotated[int, Field(ge=1, le=1024)] = 4
    """Partitions of every topic of ours."""
    placed: dict[str, int] = Field(default_factory=dict)
    """Cluster to partition; clusters that are not named go by hash."""
    simulate: str = ""
    """Name or path of a scenario: collect and act work on a simulated cluster in real time. For trying out only."""
    sources: tuple[SourceSettings, ...] = ()
    """Foreign topics that role collect reads: [{topic, format, cluster}]. With them it needs no cluster to look at."""
    kubernetes: KubernetesSettings | None = None
    """The real cluster; None: there is none, and collect and act need sources or a simulated one."""
    dcgm: DcgmSettings = Field(default_factory=DcgmSettings)
    alerts: AlertSettings = Field(default_factory=AlertSettings)
    lease: LeaseSettings = Field(default_factory=LeaseSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    data_dir: Path = Path("/var/tmp/gpu-rebalancer")  # noqa: S108 - nothing is kept there that must be trusted
    """What may be lost: scratch files of the stream workers."""

    @model_validator(mode="before")
    @classmethod
    def _split_roles(cls, given: object) -> object:
        if isinstance(given, dict) and isinstance(given.get("roles"), str):
            return {**given, "roles": [part.strip() for part in given["roles"].split(",") if part.strip()]}
        return given

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.roles:
            raise ValueError("roles: at least one is needed")
        for cluster, partition in self.placed.items():
            if not 0 <= partition < self.partitions:
                raise ValueError(f"placed.{cluster}: partition {partition} is not below {self.partitions}")
        if self.kubernetes is not None and self.simulate:
            raise ValueError("kubernetes and simulate: one of them, not both")
        named = [source.topic for source in self.sources]
        for twice in sorted({topic for topic in named if named.count(topic) > 1}):
            raise ValueError(f"sources: {twice} is named twice")
        return self

    @property
    def partition(self) -> int:
        """The partition of everything about this cluster."""
        return cluster_partition(self.cluster, self.partitions, self.placed)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What was given on the command line, then variables, then the file."""
        file = YamlConfigSettingsSource(settings_cls) if settings_cls.model_config.get("yaml_file") else None
        return (init_settings, env_settings, *((file,) if file else ()))


def load_settings(file: Path | None = None, *, kafka: str = "", cluster: str = "", roles: str = "") -> Settings:
    """The settings in force; arguments that are not empty come before everything else.

    Raises:
        pydantic.ValidationError: a value is refused, or a name in the file is unknown.
        ValueError: the file or a variable cannot be read as what it should be.
    """
    given: dict[str, object] = {"cluster": cluster} if cluster else {}
    given |= {"kafka": {"bootstrap": kafka}} if kafka else {}
    given |= {"roles": roles} if roles else {}
    if file is not None and not file.is_file():
        raise ValueError(f"{file} is no file")
    if file is not None:
        _readable(file)
    kind = _reading(file) if file is not None else Settings
    try:
        return kind(**given)  # type: ignore[arg-type]  # checked by the model
    except SettingsError as error:
        raise ValueError(str(error)) from None


def _readable(file: Path) -> None:
    """Refuse what would end in another kind of error: text that is no YAML, or YAML that is no mapping."""
    try:
        held = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{file} is no YAML: {error}") from None
    if held is not None and not isinstance(held, dict):
        raise ValueError(f"{file} must be a mapping, is a {type(held).__name__}")


def _reading(file: Path) -> type[Settings]:
    class FromFile(Settings):
        model_config = SettingsConfigDict(yaml_file=file)

    return FromFile
