"""All sentences of the views, to be read in one go: `python -m tests.sentences [FILE…]`.

Notes of every view of the fixtures (or of the files named), the help of keys, and the texts of Fix; with what
`find_faults` has against each.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from capture.errors import CaptureError
from capture.load_runs import load
from capture.run import Run
from tracetui.look import Look
from tracetui.samples import SAMPLES, find_sample
from tracetui.ui.key_table import KEYS
from tracetui.views import ask, load_views
from tracetui.views.fix import ADVICE_BY_CAUSE

MOST_ACTION_LETTERS: Final = 30  # a whole cell at 80 columns
# Turns of phrase that are no plain English, with what to write instead.
PATTERNS: Final = {
    r"^of (a|an|the|two|several) [^,]*, (the|that|what|how)\b": "say it as a plain definition",
    r", which (is|are) kept\b": "(saved)",
    r"\b(notes|lines|rows|answers|columns|steps) tells?\b": "shows, says",
    r"\b(that|which) lies? on\b": "is on",
    r"\b(so|thus) (many|much|deep|far)\b(?! (that|as))": "a number, or how many",
    r"\bsays of\b": "says whether",
    r"\bthere is nothing further\b": "nothing to open here",
    r"\bturns? the order round\b": "reverses the order",
    r"\b(nothing|none) asked\b": "no work requested",
    r"\bas its maker states\b": "stated by",
    r"\b(1|one) (steps|launches|kernels|rows|files|runs)\b": "singular",
    r"\bcover the same time and are not added\b": "overlap and are left out",
    r"\bless work than fits\b|\btakes less than the\b": "too little work",
    r"\bwould tell\b": "to decide",
    r"\b(tokens/s|figures) (are|refer to) (of|the)\b": "use",
    r"\b\d{3},\d{3} GFLOP/s": "TFLOP/s",
    r"\s{2,}(?=\S)": "one space",
}
LEADING_SPACES: Final = re.compile(r"^\s*")


def find_faults(sentence: str) -> list[str]:
    """Return what to write instead, for each turn of phrase that is no plain English."""
    text = LEADING_SPACES.sub("", sentence)
    return [instead for pattern, instead in PATTERNS.items() if re.search(pattern, text, re.IGNORECASE)]


def iter_fixed_sentences() -> Iterator[tuple[str, str]]:
    """Yield the sentences that depend on no file, with their place."""
    yield from ((f"key {key.command}", key.help) for key in KEYS)
    for cause, advice in ADVICE_BY_CAUSE.items():
        yield from ((f"fix {cause}", text) for text in advice if text)


def iter_sentences(runs: Iterable[Run]) -> Iterator[tuple[str, str]]:
    """Yield the notes of every view of runs, with the view."""
    for run in runs:
        for view in load_views():
            if view.run_count == 1:
                yield from ((view.name, note) for note in ask(view, [run], Look()).notes)


def load_runs(paths: Iterable[Path]) -> Iterator[Run]:
    """Yield the first run of each file that has one."""
    for path in paths:
        try:
            yield load(path)[0]
        except CaptureError:
            continue


def main(words: list[str]) -> None:
    """Print every sentence once, with its place and its faults."""
    from tests.capture.test_fixtures import FILES

    paths = list(map(Path, words)) or [*FILES, *map(find_sample, SAMPLES)]
    sentences = dict.fromkeys([*iter_fixed_sentences(), *iter_sentences(load_runs(paths))])
    for place, sentence in sorted(sentences):
        faults = find_faults(sentence)
        print(f"{place:24} {sentence}{f'   <- {faults}' if faults else ''}")


if __name__ == "__main__":
    main(sys.argv[1:])
