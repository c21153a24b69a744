"""Journeys of a user, walked by keyboard alone in a real terminal: `python -m tests.journeys` prints a table.

Each has a question, a file, the keys that lead to the answer, and what has to be in sight then. Seconds count
from the start of the program, without a cache; keys are typed as soon as the screen takes them. Needs tmux.
"""

import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.conftest import FIXTURES, SHARED
from tests.house import ROOT

SIZES: Final = ((80, 24), (120, 40), (200, 60))
MOST_KEYS: Final = 5
PAUSE: Final = 0.05  # seconds between keys
SEEN: Final = "seen:"  # in place of a key: what has to be in sight before the next
PATIENCE: Final = 40.0  # seconds
READY: Final = r"\bquit\b|Tab next view"  # the foot of a screen that has its answer


class Journey(NamedTuple):
    """A question, what is opened, the keys, and what answers."""

    question: str
    words: tuple[str, ...]
    keys: tuple[str, ...]
    sight: str

    @property
    def key_count(self) -> int:
        """How many keys are pressed; the text of a filter or of a search counts as none."""
        return sum(len(key) == 1 or key in NAMED_KEYS for key in self.keys)

    @property
    def files(self) -> list[str] | None:
        """Return the words with paths in place of documents; None where one is not on this machine."""
        found = [_place(word) for word in self.words]
        return None if None in found else [word for word in found if word is not None]


DECODE: Final = ("sample:decode",)
SLOWED: Final = ("diff", "sample:decode", "sample:slowed")
SGLANG: Final = ("samples/serving/sglang_qwen3_8b_decode/execution.json.gz",)
BERT: Final = ("samples/chrome_trace/bert-small-h100.json.gz",)
H100: Final = ("samples/nsys/h100_2gpu_1s.sqlite",)
QUESTIONS: Final = (
    Journey("which kernel takes the time?", ("seed 0",), ("2",), r"NT_matmul7_kernel_2"),
    Journey("q4f16 against q0f16: what changed?", ("seed 0",), ("d", "Enter"), r"1\.030 s.*975\.4 ms"),
    Journey("where does an iteration of metallic go?", ("seed 1",), ("2",), r"KvRearrangeOp"),
    Journey("matrix products or copies?", ("seed 1",), (), r"matmul.*49\.4%"),
    Journey("how many tokens a second?", ("seed 2",), (), r"6\.3\d* tok/s|tokens/s\s+6\.3"),
    Journey("what grows with the context?", ("seed 2",), ("3",), r"attn\.core.*linear|attention.*linear"),
    Journey("is a layer odd?", ("seed 2",), ("4",), r"\+2\d\d%!"),
    Journey("may these two be compared?", ("seed 3",), ("d",), r"14 cycles against 238"),
    Journey("which kernels of a forward pass?", ("seed 4",), ("2",), r"s1688gemm|cutlass"),
    Journey("what got slower, and is it proved?", SLOWED, (), r"ffn_down"),
    Journey("what is worth fixing first?", DECODE, ("F",), r"mlp\.gate_up"),
    Journey("only the rows of attention", DECODE, ("2", "/", "a", "t", "t"), r"1/\d+ .*/att/|/att/"),
    Journey("layers of a CUDA graph that names none", SGLANG, (), r"36 layers"),
    Journey("is the GPU busy?", H100, (), r"bound by copies"),
    Journey("which shapes does the time go into?", BERT, ("8",), r"m=\d+"),
)


MORE_QUESTIONS: Final = (
    Journey(
        "why is step 42 slow?", DECODE, ("5", "/", "step:42", "Enter", "Enter"), r"step 42 took .* the median"
    ),
    Journey(
        "the whole layer 17", DECODE, ("4", "/", "layer:17", "Enter", "Left", "Enter"), r"Layers › layer 17\b"
    ),
    Journey(
        "sort by p95 and back",
        DECODE,
        (
            "2",
            "C-p",
            "sort by p95",
            "Enter",
            "seen:p95▼",
            "Z",
        ),
        r"total▼",
    ),
    Journey(
        "back to the filtered view before",
        DECODE,
        ("2", "/", "norm", "Enter", "4", "seen:› Layers", "C-o"),
        r"1/\d.*/norm/",
    ),
    Journey(
        "the advice of row 5 in full",
        DECODE,
        ("9", "Down", "Down", "Down", "Down"),
        r"advice: [\s\S]*\n row 5/\d+",
    ),
    Journey(
        "what differs between two steps?",
        DECODE,
        ("5", "m", "Down", "m", "d"),
        r"step 1 \(b\) took .* step 0 \(a: ",
    ),
    Journey(
        "the longest launch against the shortest",
        DECODE,
        ("C-p", "launches", "Enter", "m", "G", "d"),
        r"launch [\d,]+ \(b\) took .* launch [\d,]+ \(a: ",
    ),
    Journey(
        "which sentence explains this mark?", DECODE, ("2", "i"), r"floor: too little work to fill a launch"
    ),
    Journey(
        "open the next thing that the summary names", SGLANG, ("Down", "Enter"), r"layer 7, op attn\.qkv: "
    ),
    Journey(
        "a page for a colleague",
        DECODE,
        ("x", "Tab", "Tab", "Tab", "Enter"),
        r"(wrote|written).*summary\.html",
    ),
)
NAMED_KEYS: Final = ("Enter", "Tab", "Down", "Left", "C-p", "C-o")


def _place(word: str) -> str | None:
    """Return a word, or the path that it stands for; None where that is not here."""
    if word.startswith("seed "):
        found = sorted((SHARED / "seeds").glob(f"{int(word[5:]):03d}_*"))
        return str(found[0]) if found else None
    if word.startswith("samples/"):
        return str(SHARED / word) if (SHARED / word).exists() else None
    return str(FIXTURES / word) if (FIXTURES / word).is_file() else word


def walk(journey: Journey, size: tuple[int, int]) -> float:
    """Return the seconds from the start to the answer; raise TimeoutError where it does not come."""
    files = journey.files
    if files is None:
        raise FileNotFoundError(journey.words)
    with tempfile.TemporaryDirectory() as home:
        names = " ".join(f"{name}={home}" for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"))
        command = f"cd {home}; PYTHONPATH={ROOT} {names} {sys.executable} -m tracetui {shlex.join(files)}"
        began = time.monotonic()
        socket = f"{home}/tmux"
        _tmux(socket, "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), command)
        try:
            _await(socket, READY, began)
            for key in journey.keys:
                if key.startswith(SEEN):
                    _await(socket, key.removeprefix(SEEN), began)
                    continue
                _tmux(socket, "send-keys", key)
                time.sleep(PAUSE)
            _await(socket, journey.sight, began)
            return time.monotonic() - began
        finally:
            _tmux(socket, "kill-server")


def _await(socket: str, sight: str, began: float) -> None:
    while not re.search(sight, screen := _tmux(socket, "capture-pane", "-p")):
        if time.monotonic() - began > PATIENCE:
            raise TimeoutError(f"{sight} is not in sight:\n{screen}")
        time.sleep(0.05)


def _tmux(socket: str, *words: str) -> str:
    return subprocess.run(["tmux", "-S", socket, *words], capture_output=True, text=True, check=False).stdout


def table(journeys: Sequence[Journey], sizes: Sequence[tuple[int, int]] = SIZES) -> Iterator[str]:
    """Yield the lines of a table: keys, and seconds at each size."""
    yield "| question | opened | keys | " + " | ".join(f"{w}×{h}" for w, h in sizes) + " |"
    yield "|:--|:--|:--|" + "--:|" * len(sizes)
    for journey in journeys:
        opened = " ".join(Path(word).name for word in journey.words)
        pressed = (key for key in journey.keys if not key.startswith(SEEN))
        keys = " ".join(f"`{key}`" for key in pressed) or "none"
        seconds = " | ".join(_told(journey, size) for size in sizes)
        yield f"| {journey.question} | {opened} | {keys} | {seconds} |"


def _told(journey: Journey, size: tuple[int, int]) -> str:
    try:
        return f"{walk(journey, size):.1f} s"
    except FileNotFoundError:
        return "not here"
    except TimeoutError as e:
        print(e, file=sys.stderr)
        return "no answer"


if __name__ == "__main__":
    for line in table((*QUESTIONS, *MORE_QUESTIONS)):
        print(line, flush=True)
