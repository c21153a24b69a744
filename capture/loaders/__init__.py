"""Every format that is read, one loader each: `sniff(head)` says whether it is its own, `load` reads it.

How to add a format:

1. Write a module here (`collapsed.py`), or a folder where it needs several. Open its docstring with what is
   read, what is not, and where the format is described. It offers what `Loader` below lists.
2. `sniff` looks at the first bytes only (`head.text`, `head.lines`, `head.start`; gzip is undone). It must be
   true for its own inputs and false for those of every other loader: the order of `LOADERS` decides nothing,
   and the name of the file does not count.
3. `load` reads `source.text()`, `source.lines()` or `source.chunks()` and ends with
   `build(name, meta, events, source.log)`. `events` is a frame with some of the columns of
   `capture.native.schema`: `kind` and `name` at least; times are whole nanoseconds. What the source does not
   say is left out, never guessed in silence: a guess stands as a sentence in `meta["guess"]`.
4. Keep the account in `source.log`. `read` counts every record that was seen; `drop(id, message, count=…)`
   counts those that could not be kept; `kept` follows as read - dropped. `repair` counts records that were
   kept after a mend, `note` says what a reader of the numbers should know. One id a kind of thing, so that
   a thousand bad lines are one notice with a count.
5. Raise `UnreadableError` (what, where, why, what to do) where nothing can be read; raise nothing else. Text
   from the file needs no cleaning, `build` does that.
6. Where a recording is several files, write a module as `Bundler` below lists it instead: `find` says which
   files belong together. Its name goes to `BUNDLERS`.
7. Add a line to `LOADERS`: the module's name, and the words without which it need not be asked, or none. Drop
   small files into `tests/fixtures/<name>/`: all checks run on them. Figures of its own are proved in
   `tests/capture/loaders/test_<name>.py`.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, cast

from capture.run import Run
from capture.source import Head, Source

# Each loader with what says that it must be asked: words of which every one of its inputs has at least one in
# its head, in upper or lower case (`^` is the very beginning), what none of them begins with (`!`), and
# suffixes (`*.abc`) of files that have no lasting mark. One without any takes what no other does: it is asked
# where none claims an input. The order decides nothing: exactly one claims it.
LOADERS: Final[Mapping[str, tuple[str, ...]]] = {
    "chrome.jsonl": ('"ph"',),
    "chrome.trace": ('"traceevents"', '"ph"'),
    "cs336": ("# nsight systems profiling analysis",),
    "doppler.log": ("[browser:", "gpu profile report"),
    "doppler.json_report": ('"modelid"',),
    "latencyprism.comparison": ("performance comparison", "suspicion score"),
    "latencyprism.processed": ("beta_pct", "counter_name"),
    "metallic.recording": ('"event"',),
    "metallic.report": ("=== analyzing",),
    "mlc.profile": (
        "## profiling analysis:",
        "kernel execution statistics",
        "peak",
        "entrypoint",
        "entry_point",
    ),
    "native": ('"kind"',),
    "ncu": ("kernel name",),
    "nsys.report": ("^nsys", "quaddanalysis", "*.nsys-rep", "*.qdrep"),
    "nsys.sqlite": ("^sqlite format 3",),
    "nsys.stats": ("!{", "total", "corrid", "rangeid", "** ", "executing '", "processing [", "statistics"),
    "parquet": ("^par1",),
    "perfetto.trace": ("^\n",),
    "plain.table": (),
    "proton": ("time (ns)", "device_type", "device_id"),
    "rocprof.csv_tables": ("start_timestamp", "totaldurationns"),
    "rocprof.rocpd": ("rocpd_",),
    "rocprof.sdk_json": ("rocprofiler-sdk-tool",),
    "vllm_layerwise": ('"summary_stats"',),
    "xplane.profile": ("^\n",),
}


# What is read from several files as one recording, with the suffixes of such files.
BUNDLERS: Final[Mapping[str, tuple[str, ...]]] = {
    "native_parts": (".jsonl",),
    "nsys.parquetdir": (".parquet",),
    "rocprof.job": (".csv", ".csv.gz"),
}


class Format(Protocol):
    """What a module says of the format that it reads."""

    FORMAT: str  # short name, shown to people
    PRODUCER: str  # what writes such files
    HOWTO: str  # the command that makes one


class Bundler(Format, Protocol):
    """What a module offers that reads several files as one recording."""

    def find(self, files: Sequence[Path]) -> list[tuple[Path, ...]]:
        """Return those of the files that belong together, group by group."""
        ...

    def load(self, files: Sequence[Path]) -> list[Run]:
        """Return the runs of one group; raise UnreadableError where there are none."""
        ...


class Loader(Format, Protocol):
    """What a loader module offers."""

    def sniff(self, head: Head) -> bool:
        """Return whether an input is of this format, judged by its first bytes."""
        ...

    def load(self, source: Source) -> list[Run]:
        """Return the runs of an input; raise UnreadableError where there are none."""
        ...


def loaders() -> list[Loader]:
    """Return all loader modules, imported."""
    return [_loader(name) for name in LOADERS]


def bundlers(files: Sequence[Path]) -> list[Bundler]:
    """Return the modules that may read some of the files as one recording, imported."""
    names = [path.name for path in files]
    told = [
        bundler for bundler, suffixes in BUNDLERS.items() if any(name.endswith(suffixes) for name in names)
    ]
    return [_bundler(name) for name in told]


def formats() -> list[Format]:
    """Return every format that is read, by its name."""
    known: dict[str, Format] = {f.FORMAT: f for f in (*map(_bundler, BUNDLERS), *loaders())}
    return sorted(known.values(), key=lambda format: format.FORMAT.lower())


def recognise(head: Head, suffix: str = "") -> list[Loader]:
    """Return the loaders that claim an input: one, or none for what is not read.

    Content decides; the name does only for a format that has no lasting mark, and only where no loader knows
    the content, which must be no text. Only loaders whose words stand in the head are imported.
    """
    marked, plain = ([name for name in LOADERS if bool(LOADERS[name]) is mark] for mark in (True, False))
    claims = _claiming(marked, head) or _claiming(plain, head)
    if claims or b"\0" not in head.raw:
        return claims
    return [_loader(name) for name, marks in LOADERS.items() if f"*{suffix}" in marks]


def _claiming(names: Sequence[str], head: Head) -> list[Loader]:
    return [loader for name in names if may_claim(name, head) and (loader := _loader(name)).sniff(head)]


def claimed_by_others(head: Head, own: str) -> bool:
    """Return whether a loader of another name than `own` claims an input."""
    return any(name != own and may_claim(name, head) and _loader(name).sniff(head) for name in LOADERS)


def may_claim(name: str, head: Head) -> bool:
    """Return whether a loader has to be asked, by the words that its inputs have."""
    marks = LOADERS[name]
    if any(mark[0] == "!" and head.start.startswith(mark[1:]) for mark in marks):
        return False
    text = head.lower
    return not marks or any(text.startswith(m[1:]) if m[0] == "^" else m in text for m in marks)


def _loader(name: str) -> Loader:
    return cast(Loader, import_module(f"capture.loaders.{name}"))


def _bundler(name: str) -> Bundler:
    return cast(Bundler, import_module(f"capture.loaders.{name}"))
