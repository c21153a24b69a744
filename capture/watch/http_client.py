"""HTTP client for the one server whose address the user gave: bounded in time and size.

The only module that uses the network by itself. It uses no proxy, follows no redirect to another host, and
treats responses as untrusted bytes.
"""

import contextlib
import http.client
import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from capture.clean_text import clean
from capture.errors import UsageError

HEADER_VARIABLE: Final = "TRACETUI_HEADER"  # environment: a header for every request; never shown
MAX_BODY_BYTES: Final = 16 << 20  # of a response that are read
MAX_REDIRECTS: Final = 2  # followed on the same server
REDIRECT_STATUSES: Final = (301, 302, 303, 307, 308)
KEY_HINT: Final = f"{HEADER_VARIABLE}='Authorization: Bearer KEY' sends a key with every request"
_CHUNK: Final = 1 << 16
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

Body = Mapping[str, Any] | None  # of a request, as JSON


class NoAnswerError(Exception):
    """The reason why a server gave no usable response, as the end of a sentence."""


class RefusalError(NoAnswerError):
    """A response without success: its status and the start of its text."""

    def __init__(self, response: "HttpResponse") -> None:
        self.status = response.status
        super().__init__(f"it responds with {response.status}: {response.text}")


class NotListeningError(NoAnswerError):
    """Nothing listens at the address: the server is gone, and with it any profile."""


@dataclass(frozen=True)
class HttpResponse:
    """A response; `body` is cut at MAX_BODY_BYTES."""

    status: int
    body: bytes

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_refusal(self) -> bool:
        return self.status in (401, 403)

    @property
    def text(self) -> str:
        """The start of the body, cleaned, on one line."""
        return clean(" ".join(self.body[:2000].decode("utf-8", "replace").split()), 200)

    def parse_json(self) -> Any:
        """Return the body as JSON, or None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True)
class ServerAddress:
    """Address of a server, without credentials."""

    scheme: str
    host: str
    port: int
    base: str = ""

    @classmethod
    def from_url(cls, url: str) -> "ServerAddress":
        """Return the address of a URL typed by the user; raise UsageError if it is invalid."""
        invalid = UsageError(f"invalid address {clean(url, 200)}", todo="write it as http://HOST:PORT")
        try:
            parts = urlsplit(url)
            port = parts.port or _DEFAULT_PORTS[parts.scheme]
            has_credentials, host = parts.username or parts.password, parts.hostname or ""
            host.encode("idna")
        except (ValueError, KeyError, UnicodeError):
            raise invalid from None
        if has_credentials:
            todo = f"put the header into the variable {HEADER_VARIABLE}"
            raise UsageError("an address with user or password would be saved in the recording", todo=todo)
        if not host or parts.query or parts.fragment or not url.isprintable():
            raise invalid
        return cls(parts.scheme, host, port, parts.path.rstrip("/"))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return clean(f"{self.scheme}://{host}:{self.port}{self.base}", 200)


class HttpClient:
    """Client of one server; each request has its own connection, so threads may share it."""

    def __init__(self, address: ServerAddress, headers: Mapping[str, str] | None = None) -> None:
        self.address = address
        self._headers = {"Accept": "*/*", "User-Agent": "tracetui", **(headers or {})}

    def get(self, path: str, seconds: float) -> HttpResponse:
        """Return the response to a GET; raise NoAnswerError if none comes within so many seconds."""
        return self._request("GET", path, None, seconds)

    def post(self, path: str, body: Body, seconds: float) -> HttpResponse:
        """Return the response to a POST; raise NoAnswerError as `get` does."""
        return self._request("POST", path, body, seconds)

    def stream(self, path: str, body: Body, seconds: float) -> Iterator[bytes]:
        """Yield the lines of the response to a POST as they come.

        Raise RefusalError for a response without success, NoAnswerError if nothing comes for so many seconds.
        """
        connection = self._open_connection(seconds)
        headers = {**self._headers, "Content-Type": "application/json"}
        try:
            connection.request("POST", self.address.base + path, json.dumps(body).encode(), headers)
            response = connection.getresponse()
            if not 200 <= response.status < 300:
                raise RefusalError(HttpResponse(response.status, _read_body(response)))
            while line := response.readline(MAX_BODY_BYTES):
                yield line
        except ConnectionRefusedError as e:
            raise NotListeningError(_describe_failure(e, seconds, is_late=False)) from None
        except (OSError, http.client.HTTPException, ValueError) as e:
            raise NoAnswerError(_describe_failure(e, seconds, is_late=False)) from None
        finally:
            connection.close()

    def _request(self, method: str, path: str, body: Body, seconds: float) -> HttpResponse:
        target = self.address.base + path
        for _ in range(MAX_REDIRECTS + 1):
            response, location = self._exchange(method, target, body, seconds)
            if location is None:
                return response
            target = self._resolve_redirect(target, location)
        raise NoAnswerError("it redirects in a loop")

    def _resolve_redirect(self, target: str, location: str) -> str:
        """Return the target of a redirect on the same server; raise NoAnswerError for another server."""
        address = self.address
        full = urljoin(f"{address.scheme}://{address.host}:{address.port}{target}", location)
        try:
            other = ServerAddress.from_url(full.partition("?")[0])
        except UsageError:
            raise NoAnswerError("it redirects to an invalid address") from None
        if (other.scheme, other.host, other.port) != (address.scheme, address.host, address.port):
            raise NoAnswerError(f"it redirects to {other}, another server")
        return urlsplit(full).path

    def _exchange(
        self, method: str, target: str, body: Body, seconds: float
    ) -> tuple[HttpResponse, str | None]:
        """Return the response, and the target of a redirect if it is one."""
        connection = self._open_connection(seconds)
        is_late = threading.Event()
        timer = threading.Timer(seconds, _cancel_exchange, (connection, is_late))
        timer.daemon = True
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        try:
            timer.start()
            connection.request(method, target, data, headers)
            response = connection.getresponse()
            content = _read_body(response)
            if is_late.is_set():
                raise TimeoutError
            redirects = response.status in REDIRECT_STATUSES
            location = response.getheader("Location") if redirects else None
            return HttpResponse(response.status, content), location
        except ConnectionRefusedError as e:
            raise NotListeningError(_describe_failure(e, seconds, is_late=False)) from None
        except (OSError, http.client.HTTPException, ValueError) as e:
            raise NoAnswerError(_describe_failure(e, seconds, is_late=is_late.is_set())) from None
        finally:
            timer.cancel()
            connection.close()

    def _open_connection(self, seconds: float) -> http.client.HTTPConnection:
        host, port = self.address.host, self.address.port
        if self.address.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)
        return http.client.HTTPConnection(host, port, timeout=seconds)


def read_extra_headers() -> dict[str, str]:
    """Return the header in the environment, if any; raise UsageError if it is invalid."""
    line = os.environ.get(HEADER_VARIABLE, "")
    name, colon, value = line.partition(":")
    if not line:
        return {}
    if not colon or not name.strip().replace("-", "").isalnum() or not value.strip().isprintable():
        raise UsageError(f"the variable {HEADER_VARIABLE} contains no header", todo="write it as Name: value")
    return {name.strip(): value.strip()}


def _read_body(response: http.client.HTTPResponse) -> bytes:
    parts, size = [], 0
    while size < MAX_BODY_BYTES and (chunk := response.read1(_CHUNK)):
        parts.append(chunk)
        size += len(chunk)
    return b"".join(parts)[:MAX_BODY_BYTES]


def _cancel_exchange(connection: http.client.HTTPConnection, is_late: threading.Event) -> None:
    """End an exchange that takes too long, whatever it waits for."""
    is_late.set()
    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _describe_failure(error: Exception, seconds: float, *, is_late: bool) -> str:
    if is_late or isinstance(error, TimeoutError):
        return f"no answer within {seconds:g} s"
    if isinstance(error, ssl.SSLError):
        return f"no secure connection: {clean(error.reason or str(error), 100)}"
    if isinstance(error, socket.gaierror):
        return "unknown host"
    if isinstance(error, OSError) and error.errno is not None:
        return clean(os.strerror(error.errno), 100).lower()
    return "it does not speak HTTP"
