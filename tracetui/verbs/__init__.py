"""The commands of `tracetui`, one module each: `options(parser)` adds its options, `run(args)` runs it.

- open: open saved profiles on the screen
- live: watch an engine decode, kernel by kernel
- record: record an engine or a program without a screen
- load: ask a server for completions, and log when each token came
- recordings: list recordings, or remove the oldest
- log: keep what comparisons need of each run
- trend: how rows changed from run to run of a log
- bisect: find the commit or version since which a row or step is slower
- replay: play a recording as if it were live
- diff: compare two runs, with evidence; a gate for CI
- compare: compare many runs in one matrix
- baseline: save a run under a name: baseline:NAME
- report: print a view: table, json, csv, md or html
- export: write a run as .jsonl .parquet .csv .json (Chrome trace), a view as .html .md .svg .png
- digest: summarise a run, or a change, within a token budget
- query: run SQL over the events and answers of a run
- schema: print the JSON schema of --format json
- formats: list the formats that can be opened, and how to produce them
- config: print the settings of the screen, and where each comes from
- doctor: check what this machine, or a file, can do
- mcp: serve the profiles of a folder as tools for an agent
- completion: print a completion script for bash, zsh or fish
- version: print the versions of tracetui and its packages
- help: print a guide: tracetui help comparing

Shared by commands:
- _options: options that several commands have; read files, build a look, print a status
- _engine_options: options and start of engines, servers, folders and processes to watch
- _recording: record a program, a running process, or several repeats
- _comparison_sides: the two sides of a comparison, from files or recorded in turn
- _version_runs: measure the versions of a bisect, and keep what was measured
- _many_files: one question about many files, with progress
"""

from argparse import ArgumentParser, Namespace
from importlib import import_module
from typing import Final, Protocol, cast

# A command is one module here and one line in this table.
VERBS: Final = {
    "open": "open saved profiles on the screen",
    "live": "watch an engine decode, kernel by kernel",
    "record": "record an engine or a program without a screen",
    "load": "ask a server for completions, and log when each token came",
    "recordings": "list recordings, or remove the oldest",
    "log": "keep what comparisons need of each run",
    "trend": "how rows changed from run to run of a log",
    "bisect": "find the commit or version since which a row or step is slower",
    "replay": "play a recording as if it were live",
    "diff": "compare two runs, with evidence; a gate for CI",
    "compare": "compare many runs in one matrix",
    "baseline": "save a run under a name: baseline:NAME",
    "report": "print a view: table, json, csv, md or html",
    "export": "write a run as .jsonl .parquet .csv .json (Chrome trace), a view as .html .md .svg .png",
    "digest": "summarise a run, or a change, within a token budget",
    "query": "run SQL over the events and answers of a run",
    "schema": "print the JSON schema of --format json",
    "formats": "list the formats that can be opened, and how to produce them",
    "config": "print the settings of the screen, and where each comes from",
    "doctor": "check what this machine, or a file, can do",
    "mcp": "serve the profiles of a folder as tools for an agent",
    "completion": "print a completion script for bash, zsh or fish",
    "version": "print the versions of tracetui and its packages",
    "help": "print a guide: tracetui help comparing",
}
LIVE_WRITERS: Final = ("record", "replay", "load")  # run next to a busy program; live starts that first
# read runs and answer questions about them
READERS: Final = ("open", "diff", "compare", "report", "digest", "query", "mcp", "log", "trend", "bisect")
EXAMPLES: Final = {
    "open": ("tracetui open --sample decode", "tracetui --tour", "tracetui open prof.jsonl --view growth"),
    "live": (
        "tracetui live --model smollm2-135m",
        "tracetui live -- python generate.py",
        "tracetui live http://127.0.0.1:8000 --traces traces",
        "tracetui live --pid 4242",
        "tracetui live --watch traces",
    ),
    "record": (
        "tracetui record --model smollm2-135m --steps 8 -o prof.jsonl",
        "tracetui record -o prof.jsonl -- python generate.py",
        "tracetui record http://127.0.0.1:30000 --for 5m -o prof.jsonl",
        "tracetui record --pid 4242 --for 10s",
        "tracetui record --repeat 3 -o a.jsonl -- python generate.py",
    ),
    "load": (
        "tracetui load http://127.0.0.1:8000 --clients 8 --prompt-tokens 64:2048 -o clients.jsonl",
        "tracetui report requests served.jsonl --client-log clients.jsonl",
    ),
    "replay": ("tracetui replay sample:decode --speed 4",),
    "diff": (
        "tracetui diff sample:decode sample:slowed",
        "tracetui diff before.jsonl after.jsonl --aa a1.jsonl a2.jsonl --fail-over 3%",
    ),
    "compare": ("tracetui compare sample:decode sample:slowed --baseline 1",),
    "log": ("tracetui log add --to nightly sample:decode", "tracetui log"),
    "trend": ("tracetui log add --to nightly sample:decode && tracetui trend --log nightly",),
    "bisect": (
        "tracetui bisect v1.0 HEAD -- python bench.py",
        "tracetui bisect --over 4.41.2,4.42.4 -- uv run --with transformers=={} python generate.py",
    ),
    "recordings": ("tracetui recordings", "tracetui recordings --prune 5GB"),
    "baseline": ("tracetui baseline main sample:decode", "tracetui diff baseline:main prof.jsonl"),
    "report": (
        "tracetui report kernels sample:decode --sort p95 --limit 10",
        "tracetui report detail sample:decode --focus name=attention --format json",
    ),
    "export": (
        "tracetui export sample:decode -o decode.parquet",
        "tracetui export sample:decode --view kernels -o kernels.svg",
        "tracetui export sample:decode sample:slowed --view diff -o diff.html",
    ),
    "digest": (
        "tracetui digest sample:decode --tokens 500",
        "tracetui digest sample:decode sample:slowed",
    ),
    "query": (
        "tracetui query sample:decode",
        "tracetui query sample:decode 'SELECT op, sum(dur) AS total_ns FROM events GROUP BY op'",
    ),
    "schema": ("tracetui schema",),
    "formats": ("tracetui formats --format md",),
    "config": ("tracetui config",),
    "doctor": (
        "tracetui doctor",
        "tracetui doctor sample:decode",
        "tracetui doctor sample:decode --why norm",
    ),
    "mcp": ("tracetui mcp --root . < /dev/null",),
    "completion": ("tracetui completion bash",),
    "version": ("tracetui version",),
    "help": ("tracetui help comparing", "tracetui help roof"),
}


class Verb(Protocol):
    """Interface of a command module."""

    def options(self, parser: ArgumentParser) -> None: ...

    def run(self, args: Namespace) -> int: ...


def load_verb(name: str) -> Verb:
    """Import the module of a command."""
    return cast(Verb, import_module(f"tracetui.verbs.{name}"))


def format_examples(verb: str) -> str:
    """Return the examples of a command as the start of its epilog; empty if it has none."""
    lines = [f"  {example}\n" for example in EXAMPLES.get(verb, ())]
    return "".join(["examples:\n", *lines, "\n"]) if lines else ""
