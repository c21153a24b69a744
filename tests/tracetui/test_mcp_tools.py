"""Tools for agents: right answers, bounded, only below the stated folder, and nothing else can be done."""

import asyncio
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capture.errors import UsageError
from capture.load_runs import load
from tests.house import ROOT
from tests.tracetui.in_process import tracetui
from tracetui.mcp_tools import MAX_TOKENS, ProfileTools
from tracetui.samples import find_sample
from tracetui.token_digest import estimate_tokens


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two profiles and a text below a folder, and a profile and a link to it that lie outside."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "deep").mkdir(parents=True)
    outside.mkdir()
    shutil.copy(find_sample("decode"), root / "a.jsonl.gz")
    shutil.copy(find_sample("slowed"), root / "deep" / "b.jsonl.gz")
    shutil.copy(find_sample("slowed"), outside / "c.jsonl.gz")
    (root / "link.jsonl.gz").symlink_to(outside / "c.jsonl.gz")
    (root / "notes.txt").write_text("no profile\n")
    return root


def test_profiles_below_the_folder_are_listed_and_no_others(folder: Path) -> None:
    actual = json.loads(ProfileTools(folder).list_profiles())
    assert {entry["file"] for entry in actual["profiles"]} == {"a.jsonl.gz", "deep/b.jsonl.gz"}
    assert actual["of"] == 2 and {e["format"] for e in actual["profiles"]} == {"native"}


@pytest.mark.parametrize(
    "file",
    ["../outside/c.jsonl.gz", "link.jsonl.gz", "/etc/passwd", "-", "s3://bucket/x", "none", "deep", ""],
)
def test_no_question_leaves_the_folder(folder: Path, file: str) -> None:
    ask = ProfileTools(folder)
    for question in (ask.digest, ask.advice):
        with pytest.raises(UsageError, match="is not a file below the folder"):
            question(file)


def test_rows_are_those_of_the_view_and_bounded(folder: Path) -> None:
    tools = ProfileTools(folder)
    whole = json.loads(tools.view("kernels", "a.jsonl.gz", tokens=MAX_TOKENS))
    part = tools.view("kernels", "a.jsonl.gz", tokens=600)
    assert whole["rows_in_all"] == len(whole["rows"]) > len(json.loads(part)["rows"]) > 0
    assert estimate_tokens(part) <= 600
    (run,) = load(folder / "a.jsonl.gz", cache=False)
    first = whole["rows"][0]
    assert first["total_ns"] == run.events.filter(kind="kernel", name=first["name"])["dur"].sum()
    by_count = json.loads(
        tools.view("kernels", "a.jsonl.gz", sort="count", filter="norm", tokens=MAX_TOKENS)
    )["rows"]
    assert [r["count"] for r in by_count] == sorted((r["count"] for r in by_count), reverse=True)
    assert by_count and all("norm" in r["name"] for r in by_count)


def test_wrong_words_are_named(folder: Path) -> None:
    tools = ProfileTools(folder)
    for wrong, output in (
        (lambda: tools.view("kernls", "a.jsonl.gz"), "no view is called"),
        (lambda: tools.view("kernels", "a.jsonl.gz", sort="nope"), "no column is called"),
        (lambda: tools.view("diff", "a.jsonl.gz"), "compares runs"),
        (lambda: tools.digest("a.jsonl.gz", run="7"), "no run is called"),
    ):
        with pytest.raises(UsageError, match=output):
            wrong()


def served(folder: Path, questions: Callable[[Any], Any]) -> Any:
    """What a client of the SDK gets from `tracetui mcp` over a pipe."""
    from mcp import Client, StdioServerParameters

    async def talk() -> Any:
        command = ["-m", "tracetui", "mcp", "--root", str(folder)]
        server = StdioServerParameters(command=sys.executable, args=command, env={"PYTHONPATH": str(ROOT)})
        async with Client(server) as client:
            return await questions(client)

    return asyncio.run(talk())


@pytest.mark.slow
def test_a_client_asks_over_a_pipe(folder: Path) -> None:
    pytest.importorskip("mcp", reason="the extra mcp is not installed")

    async def questions(client: Any) -> Any:
        listed = (await client.list_tools()).tools
        actual = await client.call_tool(
            "digest", {"file": "a.jsonl.gz", "other": "deep/b.jsonl.gz", "tokens": 500}
        )
        refused = await client.call_tool("advice", {"file": "../outside/c.jsonl.gz"})
        return listed, actual, refused

    listed, actual, refused = served(folder, questions)
    assert {tool.name for tool in listed} == {"list_profiles", "list_views", "digest", "view", "advice"}
    assert all(tool.description and tool.annotations.read_only_hint for tool in listed)
    text = actual.content[0].text
    assert "ffn_down" in text and "slower" in text and estimate_tokens(text) <= 500
    assert refused.is_error and "is not a file below the folder" in refused.content[0].text


def test_a_wrong_folder_is_named() -> None:
    result = tracetui("mcp", "--root", "/no/such/folder")
    assert result.returncode == 2 and "is not a folder" in result.stderr and result.stdout == ""


def test_an_old_profile_among_many_newer_files_is_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracetui.mcp_tools._MAX_SCANNED_FILES", 3)
    for number in range(10):
        (folder / f"{number}.txt").write_text("newer\n")
    actual = json.loads(ProfileTools(folder).list_profiles())
    assert actual["of"] == 2 and actual["files_not_searched"] == 14 - 3


@pytest.mark.parametrize("file", ["a\0b", "a" * 5000])
def test_a_name_that_no_file_can_have_is_a_sentence(folder: Path, file: str) -> None:
    with pytest.raises(UsageError, match="is not a file below the folder"):
        ProfileTools(folder).digest(file)


def test_an_unknown_group_is_named(folder: Path) -> None:
    with pytest.raises(UsageError, match="no group is called"):
        ProfileTools(folder).view("kernels", "a.jsonl.gz", group="nope")


def test_an_error_of_a_tool_is_bounded_and_has_a_reason() -> None:
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from mcp.server.mcpserver.exceptions import ToolError

    from tracetui.verbs.mcp import MAX_ERROR_CHARS, _report_errors_as_text

    def fail(text: str) -> str:
        raise (ValueError if text else UsageError)(text or "x" * 1_000_000)

    for text in ("because", ""):
        with pytest.raises(ToolError, match=text or "x") as error:
            _report_errors_as_text(fail)(text)
        assert len(str(error.value)) <= MAX_ERROR_CHARS
