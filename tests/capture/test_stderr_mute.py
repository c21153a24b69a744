"""What a library prints by itself reaches no terminal; what we and others print before and after does."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

from capture.errors import UnreadableError
from capture.load_runs import load
from capture.stderr_mute import mute_stderr
from tests.conftest import FIXTURES
from tests.tracetui.ui.pty import Terminal


@pytest.fixture(autouse=True)
def in_a_process_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capture.stderr_mute._is_allowed", True)


# Bytes of one page's header without which polars panics in a thread of its own.
PAGE = {848: 0, 852: 0, 853: 0}


def broken(folder: Path) -> Path:
    """Return a parquet file of which polars panics."""
    content = bytearray((FIXTURES / "exported_parquet" / "columns.parquet").read_bytes())
    for place, byte in PAGE.items():
        content[place] = byte
    path = folder / "broken.parquet"
    path.write_bytes(content)
    return path


def test_a_file_of_which_polars_panics_is_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(pl.exceptions.PanicException):
        pl.read_parquet(broken(tmp_path))
    assert "panicked at" in capfd.readouterr().err  # so the test can fail
    with pytest.raises(UnreadableError, match="is a damaged Parquet file"):
        load(broken(tmp_path), cache=False)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.terminal
def test_nothing_is_printed_over_the_screen(tmp_path: Path) -> None:
    with Terminal("open", str(broken(tmp_path))) as terminal:
        terminal.wait(lambda text: "is a damaged Parquet file" in " ".join(text.split()), 60)
        terminal.keys("q")
        assert terminal.end() == 3
    assert b"panicked" not in terminal.sent and b"backtrace" not in terminal.sent


def test_what_is_printed_before_and_after_is_seen(capfd: pytest.CaptureFixture[str]) -> None:
    os.write(2, b"before ")
    with mute_stderr():
        os.write(2, b"within ")
        with mute_stderr():
            os.write(2, b"deeper ")
        os.write(2, b"still within ")
    os.write(2, b"after")
    assert capfd.readouterr().err == "before after"


def test_the_last_of_several_threads_gives_it_back(capfd: pytest.CaptureFixture[str]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with mute_stderr():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=stay)
    with mute_stderr():
        thread.start()
        assert inside.wait(60)
    os.write(2, b"within ")
    leave.set()
    thread.join(60)
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


def test_a_standard_error_that_is_closed_stays_closed() -> None:
    code = """
import os
from capture.stderr_mute import allow_stderr_muting, mute_stderr
allow_stderr_muting()
os.close(2)
with mute_stderr():
    pass
try:
    os.fstat(2)
except OSError:
    print("closed")
"""
    result = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=FIXTURES.parent.parent, check=True
    )
    assert result.stdout == b"closed\n"


def test_a_program_that_imports_us_is_heard() -> None:
    """Its threads go on writing to standard error while a file is read."""
    code = f"""
import os
from capture.loaders import native
from capture.load_runs import load
read = native.load
def loud(source):
    os.write(2, b"said by another thread")
    return read(source)
native.load = loud
print(len(load({str(FIXTURES / "native" / "columns.jsonl")!r}, cache=False)))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, cwd=FIXTURES.parent.parent, check=True
    )
    assert result.stdout == b"1\n" and result.stderr == b"said by another thread"
