"""Example commands that end each `--help`; a test runs every one."""

from typing import Final

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
    "replay": ("tracetui replay sample:decode --speed 4",),
    "diff": (
        "tracetui diff sample:decode sample:slowed",
        "tracetui diff before.jsonl after.jsonl --aa a1.jsonl a2.jsonl --fail-over 3%",
    ),
    "compare": ("tracetui compare sample:decode sample:slowed --baseline 1",),
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


def format_examples(verb: str) -> str:
    """Return the examples of a command as the start of its epilog; empty if it has none."""
    lines = [f"  {example}\n" for example in EXAMPLES.get(verb, ())]
    return "".join(["examples:\n", *lines, "\n"]) if lines else ""
