"""A real Kafka broker for the tests: one KRaft node with its own ports and its own data folder.

It can be stopped, killed and started again on the same ports and data, as a broker in a bad night. It has
three doors: plain text, SASL/SCRAM and TLS (`Addresses`), and an authorizer: whoever comes through the plain
or the TLS door, and the user `admin`, may do everything; the user `limited` only what an ACL grants.
Topics are not created by accident: auto-creation is off, as in a production cluster.
"""

import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.servers import artifacts
from tests.servers.addresses import PASSWORDS, SASL_MECHANISM, SUPERUSER, Addresses
from tests.servers.certificates import write_certificates
from tests.servers.ports import free_ports, is_open

START_WITHIN = 60.0  # seconds; 3 on an idle machine
STOP_WITHIN = 30.0
CLUSTER_ID = "q1Sh-9_ISia_zwGINzRvyQ"  # any base64 UUID will do: no broker ever meets another
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
JVM = ["-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]

# For a topic whose compaction a test wants to see within a second or two.
COMPACT_SOON = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "100",
    "max.compaction.lag.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "200",
}

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={doors},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={doors}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL
listener.name.sasl.sasl.enabled.mechanisms={mechanism}
listener.name.sasl.scram-sha-256.sasl.jaas.config={login} required;
listener.name.tls.ssl.keystore.type=PEM
listener.name.tls.ssl.keystore.location={key_store}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:{superuser}
log.dirs={data}
auto.create.topics.enable=false
num.partitions=1
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
num.network.threads=2
num.io.threads=2
log.message.timestamp.type=LogAppendTime
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.threads=1
log.cleaner.backoff.ms=100
log.initial.task.delay.ms=100
"""


class BrokerError(Exception):
    """The broker did not do as it was told; carries the end of its log."""


class KafkaServer:
    """One broker in `folder`. Formatted when made, started by `start()` or as a context manager."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log_file = folder / "broker.log"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = folder / "server.properties"
        self._command = [artifacts.java(), *JVM, "-cp", f"{artifacts.kafka_jars()}/*"]
        self._plain, *others, controller = free_ports(4)
        plain, sasl, tls = (f"127.0.0.1:{port}" for port in (self._plain, *others))
        ca_file, key_store = write_certificates(folder)
        self.addresses = Addresses(plain, sasl, tls, str(ca_file))
        self._write_properties(controller, key_store)
        self._format()

    @property
    def bootstrap(self) -> str:
        """host:port of the plain door."""
        return self.addresses.bootstrap

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process else None

    def start(self) -> Self:
        """Start on the same ports and data as ever; return once it answers a metadata call.

        Raises:
            BrokerError: it ended, or did not answer within START_WITHIN seconds.
        """
        if self._process:
            raise BrokerError("the broker runs already")
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "kafka.Kafka", str(self._properties)],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        try:
            self._await_answer()
        except BrokerError:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Ask it to end (SIGTERM) and wait for that; a broker that will not is killed and reported."""
        process = self._end_with(signal.SIGTERM)
        try:
            process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired as late:
            process.kill()
            process.wait()
            raise BrokerError(f"no end within {STOP_WITHIN:.0f} s of SIGTERM{self._log_end()}") from late

    def kill(self) -> None:
        """End it at once (SIGKILL): no hand-over, no flush, as when a node dies."""
        self._end_with(signal.SIGKILL).wait()

    def restart(self) -> Self:
        """Stop in order and start again: same ports, same data."""
        self.stop()
        return self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._process:
            self.stop()

    def _end_with(self, number: signal.Signals) -> subprocess.Popen[bytes]:
        process, self._process = self._process, None
        if process is None:
            raise BrokerError("the broker does not run")
        process.send_signal(number)
        return process

    def _write_properties(self, controller: int, key_store: Path) -> None:
        at = self.addresses
        doors = {"PLAINTEXT": at.bootstrap, "SASL": at.sasl, "TLS": at.tls}
        text = PROPERTIES.format(
            doors=",".join(f"{name}://{at}" for name, at in doors.items()),
            controller=controller,
            mechanism=SASL_MECHANISM,
            login=SCRAM_LOGIN,
            key_store=key_store,
            superuser=SUPERUSER,
            data=self._folder / "data",
        )
        self._properties.write_text(text)

    def _format(self) -> None:
        users = [f"--add-scram={SASL_MECHANISM}=[name={name},password={word}]" for name, word in PASSWORDS.items()]
        command = [*self._command, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID]
        command += ["-c", str(self._properties), *users]
        with self.log_file.open("ab") as log:
            ended = subprocess.run(command, stdout=log, stderr=log, timeout=START_WITHIN, check=False)
        if ended.returncode:
            raise BrokerError(f"cannot format the data folder{self._log_end()}")

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_WITHIN
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise BrokerError(f"the broker ended while starting{self._log_end()}")
            if is_open(self._plain) and self._answers():
                return
            time.sleep(0.05)
        raise BrokerError(f"no answer within {START_WITHIN:.0f} s{self._log_end()}")

    def _answers(self) -> bool:
        try:
            told = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=2)
        except KafkaException:
            return False
        return len(told.brokers) == 1

    def _log_end(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines()[-15:] if self.log_file.exists() else []
        return "".join(f"\n  | {line}" for line in lines)
