"""What lies in a Hugging Face cache, found without torch; built here as people have it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from capture.errors import EngineError
from engines.models.catalogue import find_preset
from engines.weights import download, hub_cache, model_names
from tests.engines import folders

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def snapshot(cache: Path, name: str, sha: str = "aaa") -> Path:
    folder = cache / f"models--{name.replace('/', '--')}" / "snapshots" / sha
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("stated", "folder", "why"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a", "HF_HUB_CACHE"),
        ({"HF_HOME": "/b"}, "/b/hub", "HF_HOME"),
        ({}, "~/.cache/huggingface/hub", "neither"),
    ],
)
def test_where_is_looked(
    stated: dict[str, str], folder: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HUB_CACHE", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in stated.items():
        monkeypatch.setenv(name, value)
    place, reason = hub_cache.find_hub_folder()
    assert place == Path(folder).expanduser() and why in reason


def test_whole_weights_are_counted(cache: Path) -> None:
    folder, _ = folders.gemma(snapshot(cache, "google/gemma-3-1b-it"), shards=3)
    (folder / "tokenizer.json").write_text("{}")
    (actual,) = model_names.survey_preset(find_preset("gemma-3-1b"))
    whole = sum(p.stat().st_size for p in folder.glob("*.safetensors"))
    assert actual == {
        "model": "gemma-3-1b", "folder": str(folder), "config": True, "tokenizer": True, "shards": 3,
        "bytes": whole,
    }  # fmt: skip


def test_what_would_not_be_read_says_why(cache: Path) -> None:
    binary = snapshot(cache, "google/gemma-3-1b-pt")
    (binary / "pytorch_model.bin").write_bytes(b"\x80\x02")
    short, _ = folders.gemma(snapshot(cache, "google/gemma-3-1b-it"))
    (short / "model.safetensors").write_bytes((short / "model.safetensors").read_bytes()[:-1])
    first, second = model_names.survey_preset(find_preset("gemma-3-1b"))
    assert first["folder"] == str(short) and "not a complete safetensors file" in first["refused"]
    assert "pytorch_model.bin, which can run code when loaded" in second["refused"]
    assert second["config"] is False


def test_a_model_that_is_not_there_has_its_names(cache: Path) -> None:
    (actual,) = model_names.survey_preset(find_preset("gemma-3-1b"))
    assert actual["model"] == "gemma-3-1b" and "google/gemma-3-1b-it" in actual["names"]


def test_a_download_asks_for_the_files_of_its_tag_only(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    client = SimpleNamespace(snapshot_download=lambda name, **options: asked.append((name, options)))
    monkeypatch.setattr(download, "_load_client", lambda: client)
    for model in ("org/tiny-GGUF:q4_k_m", "org/tiny"):
        with pytest.raises(EngineError):
            download.fetch_model(model)
    assert [name for name, _ in asked] == ["org/tiny-GGUF", "org/tiny"]
    tagged, plain = (options["allow_patterns"] for _, options in asked)
    assert tagged == ["*q4_k_m*.gguf", "*Q4_K_M*.gguf"]
    assert plain == list(download.CHECKPOINT_FILES)
    assert {options["cache_dir"] for _, options in asked} == {cache}


def test_the_door_tells_it_and_torch_is_not_imported(cache: Path, tmp_path: Path) -> None:
    folders.gemma(snapshot(cache, "google/gemma-3-1b-it"))
    out = tmp_path / "told.jsonl"
    code = (
        "import sys; from engines.__main__ import main\n"
        f"code = main(['--tell', 'weights', '--out', {str(out)!r}])\n"
        "print(code, 'torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
        env=dict(os.environ),
    )
    assert result.stdout.split() == ["0", "False"]
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    reported: dict[str, Any] = {k: v for r in lines if r["kind"] == "run" for k, v in r["meta"].items()}
    actual = reported["weights_found"]
    assert actual["folder"] == str(cache) and actual["there"] is True
    assert {f["model"] for f in actual["found"]} >= {"gemma-3-1b", "smollm2-135m", "llama-3.2-1b"}
