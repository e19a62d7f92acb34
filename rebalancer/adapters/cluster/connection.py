"""One connection to an API server: JSON in, JSON out, every request bounded in time, nothing repeated.

Addresses, certificates and tokens are the Kubernetes client's matter, its typed objects are not used: they cost,
and they drop fields they do not know. An HTTP status is an answer and never an exception; what the transport does
wrong is a ConnectionError or TimeoutError that names the address. Whether to try again is the caller's to decide.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson
import structlog
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_incluster_config, load_kube_config
from kubernetes.aio.config.config_exception import ConfigException

from rebalancer.settings import KubernetesSettings

log = structlog.get_logger(__name__)
CONNECT = 5.0
"""Seconds to open a connection: within one cluster it takes milliseconds, and a dead address must be told soon."""
CREDENTIALS_EVERY = 60.0
"""Seconds after which a kubeconfig's token file or credential plugin is read again, as in-cluster tokens are."""
USER_AGENT = "gpu-rebalancer"
JSON, MERGE, STRATEGIC, JSON_PATCH, APPLY = (
    "application/json", "application/merge-patch+json", "application/strategic-merge-patch+json",
    "application/json-patch+json", "application/apply-patch+yaml",
)  # fmt: skip
"""Content types of request bodies; all of them are sent as JSON, which is YAML too."""
Query = Mapping[str, str | int | bool]
_IN_CLUSTER: Any = load_incluster_config
_KUBECONFIG: Any = load_kube_config
"""Untyped in the client."""


class NotConnected(ConnectionError):  # noqa: N818 - says what happened
    """The API server could not be reached, or broke off; the message names it and says where to look."""

    def __init__(self, host: str, why: str) -> None:
        super().__init__(
            f"cannot reach the API server at {host}: {why}; see kubernetes.kubeconfig or the pod's network"
        )
        self.host = host


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server said. ``body`` is parsed JSON, or bytes when it is none; header names are lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None

    @property
    def ok(self) -> bool:
        """Whether the server did what was asked."""
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        """The server's own sentence in an error, else its status."""
        said = self.body.get("message") if isinstance(self.body, dict) else None
        return str(said)[:500] if said else f"HTTP {self.status}"

    @property
    def retry_after(self) -> float | None:
        """Seconds for which the server wants to be left alone; None when it did not say."""
        said = self.headers.get("retry-after", "")
        return float(said) if said.isascii() and said.isdigit() else None


@asynccontextmanager
async def connected(settings: KubernetesSettings) -> AsyncIterator[Api]:
    """A connection for as long as the block lasts. Nothing is asked of the server yet.

    Raises:
        NotConnected: there is no usable kubeconfig, or we do not run in a pod.
    """
    configuration = Configuration()
    configuration.retries = None
    try:
        await _configure(configuration, settings)
        _surroundings(configuration)
        client: Any = ApiClient(configuration)
    except Exception as error:  # noqa: BLE001 - the client's loader fails in many ways over what a file may hold
        where = settings.kubeconfig or "the pod's own service account"
        told = isinstance(error, ConfigException | OSError)  # others may quote the file, and it holds secrets
        raise NotConnected(
            str(where), str(error) if told else f"it is no kubeconfig ({type(error).__name__})"
        ) from None
    try:
        yield Api(client)
    finally:
        await client.close()


async def _configure(configuration: Any, settings: KubernetesSettings) -> None:
    if settings.kubeconfig is None:
        _IN_CLUSTER(client_configuration=configuration)
        return
    loader = await _KUBECONFIG(
        config_file=str(settings.kubeconfig),
        context=settings.context or None,
        client_configuration=configuration,
        persist_config=False,
    )
    configuration.refresh_api_key_hook = _Refresh(loader)


def _surroundings(configuration: Any) -> None:
    """The environment's proxy is looked up once; aiohttp would do so, and read ``~/.netrc``, for every request."""
    address = urlsplit(configuration.host)
    proxy = None if configuration.proxy or proxy_bypass(address.hostname or "") else getproxies().get(address.scheme)
    if proxy and proxy.startswith("http://"):
        configuration.proxy = proxy
    elif proxy:  # TLS to the proxy itself would be checked against the cluster's authority
        log.warning("the environment's proxy is passed by: only http:// ones are used", host=configuration.host)
    configuration.client_session_kwargs = {"trust_env": False}


class _Refresh:
    """Reads a kubeconfig's credentials again now and then: token files are replaced, plugins' tokens expire."""

    def __init__(self, loader: Any) -> None:
        self._loader, self._read = loader, time.monotonic()

    def __deepcopy__(self, memo: dict[int, object]) -> _Refresh:
        return self  # configurations are copied with everything in them, the loader has no business being copied

    async def __call__(self, configuration: Any) -> None:
        if time.monotonic() - self._read >= CREDENTIALS_EVERY:
            self._read = time.monotonic()
            await self._loader.load_and_set(configuration)


class Api:
    """A thin JSON client over the Kubernetes client's own transport."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.host: Final[str] = str(client.configuration.host)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Query | None = None,
        content_type: str | None = None,
        timeout: float,  # noqa: ASYNC109 - every call has its own bound, callers do not wrap it
    ) -> Reply:
        """One request and its whole answer within ``timeout`` seconds, sent once.

        Raises:
            NotConnected: the transport failed; whether the server acted on it is not known.
            TimeoutError: no whole answer in time; whether the server acted on it is not known.
        """
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT)
        try:
            async with asyncio.timeout(timeout), self._sent(method, path, query, body, content_type, limit) as answer:
                raw = await answer.read()
        except TimeoutError:
            raise TimeoutError(f"{method} {path}: no answer from {self.host} within {timeout:g} seconds") from None
        return Reply(answer.status, _headers(answer), self._parsed(answer, raw))

    async def stream(
        self,
        path: str,
        query: Query | None = None,
        *,
        idle: float,
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """The lines of a watch as they come, until the server ends it; more than ``idle`` silent seconds are a fault.

        A refusal comes as one ``ERROR`` event with the server's Status, as it would within the stream. Who leaves off
        before the end closes it.

        Raises:
            NotConnected: the connection broke, or what came is no watch event.
            TimeoutError: silent for too long.
        """
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=idle)
        try:
            async with self._sent("GET", path, query, None, None, limit) as answer:
                if answer.status != 200:
                    yield _refusal(answer.status, self._parsed(answer, await answer.read()))
                    return
                async for line in answer.content:
                    if line.strip():
                        yield self._event(line)
        except TimeoutError:
            raise TimeoutError(f"watch of {path}: {self.host} was silent for {idle:g} seconds") from None

    @asynccontextmanager
    async def _sent(  # noqa: PLR0917 - the parts of one request
        self,
        method: str,
        path: str,
        query: Query | None,
        body: object,
        content_type: str | None,
        limit: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer's head; closing instead of releasing, so that a broken-off answer is never reused."""
        answer: aiohttp.ClientResponse | None = None
        try:
            headers = await self._head(content_type)
            sent = await self._client.rest_client.request(
                method, self._url(path, query), headers=headers, body=body, _request_timeout=limit
            )
            answer = sent.response
            yield answer
        except (TimeoutError, NotConnected):  # both are kinds of OSError
            raise
        except (aiohttp.ClientError, ConfigException, OSError, ValueError) as error:
            raise NotConnected(self.host, f"{method} {path}: {str(error) or type(error).__name__}") from error
        finally:
            if answer is not None:
                answer.release() if answer.content.at_eof() else answer.close()

    async def _head(self, content_type: str | None) -> dict[str, str]:
        headers = {"Accept": JSON, "User-Agent": USER_AGENT, "Content-Type": content_type or JSON}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
        return headers

    def _url(self, path: str, query: Query | None) -> str:
        asked = {key: str(value).lower() if isinstance(value, bool) else value for key, value in (query or {}).items()}
        return f"{self.host}{path}{'?' if asked else ''}{urlencode(asked)}"

    def _parsed(self, answer: aiohttp.ClientResponse, raw: bytes) -> Any:
        if "json" not in answer.content_type:
            return raw
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise NotConnected(self.host, f"the answer is no JSON: {error}") from error

    def _event(self, line: bytes) -> Mapping[str, Any]:
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise NotConnected(self.host, f"the watch sent what is no JSON: {error}") from error
        if not isinstance(event, dict):
            raise NotConnected(self.host, "the watch sent what is no event")
        return event


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def _refusal(status: int, body: Any) -> dict[str, Any]:
    said = body if isinstance(body, dict) else {}
    return {"type": "ERROR", "object": {**said, "code": status, "message": said.get("message") or f"HTTP {status}"}}
