"""Slips of the pen: each is one sentence with what was meant, the exit code is that of the mistake."""

import json
from pathlib import Path

import pytest

from tests.tracetui.in_process import tracetui
from tracetui.samples import find_sample


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("dif a b", "tracetui diff"),
        ("kernles", "tracetui report kernels"),
        ("report kernls sample:decode", "kernels"),
        ("open sample:decode --view timline", "timeline"),
        ("report kernels sample:decode --sort totl", "total"),
        ("report kernels sample:decode --formt json", "--format"),
        ("report kernels sample:decode --format jsn", "json"),
        ("report kernels sample:decode --group-by layr", "layer"),
        ("report kernels sample:decod", "decode"),
        ("completion bsh", "bash"),
        ("help comparng", "tracetui help comparing"),
    ],
)
def test_what_was_meant_is_asked(words: str, meant: str) -> None:
    result = tracetui(*words.split())
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.endswith(f"did you mean {meant}?\n") and result.stderr.count("\n") == 1


def test_a_file_that_is_not_there_names_the_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "profile.jsonl.gz").write_bytes(find_sample("decode").read_bytes())
    (tmp_path / "notes.txt").touch()
    slip = tracetui("report", "kernels", tmp_path / "profil.jsonl.gz")
    assert slip.returncode == 3
    assert slip.stderr.endswith("no such file or directory; did you mean profile.jsonl.gz?\n")
    for other in (tmp_path / "zzz", tmp_path / "no-folder" / "profile.jsonl.gz"):
        assert tracetui("report", "kernels", other).stderr.endswith("check the path\n")


def test_a_name_beside_it_is_cleaned(tmp_path: Path) -> None:
    (tmp_path / "profile\x1b[2J.jsonl").touch()
    assert "\x1b" not in tracetui("report", "kernels", tmp_path / "profile2J.jsonl").stderr


def test_words_that_resemble_nothing_list_what_there_is() -> None:
    assert "choose one of: summary, kernels" in tracetui("report", "qqqq", "sample:decode").stderr
    assert "the columns are name, op" in tracetui("report", "kernels", "sample:decode", "--sort", "qq").stderr
    assert "--help lists its options" in tracetui("report", "kernels", "--qqqq").stderr


def test_a_slip_is_json_where_a_program_reads() -> None:
    result = tracetui("report", "kernels", "sample:decode", "--format", "json", "--limt", "3")
    error = json.loads(result.stdout)["error"]
    assert result.returncode == error["code"] == 2
    assert error["todo"] == "did you mean --limit?" and "--limt" in error["what"]


def test_the_version_names_its_parts() -> None:
    from importlib.metadata import version

    lines = tracetui("version").stdout.splitlines()
    assert lines[0] == f"tracetui {version('tracetui')}" == tracetui("--version").stdout.strip()
    assert f"polars {version('polars')}" in lines and f"textual {version('textual')}" in lines
    assert lines[1].startswith("Python 3.")


def test_a_report_of_an_absent_file_says_that_it_is_absent() -> None:
    done = tracetui("report", "absent.json")
    assert done.returncode != 0 and "absent.json: no such file" in done.stderr
    assert "did you mean kernels" in tracetui("report", "kernles", "absent.json").stderr
