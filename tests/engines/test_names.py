"""Names as people type them, and what lies under them, in caches built here as their makers keep them."""

import json
from pathlib import Path

import pytest

from capture.errors import UsageError
from engines.__main__ import main
from engines.weights import model_names, weight_sources
from engines.weights.model_names import parse_repository, resolve_model
from tests.engines import folders, tiny
from tests.engines import gguf_files as files

SPEC = tiny.SPECS["qwen2"]
DIGEST = "5f" * 32


def gguf(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return files.write(path, SPEC, files.converted(SPEC, tiny.weights(SPEC)))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def ollama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def pulled(models: Path, *parts: str, digest: str = f"sha256:{DIGEST}") -> Path:
    """A model as `ollama pull` leaves it."""
    manifest = models.joinpath("manifests", *parts)
    manifest.parent.mkdir(parents=True, exist_ok=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": digest, "size": 1}
    manifest.write_text(
        json.dumps({"schemaVersion": 2, "layers": [{"mediaType": "x", "digest": "y"}, layer]})
    )
    return gguf(models / "blobs" / f"sha256-{DIGEST}")


@pytest.mark.parametrize(
    "typed", ["Org/Tiny-Gemma", "org/tiny-gemma", "https://huggingface.co/Org/Tiny-Gemma"]
)
def test_a_name_of_the_hub_is_its_snapshot(typed: str, cache: Path) -> None:
    model = cache / "models--Org--Tiny-Gemma"
    for sha in ("aaa", "bbb"):
        folders.gemma(model / "snapshots" / sha)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("bbb")
    assert resolve_model(typed).path == model / "snapshots" / "bbb"
    assert weight_sources.choose_model(typed, "auto").spec.hidden == 48


def test_a_name_of_a_known_model_is_that_model_where_it_is_not_here(cache: Path, ollama: Path) -> None:
    for typed in ("google/gemma-3-1b-it", "Google/Gemma-3-1B-IT", "gemma-3-1b"):
        choice = weight_sources.choose_model(typed, "auto")
        assert choice.path is None and choice.spec.name == "gemma-3-1b"
    snapshot, _ = folders.gemma(cache / "models--google--gemma-3-1b-it" / "snapshots" / "aaa")
    for typed in ("google/gemma-3-1b-it", "gemma-3-1b"):
        assert weight_sources.choose_model(typed, "auto").path == snapshot


def test_a_tag_chooses_among_files(cache: Path) -> None:
    snapshot = cache / "models--org--tiny-GGUF" / "snapshots" / "aaa"
    four, eight = gguf(snapshot / "tiny-Q4_K_M.gguf"), gguf(snapshot / "tiny-Q8_0.gguf")
    gguf(snapshot / "mmproj-F16.gguf")  # what turns pictures into tokens is no model of text
    assert resolve_model("org/tiny-GGUF:Q8_0").path == eight
    assert resolve_model("hf.co/org/tiny-gguf:q4_k_m").path == four
    with pytest.raises(
        UsageError, match=r"contains 2 GGUF files \(tiny-Q4_K_M\.gguf, tiny-Q8_0\.gguf\); name one"
    ):
        resolve_model("org/tiny-GGUF")
    with pytest.raises(UsageError, match="no GGUF file with Q2_K in its name"):
        resolve_model("org/tiny-GGUF:Q2_K")
    eight.unlink()
    assert resolve_model("org/tiny-GGUF").path == four
    assert resolve_model(str(snapshot)).path == four


@pytest.mark.parametrize(
    ("typed", "parts"),
    [
        ("tiny", ("registry.ollama.ai", "library", "tiny", "latest")),
        ("tiny:1b-q4", ("registry.ollama.ai", "library", "tiny", "1b-q4")),
        ("someone/tiny:v2", ("registry.ollama.ai", "someone", "tiny", "v2")),
        ("hf.co/org/tiny-GGUF:Q4_K_M", ("hf.co", "org", "tiny-GGUF", "Q4_K_M")),
    ],
)
def test_a_name_of_ollama_is_its_file(typed: str, parts: tuple[str, ...], cache: Path, ollama: Path) -> None:
    blob = pulled(ollama, *parts)
    assert resolve_model(typed).path == blob
    assert weight_sources.choose_model(typed, "auto").spec.layers == SPEC.layers


@pytest.mark.parametrize("digest", ["sha256:../../../etc/passwd", "md5:" + "5f" * 16, "", "sha256:5F"])
def test_a_manifest_leads_to_no_other_file(digest: str, cache: Path, ollama: Path) -> None:
    pulled(ollama, "registry.ollama.ai", "library", "tiny", "latest", digest=digest)
    with pytest.raises(UsageError, match="unknown model tiny"):
        resolve_model("tiny")


@pytest.mark.parametrize("raw", ["", "[]", "{}", '{"layers": 3}', '{"layers": [{}]}', "[" * 100000])
def test_a_broken_manifest_is_none(raw: str, cache: Path, ollama: Path) -> None:
    manifest = ollama / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "latest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(raw)
    with pytest.raises(UsageError):
        resolve_model("tiny")


@pytest.mark.parametrize("typed", ["../tiny", "a/../../b", "tiny:../x", "/etc/shadow/x", "a\0b", "x" * 5000])
def test_a_name_leads_nowhere_else(typed: str, cache: Path, ollama: Path) -> None:
    pulled(ollama, "registry.ollama.ai", "library", "tiny", "latest")
    with pytest.raises(UsageError):
        resolve_model(typed)


def test_an_unknown_name_says_where_was_looked_and_what_is_near(cache: Path, ollama: Path) -> None:
    pulled(ollama, "registry.ollama.ai", "library", "tiny", "latest")
    folders.gemma(cache / "models--org--Own-Gemma" / "snapshots" / "aaa")
    with pytest.raises(UsageError) as actual:
        resolve_model("org/own-gema")
    output = str(actual.value)
    assert output == (
        f"unknown model org/own-gema (searched: paths, {cache}, {ollama}); "
        "did you mean org/Own-Gemma?; --download fetches it from huggingface.co"
    )
    with pytest.raises(UsageError, match=r"did you mean tiny\?"):
        resolve_model("tinny")
    with pytest.raises(UsageError, match=r"did you mean google/gemma-3-1b-it or "):
        resolve_model("google/gemma-3-1b-itt")
    with pytest.raises(UsageError, match="known models: gemma-3-1b, "):
        resolve_model("zzzzzz")


def test_the_door_refuses_it_before_torch(
    cache: Path, ollama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--check", "--out", "x", "--model", "org/nothing"]) == 2
    assert "unknown model org/nothing" in capsys.readouterr().err
    assert main(["--check", "--out", "x", "--model", "google/gemma-3-1b-it", "--weights", "random"]) == 0


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("org/name", ("org/name", "")),
        ("hf.co/org/name:Q4_0", ("org/name", "Q4_0")),
        ("https://huggingface.co/org/name", ("org/name", "")),
        ("name", ("", "")),
        ("a/b/c", ("", "")),
        ("./org", ("", "")),
        ("../org", ("", "")),
    ],
)
def test_names_of_the_hub(typed: str, wanted: tuple[str, str]) -> None:
    assert parse_repository(typed) == wanted


def test_what_lies_here_is_listed_with_the_names_to_type(cache: Path, ollama: Path) -> None:
    blob = pulled(ollama, "registry.ollama.ai", "library", "tiny", "latest")
    snapshot, _ = folders.gemma(cache / "models--org--Own-Gemma" / "snapshots" / "aaa")
    broken = cache / "models--org--Broken" / "snapshots" / "aaa"
    broken.mkdir(parents=True)
    (broken / "bad.gguf").write_bytes(b"GGUF")
    listed = {entry["model"]: entry for entry in model_names.survey_models()["others"]}
    assert list(listed) == ["org/Broken", "org/Own-Gemma", "tiny:latest"]
    assert "not a complete GGUF file" in listed["org/Broken"]["refused"]
    assert listed["org/Own-Gemma"]["folder"] == str(snapshot)
    tiny_one = listed["tiny:latest"]
    assert (tiny_one["file"], tiny_one["bytes"]) == (str(blob), blob.stat().st_size)
    assert tiny_one["stored_as"] == "F32"
