"""Registry of loaders: one per format; `sniff` detects its inputs, `load` reads them.

How to add a format:

1. Write a module here (`collapsed.py`), or a folder if it needs several. Its docstring says what is read,
   what is not, and where the format is described. It provides what `Loader` below lists.
2. `sniff` sees only the first bytes (`head.text`, `head.lines`, `head.raw`; gzip is undone). It returns True
   for inputs of its format and False for all others, an empty head included. The order of `LOADERS` and the
   name of a file decide nothing.
3. `load` reads `source.read_text()`, `source.iter_lines()` or `source.iter_chunks()` and ends with
   `build_run(name, meta, events, source.log)`. `events` is a frame with some columns of
   `capture.native.schema`: at least `kind` and `name`; times are whole nanoseconds. Leave out what the source
   does not report; never guess silently: a guess is a sentence in `meta["guess"]`.
4. Count in `source.log`: `read` is every record seen; `drop(id, message, count=…)` counts those that are
   lost; `retained` is read - dropped. `repair` counts records retained after a repair, `note` reports what a
   reader of the numbers should know. Use one id per kind of problem: a thousand bad lines give one notice.
5. Raise `UnreadableError` (what, where, why, what to do) if nothing can be read, and nothing else. Text from
   the file needs no cleaning; `build_run` does that.
6. If a recording is several files, write a module like `Bundler` below: `find` groups the files. Add it to
   `BUNDLERS`.
7. Add the module's name to `LOADERS`, with the marks of its inputs. Put small files into
   `tests/fixtures/<name>/`: all general checks run on them. Prove the numbers in
   `tests/capture/loaders/test_<name>.py`.

A format in a package of your own needs no change here. Do 1 to 5 there, and register the module, or any
object with the attributes of `Loader`, as an entry point of the group `tracetui.loaders`. It is asked after
our loaders, but before the generic ones; `tracetui formats` and `tracetui doctor` list it with its package.
If it cannot be imported, lacks an attribute or its `sniff` raises, it is ignored; both commands, and the log
of an input that it was tried on, give the reason.

chrome: Chrome traces of PyTorch's profiler, JAX, vLLM and others
cs336: Markdown report of the CS336 course
doppler: log and JSON reports of Doppler's harness
exported_parquet: runs written by `tracetui export`
latencyprism: LatencyPrism's comparisons and processed CSV files
metallic: event log and analyzer report of metallic
mlc: kernel profiles of WebLLM and MLC-LLM
native: the project's own JSON lines
native_parts: bundler of the parts of one native recording
ncu: Nsight Compute, in CSV or as printed
nsys: exports, reports and printed statistics of Nsight Systems
openvino: counters of OpenVINO's benchmark_app in JSON
perfetto: Perfetto traces
plain: any table with a name and a duration
proton: trees of Triton Proton
requests: logs of requests to a model server, and their tokens
rocprof: CSV, JSON and databases of AMD's rocprof
vllm_layerwise: vLLM's layerwise profile
xplane: XLA's profiles (JAX, TensorFlow)

_scan: the C scanner, if built
_delimited: split delimited text in bulk, parse its numbers
_json_document: parse JSON documents and read typed members
_nsight_text: rows, cells, units and truncated names in text of NVIDIA's tools
_protobuf: decode protobuf messages without a schema
_sqlite: open an untrusted SQLite file safely
_typed_cells: parse printed numbers exactly, and build typed frames of rows
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

from polars.exceptions import PanicException

from capture.clean_text import clean
from capture.errors import UnreadableError
from capture.import_log import Log
from capture.plugins import Plugin, describe_error, load_entry_points
from capture.run import Run
from capture.source import Head, Source

_INDENTED: Final = '!{\n  "'  # an indented document, which is not JSON lines

# Module → marks of its inputs. A loader is asked only if the head contains one of its words (any case; `^`:
# at its start) and does not begin with a `!` mark. `*.abc` is a suffix, for binary files without a stable
# mark. A loader without marks is generic: it is asked last. The order of the table decides nothing.
LOADERS: Final[Mapping[str, tuple[str, ...]]] = {
    "chrome.jsonl": (_INDENTED, '"ph"'),
    "chrome.trace": ('"traceevents"', '"ph"'),
    "cs336": ("# nsight systems profiling analysis",),
    "doppler.harness_log": ("[browser:", "gpu profile report"),
    "doppler.json_report": ('"modelid"',),
    "latencyprism.comparison_report": ("performance comparison", "suspicion score"),
    "latencyprism.processed_csv": ("beta_pct", "counter_name"),
    "metallic.event_log": ('"event"',),
    "metallic.analyzer_report": ("=== analyzing",),
    "mlc.kernel_profile": (
        "## profiling analysis:",
        "kernel execution statistics",
        "peak",
        "entrypoint",
        "entry_point",
    ),
    "native": (_INDENTED, '"kind"'),
    "ncu": ("kernel name", ", context "),
    "nsys.rep_file": ("^nsys", "quaddanalysis", "*.nsys-rep", "*.qdrep"),
    "nsys.sqlite_export": ("^sqlite format 3",),
    "nsys.stats": ("!{", "total", "corrid", "rangeid", "** ", "executing '", "processing [", "statistics"),
    "exported_parquet": ("^par1",),
    "openvino": ('"avg_performance"', '"detailed_performance"'),
    "perfetto.pftrace": ("^\n",),
    "plain.generic_table": (),
    "proton": ("time (ns)", "device_type", "device_id"),
    "requests.client_log": ('"sent_s"',),
    "requests.otel_spans": ('"resourcespans"',),
    "requests.sglang_log": ('"request.received"', '"request.finished"'),
    "rocprof.csv_tables": ("start_timestamp", "totaldurationns", "beginns"),
    "rocprof.rocpd": ("rocpd_",),
    "rocprof.sdk_json": ("rocprofiler-sdk-tool",),
    "vllm_layerwise": ('"summary_stats"',),
    "xplane": ("^\n",),
}

# Module that reads several files as one recording → suffixes of such files.
BUNDLERS: Final[Mapping[str, tuple[str, ...]]] = {
    "native_parts": (".jsonl",),
    "nsys.parquet_export": (".parquet",),
    "rocprof.rocprof_job": (".csv", ".csv.gz"),
}

PLUGIN_GROUP: Final = "tracetui.loaders"
GENERIC_FORMAT: Final = "plain table"
_LOADER_ATTRIBUTES: Final = ("FORMAT", "PRODUCER", "HOWTO", "sniff", "load")


class Format(Protocol):
    """Description of a format."""

    FORMAT: str  # short name, as displayed
    PRODUCER: str  # the program that writes it
    HOWTO: str  # the command that produces such a file


class Bundler(Format, Protocol):
    """Reader of several files as one recording."""

    def find(self, files: Sequence[Path]) -> list[tuple[Path, ...]]:
        """Group the files that belong together."""
        ...

    def load(self, files: Sequence[Path]) -> list[Run]:
        """Read the runs of one group; raise UnreadableError if there are none."""
        ...


class Loader(Format, Protocol):
    """Reader of one format."""

    def sniff(self, head: Head) -> bool:
        """Return True if an input has this format, judging by its first bytes."""
        ...

    def load(self, source: Source) -> list[Run]:
        """Read the runs of an input; raise UnreadableError if there are none."""
        ...


class ForeignLoader:
    """A loader of another package; left out from the moment it has a `problem`."""

    def __init__(self, plugin: Plugin) -> None:
        self.name, self.package, self._loader = plugin.name, plugin.package, plugin.value
        missing = [name for name in _LOADER_ATTRIBUTES if not hasattr(plugin.value, name)]
        self.problem = plugin.problem or (f"it has no {', '.join(missing)}" if missing else "")
        texts = (str(getattr(plugin.value, name, "")) for name in _LOADER_ATTRIBUTES[:3])
        self.FORMAT, self.PRODUCER, self.HOWTO = (clean(text, 300) for text in texts)

    def describe(self) -> str:
        """Describe it, and why it is left out: `loader 'x' of acme 1.0 (acme.x) is left out: …`."""
        name = f"loader {self.name!r} of {self.package}"
        return f"{name} is left out: {self.problem}" if self.problem else name

    def sniff(self, head: Head) -> bool:
        """Ask the loader; an error leaves it out for the rest of the process."""
        if self.problem:
            return False
        try:
            return bool(self._loader.sniff(head))
        except (Exception, SystemExit, PanicException) as e:
            self.problem = f"its sniff raised {describe_error(e)}"
            return False

    def load(self, source: Source) -> list[Run]:
        """Read an input; raise UnreadableError unless the loader returns a list of runs."""
        try:
            runs = self._loader.load(source)
        except SystemExit as e:
            raise RuntimeError("the loader tried to exit") from e
        if isinstance(runs, list) and all(isinstance(run, Run) for run in runs):
            return runs
        what, todo = f"cannot be read as {self.FORMAT}", "report it to the authors of the loader"
        why = f"the loader of {self.package} returned no list of runs"
        raise UnreadableError(what, where=source.label, why=why, todo=todo)


def find_bundlers(files: Sequence[Path]) -> list[Bundler]:
    """Import the bundlers that may read some of the files, judging by suffix."""
    names = [path.name for path in files]
    candidates = [b for b, suffixes in BUNDLERS.items() if any(name.endswith(suffixes) for name in names)]
    return [_import_reader(name) for name in candidates]


def list_formats() -> list[Format]:
    """List every format that can be read, by name; those of other packages included."""
    ours: dict[str, Format] = {f.FORMAT: f for f in map(_import_reader, (*BUNDLERS, *LOADERS))}
    foreign = [loader for loader in check_foreign_loaders() if not loader.problem]
    return sorted([*ours.values(), *foreign], key=lambda format: format.FORMAT.lower())


def check_foreign_loaders() -> tuple[ForeignLoader, ...]:
    """Load all loaders of other packages, broken ones too; try the `sniff` of each on an empty head."""
    loaders = _load_foreign_loaders()
    for loader in loaders:
        loader.sniff(Head(b"", True))
    return loaders


def find_loaders(head: Head, suffix: str = "", log: Log | None = None) -> list[Loader]:
    """Find the loaders that accept an input: one of ours, else those of other packages; empty if unknown.

    Only the content counts, except for unknown binary content of formats without a stable mark, where the
    suffix decides. Only loaders whose marks are in the head are imported. If loaders of other packages are
    asked, `log` gets a note per broken one.
    """
    marked = [name for name, marks in LOADERS.items() if marks]
    generic = [name for name, marks in LOADERS.items() if not marks]
    claims = _select_accepting(marked, head) or _select_foreign(head, log) or _select_accepting(generic, head)
    if claims or b"\0" not in head.raw:
        return claims
    return [_import_reader(name) for name, marks in LOADERS.items() if f"*{suffix}" in marks]


def is_outdated(runs: Sequence[Run], head: Head) -> bool:
    """Return True for cached runs of a generic table which a loader of another package accepts by now."""
    return runs[0].log.format == GENERIC_FORMAT and bool(_select_foreign(head))


def describe_broken_loaders() -> str:
    """Describe the loaders of other packages that were asked in this process and are left out."""
    loaders = _load_foreign_loaders() if _load_foreign_loaders.cache_info().currsize else ()
    return "; ".join(loader.describe() for loader in loaders if loader.problem)


def is_accepted_by_others(head: Head, own_name: str) -> bool:
    """Return True if one of our loaders other than `own_name` accepts an input."""
    others = [name for name in LOADERS if name != own_name and is_candidate(name, head)]
    return any(_import_reader(name).sniff(head) for name in others)


def is_candidate(name: str, head: Head) -> bool:
    """Return True if the head has the marks of a loader, so that it must be asked."""
    marks = LOADERS[name]
    if any(mark[0] == "!" and head.stripped_text.startswith(mark[1:]) for mark in marks):
        return False
    text = head.lower_text
    return not marks or any(text.startswith(m[1:]) if m[0] == "^" else m in text for m in marks)


@cache
def _load_foreign_loaders() -> tuple[ForeignLoader, ...]:
    return tuple(map(ForeignLoader, load_entry_points(PLUGIN_GROUP)))


def _select_accepting(names: Sequence[str], head: Head) -> list[Loader]:
    candidates = map(_import_reader, (name for name in names if is_candidate(name, head)))
    return [loader for loader in candidates if loader.sniff(head)]


def _select_foreign(head: Head, log: Log | None = None) -> list[Loader]:
    loaders = _load_foreign_loaders()
    accepting: list[Loader] = [loader for loader in loaders if loader.sniff(head)]
    for loader in loaders:
        if loader.problem and log is not None:
            log.note(f"broken_loader_{loader.name}", loader.describe())
    return accepting


def _import_reader(name: str) -> Any:
    return import_module(f"capture.loaders.{name}")
