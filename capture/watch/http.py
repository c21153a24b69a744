"""Asks a server, and only the one whose address a person gave: bounded in time and size, never led elsewhere.

The only place that uses the network. No proxy is asked, no redirect to another host is followed, and what
comes back is bytes that nobody trusts.
"""

import contextlib
import http.client
import json
import os
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from capture.errors import UsageError
from capture.text import clean

HEADER: Final = "TRACETUI_HEADER"  # variable of a header that goes with every request, and is shown nowhere
LARGEST: Final = 16 << 20  # bytes of an answer that are read
HOPS: Final = 2  # redirects on the same server that are followed
REDIRECTS: Final = (301, 302, 303, 307, 308)
REFUSED: Final = (401, 403)
_CHUNK: Final = 1 << 16
_SCHEMES: Final = {"http": 80, "https": 443}


class NoAnswerError(Exception):
    """Why a server gave no answer that can be used, as the end of a sentence."""


class NobodyThereError(NoAnswerError):
    """Nobody listens at the address: what listened there is gone, and what it was doing with it."""


@dataclass(frozen=True)
class Answer:
    """What a server answered; `body` is cut at LARGEST bytes."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The beginning of what it said, cleaned, on one line."""
        return clean(" ".join(self.body[:2000].decode("utf-8", "replace").split()), 200)

    def json(self) -> Any:
        """Return the document that the body is; None where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True)
class Address:
    """Where a server listens, without a word of who asks."""

    scheme: str
    host: str
    port: int
    base: str = ""

    @classmethod
    def of(cls, url: str) -> "Address":
        """Return the address that a person typed; raise UsageError where it is none."""
        try:
            parts = urlsplit(url)
            port = parts.port or _SCHEMES[parts.scheme]
            named, host = parts.username or parts.password, parts.hostname or ""
            host.encode("idna")
        except (ValueError, KeyError, UnicodeError):
            raise UsageError(
                f"{clean(url, 200)} is no address", todo="write it as http://HOST:PORT"
            ) from None
        if named:
            todo = f"put the header into the variable {HEADER}"
            raise UsageError("an address with a name or password would be kept in the recording", todo=todo)
        if not host or parts.query or parts.fragment or not url.isprintable():
            raise UsageError(f"{clean(url, 200)} is no address", todo="write it as http://HOST:PORT")
        return cls(parts.scheme, host, port, parts.path.rstrip("/"))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return clean(f"{self.scheme}://{host}:{self.port}{self.base}", 200)


class Client:
    """Asks one server; every question has a connection of its own, so threads may share it."""

    def __init__(self, address: Address, headers: Mapping[str, str] | None = None) -> None:
        self.address = address
        self._headers = {"Accept": "*/*", "User-Agent": "tracetui", **(headers or {})}

    def get(self, path: str, seconds: float) -> Answer:
        """Return the answer to a question; raise NoAnswerError where none came within so many seconds."""
        return self._ask("GET", path, None, seconds)

    def post(self, path: str, body: Mapping[str, Any] | None, seconds: float) -> Answer:
        """Return the answer to an order; raise NoAnswerError as `get` does."""
        return self._ask("POST", path, body, seconds)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, seconds: float) -> Answer:
        target = self.address.base + path
        for _ in range(HOPS + 1):
            answer, elsewhere = self._exchange(method, target, body, seconds)
            if elsewhere is None:
                return answer
            target = self._same_server(target, elsewhere)
        raise NoAnswerError("it redirects again and again")

    def _same_server(self, target: str, elsewhere: str) -> str:
        """Return where a redirect on the same server leads; raise NoAnswerError for one to another."""
        where = self.address
        full = urljoin(f"{where.scheme}://{where.host}:{where.port}{target}", elsewhere)
        try:
            other = Address.of(full.partition("?")[0])
        except UsageError:
            raise NoAnswerError("it redirects to what is no address") from None
        if (other.scheme, other.host, other.port) != (where.scheme, where.host, where.port):
            raise NoAnswerError(f"it redirects to {other}, which was not asked for")
        return urlsplit(full).path

    def _exchange(
        self, method: str, target: str, body: Mapping[str, Any] | None, seconds: float
    ) -> tuple[Answer, str | None]:
        """Return the answer, and where a redirect leads."""
        connection = self._connection(seconds)
        late = threading.Event()
        timer = threading.Timer(seconds, _break_off, (connection, late))
        timer.daemon = True
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        try:
            timer.start()
            connection.request(method, target, data, headers)
            response = connection.getresponse()
            answer = Answer(response.status, _read(response))
            if late.is_set():
                raise TimeoutError
            return answer, response.getheader("Location") if response.status in REDIRECTS else None
        except ConnectionRefusedError as e:
            raise NobodyThereError(_why(e, seconds, late=False)) from None
        except (OSError, http.client.HTTPException, ValueError) as e:
            raise NoAnswerError(_why(e, seconds, late=late.is_set())) from None
        finally:
            timer.cancel()
            connection.close()

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        host, port = self.address.host, self.address.port
        if self.address.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)
        return http.client.HTTPConnection(host, port, timeout=seconds)


def headers_of_environment() -> dict[str, str]:
    """Return the header that a person put into the environment; raise UsageError where it is none."""
    line = os.environ.get(HEADER, "")
    name, colon, value = line.partition(":")
    if not line:
        return {}
    if not colon or not name.strip().replace("-", "").isalnum() or not value.strip().isprintable():
        raise UsageError(f"the variable {HEADER} holds no header", todo="write it as Name: value")
    return {name.strip(): value.strip()}


def _read(response: http.client.HTTPResponse) -> bytes:
    parts, have = [], 0
    while have < LARGEST and (chunk := response.read1(_CHUNK)):
        parts.append(chunk)
        have += len(chunk)
    return b"".join(parts)[:LARGEST]


def _break_off(connection: http.client.HTTPConnection, late: threading.Event) -> None:
    """End an exchange whose time is over, whatever it waits for."""
    late.set()
    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _why(error: Exception, seconds: float, *, late: bool) -> str:
    if late or isinstance(error, TimeoutError):
        return f"no answer within {seconds:g} s"
    if isinstance(error, ssl.SSLError):
        return f"no secure connection: {clean(error.reason or str(error), 100)}"
    if isinstance(error, socket.gaierror):
        return "no host of that name is known"
    if isinstance(error, OSError) and error.errno is not None:
        return clean(os.strerror(error.errno), 100).lower()
    return "what it says is no HTTP"
