"""Files behind URLs: copied once, told from another state of the same file; no password is shown."""

import asyncio
import contextlib
import importlib.util
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from capture.errors import CaptureError, UnreadableError, UsageError
from capture.files import addresses, remote_files
from capture.load_runs import load, load_all
from tests.capture.served import object_store
from tests.conftest import FIXTURES

DOCUMENT = FIXTURES / "native" / "columns.jsonl"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tracetui" / "remote"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """A folder behind an HTTP server on this machine: its URL, the folder, and what was asked of it."""
    if not all(map(importlib.util.find_spec, ("fsspec", "aiohttp"))):
        pytest.skip("the extra http is not installed")
    folder = tmp_path / "served"
    folder.mkdir()
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            asked.append(f"{self.command} {self.path}")

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", folder, asked
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://anna:geheim@host:8000/a.json", "http://***@host:8000/a.json"),
        ("cannot open https://h/x.json?X-Amz-Signature=abc&b=1 now", "cannot open https://h/x.json?*** now"),
        ("sftp://anna@host/run/rank0.json", "sftp://***@host/run/rank0.json"),
        ("two: s3://k:s@b/x and s3://b/y?t=1", "two: s3://***@b/x and s3://b/y?***"),
        ("s3://bucket/plain.json", "s3://bucket/plain.json"),
        ("no address at all, a@b.c", "no address at all, a@b.c"),
        ("see http://user:p@ss:w0rd@host/ok.json", "see http://***@host/ok.json"),
        ("http://a@b@c@host/x@y.json", "http://***@host/x@y.json"),
    ],
)
def test_nothing_that_lets_somebody_in_is_shown(text: str, shown: str) -> None:
    assert addresses.mask_credentials(text) == shown


@pytest.mark.parametrize(
    ("word", "url", "pattern"),
    [
        ("s3://b/rank*.json", True, True),
        ("s3://b/x.json?versionId=3", True, False),
        ("https://h/a?b=*", True, False),
        ("C:/x/y.json", False, False),
        ("runs/rank?.json", False, True),
        ("plain.json", False, False),
    ],
)
def test_what_a_word_is(word: str, url: bool, pattern: bool) -> None:
    assert (addresses.is_url(word), addresses.is_pattern(word)) == (url, pattern)


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    odd = tmp_path / "rank[0].jsonl"
    odd.write_bytes(DOCUMENT.read_bytes())
    assert load(str(odd))[0].events.height > 0 and not addresses.is_pattern(str(odd))


def test_a_list_names_files_beside_it_and_elsewhere() -> None:
    text = "# ranks\nrank0.json\n\n/abs/rank1.json\ns3://b/rank2.json\n"
    assert addresses.parse_address_list(text, "/runs/all.txt") == [
        "/runs/rank0.json",
        "/abs/rank1.json",
        "s3://b/rank2.json",
    ]
    assert addresses.parse_address_list("r0.json", "s3://b/run/all.txt") == ["s3://b/run/r0.json"]
    with pytest.raises(UsageError, match="lists no address"):
        addresses.parse_address_list("# nothing\n", "all.txt")
    with pytest.raises(UsageError, match="another list"):
        addresses.parse_address_list("@more.txt\n", "all.txt")


def test_lists_and_patterns_are_opened_like_the_files_they_stand_for(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.jsonl").write_bytes(DOCUMENT.read_bytes())
    (tmp_path / "all.txt").write_text("b.jsonl\na.jsonl\n")
    sources = [Path(run.log.source).name for run in load_all([f"@{tmp_path}/all.txt"])]
    assert sources == ["b.jsonl", "a.jsonl"]
    sources = [Path(run.log.source).name for run in load_all([f"{tmp_path}/?.jsonl"])]
    assert sources == ["a.jsonl", "b.jsonl"]
    with pytest.raises(UnreadableError, match="no file matches"):
        load_all([f"{tmp_path}/x*.jsonl"])


def test_a_remote_file_is_read_once_until_it_changes(
    served: tuple[str, Path, list[str]], cache: Path
) -> None:
    url, folder, asked = served
    (folder / "a.jsonl").write_bytes(DOCUMENT.read_bytes())
    here = load(DOCUMENT)[0]
    for _ in range(2):
        (run,) = load(f"{url}/a.jsonl")
        assert run.events.equals(here.events) and run.log.source == f"{url}/a.jsonl"
    assert asked.count("GET /a.jsonl") == 1
    os.utime(folder / "a.jsonl", (1, 1))  # another Last-Modified: another state of the file
    load(f"{url}/a.jsonl")
    assert asked.count("GET /a.jsonl") == 2
    assert {p.name for p in cache.rglob("*") if p.is_file()} == {"a.jsonl"}


def test_copies_are_bounded(
    served: tuple[str, Path, list[str]], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder, _ = served
    size = DOCUMENT.stat().st_size
    for name in "abc":
        (folder / f"{name}.jsonl").write_bytes(DOCUMENT.read_bytes())
    monkeypatch.setattr(remote_files, "MAX_COPIES_BYTES", 2 * size)
    for age, name in enumerate("abc"):
        load(f"{url}/{name}.jsonl")
        for copy in cache.rglob(f"{name}.jsonl"):
            os.utime(copy, (age, age))
    assert {p.name for p in cache.rglob("*.jsonl")} == {"b.jsonl", "c.jsonl"}
    assert len(list(cache.iterdir())) == 2
    monkeypatch.setattr(remote_files, "MAX_COPIES_BYTES", size - 1)
    (folder / "d.jsonl").write_bytes(DOCUMENT.read_bytes())
    with pytest.raises(UnreadableError, match="available for copies"):
        load(f"{url}/d.jsonl")


def test_a_copy_that_ends_early_is_refused(served: tuple[str, Path, list[str]], cache: Path) -> None:
    url, folder, _ = served
    (folder / "a.jsonl").write_bytes(DOCUMENT.read_bytes())
    size = DOCUMENT.stat().st_size
    promised = remote_files.RemoteFile(f"{url}/a.jsonl", size + 1, ())
    with pytest.raises(
        UnreadableError, match=f"{size:,} bytes arrived where its host announced {size + 1:,}"
    ):
        remote_files.fetch_copy(promised)
    assert [p for p in cache.rglob("*") if p.is_file()] == []


def test_a_file_that_cannot_be_had_is_one_sentence(served: tuple[str, Path, list[str]]) -> None:
    url, _, _ = served
    with pytest.raises(UnreadableError) as error:
        load(url.replace("http://", "http://anna:geheim@") + "/none.jsonl")
    assert "not found" in str(error.value) and "geheim" not in str(error.value)
    for word in ("foo://host/x", "file:///etc/passwd", "simplecache::s3://b/x", "zip://x::s3://b/y"):
        with pytest.raises(CaptureError):
            load(word)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "find_spec", lambda name: None if name == "gcsfs" else object())
    with pytest.raises(UsageError, match=r"needs gcsfs.*pip install 'tracetui\[gs\]'"):
        load("gs://bucket/x.json")


@pytest.mark.slow
def test_objects_of_s3() -> None:
    with object_store() as system:
        for rank in (0, 1):
            system.pipe(f"bucket/run/rank{rank}.jsonl", DOCUMENT.read_bytes())
        expected = [f"s3://bucket/run/rank{rank}.jsonl" for rank in (0, 1)]
        for word in ("s3://bucket/run/rank*.jsonl", "s3://bucket/run/"):
            assert [run.log.source for run in load_all([word])] == expected
        with pytest.raises(UnreadableError) as error:
            load("s3://bucket/run/rank2.jsonl")
        assert "geheim" not in str(error.value)


def test_a_file_behind_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = pytest.importorskip("asyncssh", reason="the extra ssh is not installed")
    pytest.importorskip("sshfs", reason="the extra ssh is not installed")
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (tmp_path / "rank0.jsonl").write_bytes(DOCUMENT.read_bytes())
    host_key, own_key = (ssh.generate_private_key("ssh-ed25519") for _ in range(2))
    own_key.write_private_key(home / ".ssh" / "id_ed25519")
    allowed = ssh.import_authorized_keys(own_key.export_public_key().decode())
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def listen() -> Any:
        return await ssh.listen("127.0.0.1", 0, server_host_keys=[host_key], authorized_client_keys=allowed,
                                sftp_factory=True)  # fmt: skip

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result(30)
    try:
        monkeypatch.setenv("HOME", str(home))
        url = f"ssh://anna@127.0.0.1:{server.get_port()}{tmp_path}/rank0.jsonl"
        with pytest.raises(UnreadableError, match="HostKeyNotVerifiable"):  # nobody knows it
            load(url)
        public = host_key.export_public_key().decode().strip()
        (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{server.get_port()} {public}\n")
        (run,) = load(url)
        assert run.events.equals(load(DOCUMENT)[0].events)
        assert run.log.source == url.replace("anna@", "***@")
    finally:
        loop.call_soon_threadsafe(server.close)


@pytest.fixture
def answering() -> Iterator[str]:
    """A server whose path says how it answers: a status, a circle, or a byte now and then."""
    if not all(map(importlib.util.find_spec, ("fsspec", "aiohttp"))):
        pytest.skip("the extra http is not installed")

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            word = self.path.strip("/").partition(".")[0]
            self.send_response(302 if word == "circle" else int(word))
            if word == "circle":
                self.send_header("Location", self.path)
            self.send_header("Content-Length", "300" if word == "200" else "0")
            self.end_headers()
            with contextlib.suppress(OSError):
                for _ in range(300 if word == "200" and self.command == "GET" else 0):
                    self.wfile.write(b"x")
                    self.wfile.flush()
                    time.sleep(0.02)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("401", "its host answers 401"),
        ("403", "its host answers 403"),
        ("500", "its host answers 500"),
        ("404", "not found"),
        ("circle", "redirects in a circle"),
    ],
)
def test_an_answer_of_an_http_server_is_what_it_is(answering: str, path: str, message: str) -> None:
    with pytest.raises(UnreadableError, match=message):
        load(f"{answering}/{path}.json")


def test_a_silent_host_is_no_missing_file() -> None:
    if not all(map(importlib.util.find_spec, ("fsspec", "aiohttp"))):
        pytest.skip("the extra http is not installed")
    with pytest.raises(UnreadableError, match="does not answer"):
        load("http://127.0.0.1:1/x.json")


def test_a_server_that_drips_is_given_up_and_leaves_no_part(
    answering: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_files, "SLOW_AFTER_S", 0.2)
    monkeypatch.setattr(remote_files, "ANNOUNCE_INTERVAL_S", 0.1)
    heard: list[str] = []
    monkeypatch.setattr("capture.tasks._listeners", [heard.append])
    (cache / "old").mkdir(parents=True)
    (cache / "old" / ".999999999-killed").touch()
    with pytest.raises(UnreadableError, match="less than 1,000 bytes per second"):
        load(f"{answering}/200.json")
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    assert any("MB" in text for text in heard)
