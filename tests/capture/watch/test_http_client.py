"""Questions to a server: bounded in time and size, to one host alone, whatever it answers."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from capture.errors import UsageError
from capture.watch import http_client
from capture.watch.http_client import (
    HEADER_VARIABLE,
    MAX_BODY_BYTES,
    HttpClient,
    NoAnswerError,
    ServerAddress,
    read_extra_headers,
)
from tests.capture.watch.fake_server import State, serving
from tests.house import ROOT, Checkout


@contextmanager
def saying(data: bytes, *, then_wait: bool = False, drip_s: float = 0.0) -> Iterator[HttpClient]:
    """A server that says these bytes to whoever comes, at once or byte by byte."""
    over = threading.Event()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        try:
            connection.recv(65536)
            for piece in [data[i : i + 1] for i in range(len(data))] if drip_s else [data]:
                connection.sendall(piece)
                over.wait(drip_s)
            if then_wait:
                over.wait(30)
        except OSError:
            pass
        finally:
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield HttpClient(ServerAddress.from_url(f"http://127.0.0.1:{listener.getsockname()[1]}"))
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not speak HTTP"),
        (b"\x1b]52;c;AA\x07\r\n\r\n", "not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: zzz\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "speak HTTP"),
        (b"HTTP/1.1 999999999999 OK\r\n\r\n", "not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000 + b"\r\n", "not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000, "not speak HTTP"),
    ],
)
def test_nonsense_is_one_sentence(data: bytes, why: str) -> None:
    with saying(data) as client, pytest.raises(NoAnswerError, match=why):
        client.get("/metrics", 5.0)


def test_a_body_is_cut_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_BODY_BYTES", 1000)
    with saying(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000) as client:
        assert client.get("/metrics", 5.0).body == b"x" * 1000
    assert MAX_BODY_BYTES == 16 << 20


@pytest.mark.parametrize("sent", [b"", b"A: ", b"Content-Length: 99\r\n\r\nabc"])
def test_a_silent_server_is_left_in_time(sent: bytes) -> None:
    late = pytest.raises(NoAnswerError, match=r"no answer within 0.3 s")
    with saying(b"HTTP/1.1 200 OK\r\n" + sent, then_wait=True) as client, late:
        client.get("/metrics", 0.3)


def test_a_dripping_server_is_left_in_time() -> None:
    head = b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 90
    with saying(head, drip_s=0.05) as client:
        began = time.monotonic()
        with pytest.raises(NoAnswerError, match="no answer within"):
            client.get("/metrics", 0.5)
        assert time.monotonic() - began < len(head) * 0.05 / 2  # it would take 28 s


def test_nobody_there_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NoAnswerError, match="connection refused"):
        HttpClient(ServerAddress.from_url(f"http://127.0.0.1:{port}")).get("/", 5.0)
    with pytest.raises(NoAnswerError, match="unknown host"):
        HttpClient(ServerAddress.from_url("http://tracetui.invalid:1")).get("/", 5.0)


def test_a_redirect_to_another_host_is_not_followed() -> None:
    there = State("vllm")
    with serving(there) as other:
        here = State("vllm", redirect=other)
        with serving(here) as address, pytest.raises(NoAnswerError, match="it redirects to http://127"):
            HttpClient(ServerAddress.from_url(address), {"Authorization": "Bearer secret"}).get(
                "/metrics", 5.0
            )
    assert there.seen == []


def test_a_redirect_on_the_same_server_is_followed() -> None:
    state = State("vllm")
    with serving(state) as address:
        client = HttpClient(ServerAddress.from_url(address))
        state.redirect = address
        with pytest.raises(NoAnswerError, match="in a loop"):
            client.get("/metrics", 5.0)
    assert [path for path, _ in state.seen] == ["GET /metrics"] * 3


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://host:port",
        "http://host:99999",
        "http://me:secret@host",
        "ftp://host",
        "http://host/?a=b",
        "http://h\x1b]52;c;AA\x07",
        "http://" + "a" * 300,
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        ServerAddress.from_url(url)
    assert "secret" not in str(refused.value) and "\x1b" not in str(refused.value)


def test_an_address_has_its_usual_port() -> None:
    assert str(ServerAddress.from_url("http://host")) == "http://host:80"
    assert str(ServerAddress.from_url("https://[::1]/base/")) == "https://[::1]:443/base"


def test_a_header_of_the_environment_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADER_VARIABLE, "Authorization: Bearer secret")
    state = State("vllm", key="secret")
    with serving(state) as address:
        assert HttpClient(ServerAddress.from_url(address), read_extra_headers()).get("/v1/models", 5.0).is_ok
        assert not HttpClient(ServerAddress.from_url(address)).get("/v1/models", 5.0).is_ok


@pytest.mark.parametrize("line", ["secret", ": secret", "A: \x1bsecret", "A b: secret", "A: x\r\nB: secret"])
def test_a_header_that_is_none_is_refused_untold(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setenv(HEADER_VARIABLE, line)
    with pytest.raises(UsageError) as refused:
        read_extra_headers()
    assert "secret" not in str(refused.value)


@pytest.mark.slow
def test_one_module_alone_uses_the_network() -> None:
    asking = {"http", "urllib.request", "requests", "httpx", "aiohttp", "socketserver", "ftplib", "smtplib"}
    imports = {module.place: module.imports for module in Checkout().modules}
    users = [
        place for place, names in imports.items() if asking & {*names, *(n.split(".")[0] for n in names)}
    ]
    assert users == ["capture/watch/http_client.py"]


def test_the_document_says_so() -> None:
    assert (
        "capture/watch/http_client.py"
        in Path(ROOT / "ARCHITECTURE.md").read_text().partition("<!-- tree -->")[0]
    )
