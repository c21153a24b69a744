"""`--download`: a hub of the test's own, and nothing is asked of it unless that is said."""

import hashlib
import json
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.engines import folders, tiny
from tests.engines import gguf_files as files

pytestmark = pytest.mark.slow

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")

ROOT = Path(__file__).parent.parent.parent
SHA = "c0ffee" + "0" * 34


class Hub(BaseHTTPRequestHandler):
    """Answers as huggingface.co does for one model a name, and keeps what was asked."""

    models: ClassVar[dict[str, dict[str, bytes]]] = {}
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.answer(body=True)

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def answer(self, *, body: bool) -> None:
        self.asked.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0].lstrip("/")
        for name, table in self.models.items():
            if f"{path}/".startswith(f"api/models/{name}/"):
                return self.tell(name, table)
            if path.startswith(f"{name}/resolve/"):
                return self.give(table.get(path.split("/", 4)[4]), body=body)
        return self.refuse()

    def tell(self, name: str, table: dict[str, bytes]) -> None:
        if "/tree/" in self.path:
            entries = [
                {"type": "file", "path": file, "size": len(raw), "oid": hashlib.sha1(raw).hexdigest()}  # noqa: S324
                for file, raw in table.items()
            ]
            return self.send(json.dumps(entries).encode(), body=True)
        about: dict[str, Any] = {"id": name, "modelId": name, "sha": SHA, "private": False, "tags": []}
        about |= {"siblings": [{"rfilename": file} for file in table], "downloads": 0, "likes": 0}
        return self.send(json.dumps(about).encode(), body=True)

    def give(self, raw: bytes | None, *, body: bool) -> None:
        if raw is None:
            return self.refuse()
        return self.send(raw, body=body)

    def send(self, raw: bytes, *, body: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.send_header("ETag", f'"{hashlib.sha1(raw).hexdigest()}"')  # noqa: S324
        self.send_header("X-Repo-Commit", SHA)
        self.end_headers()
        if body:
            self.wfile.write(raw)

    def refuse(self) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    made, _ = folders.gemma(tmp_path / "made")
    small = tiny.SPECS["qwen2"]
    one = files.write(tmp_path / "one.gguf", small, files.converted(small, tiny.weights(small)))
    Hub.models = {
        "org/tiny": {path.name: path.read_bytes() for path in made.iterdir()} | {"big.bin": b"never"},
        "org/tiny-GGUF": {"tiny-Q4_K_M.gguf": one.read_bytes(), "tiny-F32.gguf": one.read_bytes()},
    }
    Hub.asked = []
    socketserver.TCPServer.allow_reuse_address = True
    server = Quiet(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def run(hub: str, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The engine's door, whose client reads where the hub is when it is imported."""
    env = {"HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin", "NO_PROXY": "*",
           "PYTHONPATH": str(ROOT), "OLLAMA_MODELS": str(tmp_path / "none"), "HOME": str(tmp_path),
           "HF_HUB_DISABLE_XET": "1"}  # fmt: skip
    (tmp_path / "out.jsonl").unlink(missing_ok=True)
    command = [sys.executable, "-m", "engines", "--out", str(tmp_path / "out.jsonl"), "--steps", "2",
               "--device", "cpu", "--dtype", "fp32", "--threads", "1", *arguments]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=env, cwd=tmp_path)


def meta(path: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {k: v for line in lines if line["kind"] == "run" for k, v in line["meta"].items()}


def test_a_model_is_fetched_once_and_only_where_that_is_said(hub: str, tmp_path: Path) -> None:
    result = run(hub, tmp_path, "--model", "org/tiny")
    assert result.returncode == 2 and "--download fetches it" in result.stderr and Hub.asked == []
    result = run(hub, tmp_path, "--model", "org/tiny", "--download")
    assert result.returncode == 0, result.stderr
    kept = tmp_path / "home" / "hub" / "models--org--tiny"
    assert meta(tmp_path / "out.jsonl")["weights"] == str(kept / "snapshots" / SHA)
    assert not any("big.bin" in asked for asked in Hub.asked)
    Hub.asked.clear()
    assert run(hub, tmp_path, "--model", "org/tiny", "--download").returncode == 0
    assert run(hub, tmp_path, "--model", "org/tiny").returncode == 0
    assert Hub.asked == []


def test_a_tag_fetches_one_file(hub: str, tmp_path: Path) -> None:
    result = run(hub, tmp_path, "--model", "org/tiny-GGUF:Q4_K_M", "--download")
    assert result.returncode == 0, result.stderr
    assert meta(tmp_path / "out.jsonl")["weights"].endswith("tiny-Q4_K_M.gguf")
    assert not any("F32" in asked for asked in Hub.asked)


def test_what_the_hub_does_not_give_is_one_sentence(hub: str, tmp_path: Path) -> None:
    result = run(hub, tmp_path, "--model", "org/absent", "--download")
    assert result.returncode == 5 and result.stderr.count("\n") == 1
    assert "org/absent could not be downloaded (RepositoryNotFoundError" in result.stderr
    result = run(hub, tmp_path, "--model", "org/tiny-GGUF", "--download")
    assert result.returncode == 5 and "name one of its GGUF files: org/tiny-GGUF:Q4_K_M" in result.stderr
    result = run(hub, tmp_path, "--model", "nothing", "--download")
    assert result.returncode == 2


def test_a_hub_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    result = run("http://127.0.0.1:9", tmp_path, "--model", "org/tiny", "--download")
    assert result.returncode == 5 and "org/tiny could not be downloaded (" in result.stderr
    assert "Traceback" not in result.stderr
