"""How every client of ours reaches Kafka: addresses, TLS, SASL, and what to say when it cannot.

Settings only name things; secrets come from variables or files and never appear in a representation. No client is
made here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context
from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

T = TypeVar("T")


class Unreachable(ConnectionError):  # noqa: N818 - says what happened
    """No broker answered; the message says which addresses were tried."""

    def __init__(self, bootstrap: str, why: str) -> None:
        super().__init__(f"cannot reach Kafka, tried {bootstrap}: {why}")
        self.bootstrap = bootstrap


class KafkaSettings(BaseModel):
    """Where the brokers are and how we prove who we are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bootstrap: Annotated[str, Field(pattern=r"^[^\s,]+:\d+(,[^\s,]+:\d+)*$")] = "localhost:9092"
    """host:port of one or more brokers, comma separated."""
    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    ca_file: Path | None = None
    """Whom to trust; the system's authorities if not said."""
    cert_file: Path | None = None
    key_file: Path | None = None
    check_hostname: bool = True
    mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"] = "SCRAM-SHA-512"
    username: str = ""
    password: SecretStr = SecretStr("")
    password_file: Path | None = None
    token_file: Path | None = None
    """OAUTHBEARER: a file that always holds a valid token; read anew at each connection."""
    timeout: Annotated[float, Field(gt=0, le=120)] = 10.0
    """Seconds that one request may take."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.sasl:
            return self
        if self.mechanism == "OAUTHBEARER":
            if self.token_file is None:
                raise ValueError("OAUTHBEARER needs token_file")
        elif not self.username or not (self.password.get_secret_value() or self.password_file):
            raise ValueError(f"{self.mechanism} needs username, and password or password_file")
        return self

    @property
    def sasl(self) -> bool:
        """Whether we prove who we are by SASL."""
        return self.protocol.startswith("SASL")

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol.endswith("SSL")

    def secret(self) -> str:
        """The SASL password; a file is read anew, so that it may be rotated."""
        if self.password_file is not None:
            return self.password_file.read_text(encoding="utf-8").strip()
        return self.password.get_secret_value()

    def ssl_context(self) -> ssl.SSLContext | None:
        """What TLS needs, or None without TLS."""
        if not self.tls:
            return None
        files = {"cafile": self.ca_file, "certfile": self.cert_file, "keyfile": self.key_file}
        context: ssl.SSLContext = create_ssl_context(**{key: path and str(path) for key, path in files.items()})
        context.check_hostname = self.check_hostname
        return context

    def client_arguments(self) -> dict[str, Any]:
        """Arguments that every aiokafka client takes."""
        given: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap.split(","),
            "security_protocol": self.protocol,
            "ssl_context": self.ssl_context(),
            "request_timeout_ms": int(self.timeout * 1000),
        }
        if not self.sasl:
            return given
        given["sasl_mechanism"] = self.mechanism
        if self.mechanism == "OAUTHBEARER" and self.token_file is not None:
            return {**given, "sasl_oauth_token_provider": FileToken(self.token_file)}
        return {**given, "sasl_plain_username": self.username, "sasl_plain_password": self.secret()}

    def faust_arguments(self) -> dict[str, Any]:
        """The same for a Faust app: ``broker``, and ``broker_credentials`` where there is something to prove."""
        given: dict[str, Any] = {"broker": ";".join(f"kafka://{one}" for one in self.bootstrap.split(","))}
        credentials = self._faust_credentials()
        return given if credentials is None else {**given, "broker_credentials": credentials}

    def _faust_credentials(self) -> Any:
        if not self.sasl and not self.tls:
            return None
        from faust import auth  # noqa: PLC0415 - slow to import, and the commands do without it

        context = self.ssl_context()
        if not self.sasl:
            return auth.SSLCredentials(context)
        if self.token_file is not None:
            return auth.OAuthCredentials(oauth_cb=FileToken(self.token_file), ssl_context=context)
        return auth.SASLCredentials(
            username=self.username, password=self.secret(), mechanism=self.mechanism, ssl_context=context
        )


class FileToken(AbstractTokenProvider):
    """A bearer token kept fresh in a file by someone else (a projected volume, a sidecar)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def token(self) -> str:
        """The token as it stands now; the file is tiny and local."""
        return self._path.read_text(encoding="utf-8").strip()


async def asked_of(kafka: KafkaSettings, answer: Awaitable[T]) -> T:
    """An answer within the settings' bound, or ``Unreachable``."""
    try:
        async with asyncio.timeout(kafka.timeout):
            return await answer
    except TimeoutError:
        raise Unreachable(kafka.bootstrap, f"no answer within {kafka.timeout:g} s") from None
    except (KafkaError, OSError) as error:
        raise Unreachable(kafka.bootstrap, str(error) or type(error).__name__) from error
