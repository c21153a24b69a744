"""The bundled engine after a kill -9 of the explorer that started it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from capture.load_runs import load
from tests.engines import folders, tiny
from tests.tracetui.ui.pty import Terminal
from tests.tracetui.ui.test_lost_explorer import gone, until

pytestmark = [
    pytest.mark.terminal,
    pytest.mark.skipif(sys.platform != "linux", reason="the parent's death is a signal on Linux"),
]


@pytest.mark.slow
def test_it_ends_with_its_last_word_in_the_recording(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    table = tiny.weights(tiny.SPECS["gemma3"])
    model = folders.write(tmp_path / "model", {**folders.OLD_GEMMA, "eos_token_id": None}, table)
    path = tmp_path / "prof.jsonl"
    with Terminal("live", "--model", str(model), "-o", str(path), size=(100, 24)) as terminal:
        terminal.wait(lambda text: "attention" in text, 120)
        terminal.child.kill(signal.SIGKILL)
        (run,) = load(path, cache=False)
        until(lambda: gone(int(run.meta["pid"])))
    (run,) = load(path, cache=False)
    assert [n.message for n in run.log.notices] == []  # not cut short, nothing missing
    assert (run.events["kind"] == "step").sum() > 0


def test_it_does_not_begin_when_the_explorer_is_gone_already(tmp_path: Path) -> None:
    """No signal tells of a death that came first: the other end of stdin does."""
    path = tmp_path / "prof.jsonl"
    command = [sys.executable, "-m", "engines", "--die-with-parent", "--interactive", "--out", str(path)]
    reader, writer = os.pipe()
    os.close(writer)
    result = subprocess.run(command, stdin=reader, timeout=120, check=False)
    os.close(reader)
    assert result.returncode == 128 + signal.SIGTERM and not path.exists()
