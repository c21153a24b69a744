"""Memory and time are bounded by the input: bombs, endless streams, one-line files, a million names."""

import gzip
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from capture import source as sources
from capture.errors import UnreadableError
from capture.load_runs import load
from capture.source import MAX_BLANK_LINES, MAX_UNPACK_RATIO, MIN_BOMB_BYTES, Source
from tests.conftest import FIXTURES

ROOT = FIXTURES.parent.parent
PROFILE = FIXTURES / "plain" / "kernels.csv"


def bomb(folder: Path, size: int) -> Path:
    """A table of some rows and blanks without end."""
    path = folder / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"name,dur\nk,1\n")
        for _ in range(size >> 20):
            file.write(b"\n" * (1 << 20))
    return path


def test_a_bomb_stops_at_the_stated_ratio_and_the_flag_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MIN_BOMB_BYTES", 1 << 20)
    path = bomb(tmp_path, 4 << 20)
    assert MAX_UNPACK_RATIO * path.stat().st_size < (4 << 20)
    with pytest.raises(UnreadableError, match=r"200 times its size.*--no-limits reads it all"):
        load(path, cache=False)
    (run,) = load(path, cache=False, limits=False)
    assert run.events["dur"].to_list() == [1000]


def test_no_more_is_unpacked_than_the_ratio_allows(tmp_path: Path) -> None:
    path = bomb(tmp_path, MIN_BOMB_BYTES + (64 << 20))
    seen = 0
    with pytest.raises(UnreadableError):
        for chunk in Source.from_path(path).iter_chunks():
            seen += len(chunk)
    assert seen <= max(MIN_BOMB_BYTES, MAX_UNPACK_RATIO * path.stat().st_size) < MIN_BOMB_BYTES + (64 << 20)


@pytest.mark.corpus
@pytest.mark.parametrize("blank", [b"\n", b" \n", b"\t\n", b"\r\n"])
@pytest.mark.parametrize("name", ["plain/kernels.csv", "ncu/details.csv", "rocprof/kernel_stats.csv"])
def test_of_many_blank_lines_some_are_read(name: str, blank: bytes, tmp_path: Path) -> None:
    """A thousand bytes unpack to a million lines that say nothing; it is told how many were left out."""
    whole = (FIXTURES / name).read_bytes()
    (plain,) = load(FIXTURES / name, cache=False)
    path = tmp_path / "input.csv.gz"
    begin, line, rest = whole.rpartition(b"\n")[0].rpartition(b"\n")
    path.write_bytes(gzip.compress(begin + line + 1_000_000 * blank + rest + b"\n"))
    (run,) = load(path, cache=False)
    assert run.events.equals(plain.events)
    (notice,) = (notice for notice in run.log.notices if notice.id == "blank_lines")
    assert notice.count == 1_000_001 - MAX_BLANK_LINES  # with the end of the line before


def test_lines_between_words_stay(tmp_path: Path) -> None:
    """As many blank lines as are left, and lines of blanks that are no run of them."""
    path = tmp_path / "input.txt"
    text = "a" + "\n" * (MAX_BLANK_LINES - 1) + " b\n" + " " * MAX_BLANK_LINES + "\nc\n"
    path.write_text(text)
    assert Source.from_path(path).read_text() == text
    assert [line for _, line in Source.from_path(path).iter_lines()] == [
        b"a",
        b" b",
        b" " * MAX_BLANK_LINES,
        b"c",
    ]
    assert [at for at, _ in Source.from_path(path).iter_lines()] == [
        0,
        MAX_BLANK_LINES,
        MAX_BLANK_LINES + 3,
        2 * MAX_BLANK_LINES + 4,
    ]


def temporary(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def opened_on_stdin(folder: Path, *words: str, feed: str) -> "subprocess.Popen[bytes]":
    command = ["sh", "-c", f"{feed} | {sys.executable} -m tracetui {' '.join(words)}"]
    environment = {**os.environ, "TMPDIR": str(folder), "XDG_STATE_HOME": str(folder / "none")}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("feed", "code"),
    [
        (f"cat {PROFILE}", 0),
        ("echo nothing that anybody reads", 3),
        (f"gzip -c {PROFILE} | head -c 60", None),
    ],
    ids=["read", "refused", "damaged"],
)
def test_the_copy_of_stdin_is_gone_when_the_program_ends(tmp_path: Path, feed: str, code: int | None) -> None:
    result = opened_on_stdin(tmp_path, "report", "kernels", "-", feed=feed)
    out, _ = result.communicate(timeout=60)
    assert code is None or result.returncode == code
    assert bool(out) == (result.returncode == 0)
    assert temporary(tmp_path) == set()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_copy_of_stdin_is_gone_when_the_program_is_ended(tmp_path: Path, number: int) -> None:
    """The stream stays open after its first rows, so that the program still copies when the signal comes."""
    child = opened_on_stdin(
        tmp_path, "report", "kernels", "-", feed=f"(cat {PROFILE}; echo begun >&2; sleep 60)"
    )
    assert child.stderr is not None
    assert b"begun" in child.stderr.readline()
    os.killpg(child.pid, number)
    child.communicate(timeout=60)
    assert temporary(tmp_path) == set()


def test_a_stream_can_be_read_more_than_once() -> None:
    whole = PROFILE.read_bytes()
    stream = Source.from_stream(io.BytesIO(whole), "stdin")
    assert stream.read() == stream.read() == whole and stream.size == len(whole)
    assert [run.events.height for run in load(stream, cache=False)] == [
        run.events.height for run in load(PROFILE, cache=False)
    ]


def test_a_database_may_come_as_a_stream() -> None:
    path = FIXTURES / "nsys" / "two_processes.sqlite"
    with path.open("rb") as file:
        (run,) = load(Source.from_stream(file, "stdin"), cache=False)
    (same,) = load(path, cache=False)
    assert run.events.height == same.events.height > 0


class Endless(io.RawIOBase):
    """Zeros for ever; how many were taken is counted."""

    taken = 0

    def read(self, size: int = -1) -> bytes:
        assert size > 0
        self.taken += size
        return bytes(size)


def test_a_stream_that_never_ends_is_refused_at_the_stated_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_STREAM_BYTES", 3 << 20)
    stream = Endless()
    with pytest.raises(
        UnreadableError, match="a stream of more than 3,145,728 bytes; --no-limits reads it all"
    ):
        Source.from_stream(stream, "stdin")  # type: ignore[arg-type]
    assert stream.taken == 4 << 20


def test_one_long_line_takes_time_in_proportion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of 64,000 chunks: joined anew for each of them, it would be copied 30,000 times."""
    monkeypatch.setattr(sources, "CHUNK_BYTES", 1 << 10)
    path = tmp_path / "line"
    path.write_bytes(b"first\r\n" + b"x" * (1 << 26) + b"\nlast")
    actual = [(at, len(line)) for at, line in Source.from_path(path).iter_lines()]
    assert actual == [(0, 5), (7, 1 << 26), ((1 << 26) + 8, 4)]


@pytest.mark.parametrize("size", range(1, 9))
def test_lines_are_the_same_wherever_chunks_end(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CHUNK_BYTES", size)
    path = tmp_path / "lines"
    path.write_bytes(b"a\r\n\n\nbcd\nlonger line\r\nend\n")
    lines = [(0, b"a"), (5, b"bcd"), (9, b"longer line"), (22, b"end")]
    assert list(Source.from_path(path).iter_lines()) == lines


@pytest.mark.slow
def test_each_of_many_rows_may_have_a_name_of_its_own(tmp_path: Path) -> None:
    from tracetui.look import Look
    from tracetui.report_formats import format_report
    from tracetui.views import load_view

    count = 200_000  # a million take as long a name
    path = tmp_path / "names.csv"
    names = pl.DataFrame({"name": pl.int_range(count, eager=True).cast(pl.String), "dur_ns": [5] * count})
    names.with_columns("kernel_" + pl.col("name")).write_csv(path)
    (run,) = load(path, cache=False)
    assert run.events["name"].n_unique() == count
    text = format_report(load_view("kernels"), [run], Look(limit=3), "csv")
    assert len(text.splitlines()) == 4
