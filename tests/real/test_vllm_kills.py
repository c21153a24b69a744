"""Each process of a watched vLLM is killed while a window is on: nothing stays behind or profiles on."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from capture.load_runs import load
from tests.real.servers import Server, serve_vllm
from tests.tracetui.ui.pty import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
LIMIT_S = 5.0  # within which the profile must be stopped, and all processes be gone that have no more to do
GONE_S = 30.0  # within which our processes end: two requests to stop, if the server does not answer
WINDOW = ("--steps", "5000", "--every", "60s")  # longer than it takes to kill somebody
ENGINE = "VLLM::EngineCore"


def wait_until(holds: Callable[[], object], seconds: float) -> float:
    """Return after how many seconds it held."""
    start = time.monotonic()
    while not holds():
        assert time.monotonic() < start + seconds, "it did not come to pass"
        time.sleep(0.02)
    return time.monotonic() - start


def count_lines(server: Server, text: str) -> int:
    return server.log.read_text(errors="replace").count(text)


def find_processes(*words: str) -> list[psutil.Process]:
    """Return the living processes whose command holds all words."""
    matches = []
    for process in psutil.process_iter():
        try:
            command, is_alive = " ".join(process.cmdline()), process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if is_alive and all(word in command for word in words):
            matches.append(process)
    return matches


@contextmanager
def load_server(server: Server, folder: Path) -> Iterator[None]:
    """Ask the server until the block ends."""
    command = [sys.executable, "-m", "tests.real.load", server.url, "2", "16", "256", str(folder / "t")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as clients:
        try:
            yield
        finally:
            clients.kill()


def watch_server(server: Server, out: Path, *options: str) -> Terminal:
    """Show the server on a terminal until a window is on."""
    begun = count_lines(server, "Profiler started.")
    terminal = Terminal("live", server.url, "--traces", str(server.traces), *options, "-o", str(out))
    end = time.monotonic() + 120
    while count_lines(server, "Profiler started.") == begun:
        terminal.read()
        assert time.monotonic() < end, terminal.text
    return terminal


def leave_screen(terminal: Terminal) -> None:
    """Leave with `q`: the terminal must be as it was."""
    terminal.keys("q")
    terminal.end(20.0)
    assert not terminal.modes_left_on()


@pytest.fixture(scope="module")
def find_server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Server]]:
    """Return what finds a server that runs; a new one if the last was killed."""
    started: list[Server] = []
    with ExitStack() as stack:

        def find() -> Server:
            if not started or not find_engines(started[-1]):
                folder = tmp_path_factory.mktemp("served")
                started.append(stack.enter_context(serve_vllm(model, folder, "--enforce-eager")))
            return started[-1]

        yield find


def find_engines(server: Server) -> list[psutil.Process]:
    try:
        children = psutil.Process(server.pid).children(recursive=True)
        return [child for child in children if is_alive(child) and ENGINE in child.name()]
    except psutil.NoSuchProcess:
        return []


@pytest.mark.parametrize("victim", ["watcher", "screen", "engine", "server"])
def test_nothing_is_left_by_a_kill(victim: str, find_server: Callable[[], Server], tmp_path: Path) -> None:
    """Of a killed server nobody can ask its engine, which lives on: a window of five steps ends by itself."""
    server = find_server()
    out, stopped = tmp_path / "served.jsonl", count_lines(server, "Stopping profiler...")
    options = WINDOW[-2:] if victim == "server" else WINDOW
    with load_server(server, tmp_path), watch_server(server, out, *options) as terminal:
        (watcher,) = find_processes("capture.watch", str(out), server.url)
        engines = find_engines(server)
        victims = {"watcher": watcher, "screen": psutil.Process(terminal.child.pid), "engine": engines[0],
                   "server": psutil.Process(server.pid)}  # fmt: skip
        victims[victim].send_signal(signal.SIGKILL)
        ends: dict[str, Callable[[], object]] = {
            "engine": lambda: not any(map(is_alive, engines)),
            "server": lambda: count_lines(server, "Max profiling iterations reached"),
        }
        took = wait_until(
            ends.get(victim, lambda: count_lines(server, "Stopping profiler...") > stopped), LIMIT_S
        )
        print(f"{victim}: no profile after {took:.2f} s")
        if victim == "screen":
            assert terminal.end() == 128 + signal.SIGKILL
        else:
            leave_screen(terminal)
    wait_until(lambda: not find_processes("capture.watch", str(out)), GONE_S)
    wait_until(lambda: not find_processes("server_profile", server.url), GONE_S)
    (run,) = load(out, cache=False)
    assert run.events.height and run.meta["producer"] == "vLLM"


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
