"""Explain an input that no loader accepts, and what to do with it."""

import re
from typing import Final

from capture.errors import UnreadableError
from capture.source import Head, Source

FORMATS_HINT: Final = "`tracetui formats` lists the formats and how to record each"

_NCU_REPORT: Final = (  # some are known by their suffix only
    "is an Nsight Compute report", "export it: ncu --import FILE.ncu-rep --csv --page details > FILE.csv",
)  # fmt: skip

_STACKS: Final = "sampled stacks are read as a Chrome trace: py-spy record -f chrometrace"
_NO_COUNTERS: Final = (
    "is a report of OpenVINO's benchmark_app without counters", "run it with -report_type detailed_counters",
)  # fmt: skip
_PYTHON: Final = "calls of Python are read as viztracer or py-spy record -f chrometrace write them"
_TRACE: Final = "save the whole profile: prof.export_chrome_trace(FILE)"

_LFS_POINTER: Final = b"version https://git-lfs"
_TEXT_SUFFIXES: Final = (".json", ".jsonl", ".csv", ".tsv", ".txt", ".log")

# first bytes, description, what to do
_MAGIC: Final = (
    (b"PK\x03\x04", "is a zip archive (a PyTorch checkpoint is one too)", "unpack it and open the profile inside"),
    (b"BZh", "is compressed with bzip2", "unpack it first: bunzip2 FILE"),
    (b"\xfd7zXZ\x00", "is compressed with xz", "unpack it first: unxz FILE"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd", "unpack it first: zstd -d FILE"),
    (b"7z\xbc\xaf\x27\x1c", "is a 7-zip archive", "unpack it and open the profile inside"),
    (b"\x1f\x8b", "is gzip inside gzip", "unpack it once: gunzip FILE"),
    (b"\x7fELF", "is a program or library (ELF)", ""),
    (b"\xcf\xfa\xed\xfe", "is a program or library (Mach-O)", ""),
    (b"MZ", "is a Windows program", ""),
    (b"PAR1", "is a Parquet file that tracetui did not write", "export the events as CSV or JSON lines with a name and a duration column"),
    (b"ARROW1", "is an Arrow file", "export the events as CSV or JSON lines with a name and a duration column"),
    (b"\x89PNG", "is a picture (PNG)", "open the profile that it was drawn from"),
    (b"\xff\xd8\xff", "is a picture (JPEG)", "open the profile that it was drawn from"),
    (b"%PDF", "is a PDF document", "open the profile that it was made from"),
    (b"\x89HDF", "is an HDF5 file", ""),
    (b"\x93NUMPY", "is a NumPy array", ""),
    (b"GGUF", "is a GGUF model, not a profile", ""),
    (b"\x80\x02", "is a Python pickle, never opened because it can run code", "save the profile as JSON"),
    (b"\x80\x04", "is a Python pickle, never opened because it can run code", "save the profile as JSON"),
    (b"\xfb)", "is a profile of cProfile in a format of Python that is never opened", _PYTHON),
    (b"PERFILE2", "is a recording of perf", _STACKS),
    (b"NVR\x00", *_NCU_REPORT),
)  # fmt: skip

_TEXTS: Final = (
    (re.compile(r"version https://git-lfs"), "is a git-lfs pointer, not the file itself", "fetch it: git lfs pull"),
    (re.compile(r"(?i)<svg[^>]*>[^<]*<!--\s*Flame graph"), "is a picture of a flame graph", _STACKS),
    (re.compile(r"(?i)<!doctype html|<html"), "is an HTML page (a failed download, perhaps)", "fetch the raw file"),
    (re.compile(r"(?i)<\?xml"), "is an XML document", FORMATS_HINT),
    (re.compile(r'\{\s*"__metadata__"'), "is a safetensors header", FORMATS_HINT),
    (re.compile(r'(?s)\{.{0,400}"schema"\s*:.*"nodes"\s*:'), "is a PyTorch execution trace, which holds no times", "profile with torch.profiler and export_chrome_trace"),
    (re.compile(r'"\$schema"\s*:\s*"https://www\.speedscope|"exporter"\s*:\s*"speedscope'), "is a speedscope document", _STACKS),
    (re.compile(r"\[\s*\[\s*-?\d+\s*,\s*[0-4]\s*,\s*-?\d+\s*,\s*\d\s*\]"), "is a memory timeline of PyTorch, which holds no kernels", _TRACE),
    (re.compile(r'\[\s*\[\s*\d+(\.\d+)?\s*,[\d.,\s]+(\]\s*,\s*\[\s*\[|$)'), "is a memory timeline of PyTorch, which holds no kernels", _TRACE),
    (re.compile(r"(?m)^\s*Name\s+(Self CPU|Self CPU %)\s+Self CPU"), "is a printed table of key_averages: sums without a timeline", _TRACE),
    (re.compile(r"function calls( \(\d+ primitive calls\))? in [\d.]+ seconds|ncalls +tottime"), "is a printed table of cProfile", _PYTHON),
    (re.compile(r"(?m)^==(PROF|ERROR)== "), "is output of Nsight Compute without a kernel", "record it again, and read what it says after ==ERROR=="),
    (re.compile(r"(?m)^==\d+== (NVPROF|Profiling (application|result))"), "is output of nvprof", "record with nsys profile --stats=true, which took its place"),
    (re.compile(r"(?m)^# (========|Samples: .* of event)"), "is a report of perf", _STACKS),
    (re.compile(r"(?m)^\S.*?\s+\d+(/\d+)?\s+(\[\d+\]\s+)?\d+\.\d+:\s+(\d+\s+)?[\w:/.-]+:\s*$"), "is the output of perf script", _STACKS),
    (re.compile(r"(?m)^(?:[^\n;{}]+(?:;[^\n;{}]+)+ \d+\n){2}"), "is a list of folded stacks", _STACKS),
    (re.compile(r'\{\s*"(cmd_options|configuration_setup|execution_results)"\s*:\s*\{'), *_NO_COUNTERS),
    (re.compile(r"(Command line parameters|Configuration setup|Execution results)\n[^\n;]+;"), *_NO_COUNTERS),
    (re.compile(r'\[\s*\{\s*"(Cpu|Gpu|Memory)'), "is a list of screen rows, not of events", FORMATS_HINT),
)  # fmt: skip
# not the "[ INFO ]" of a log
_JSON_BEGIN: Final = re.compile(r'\{\s*(["}]|$)|\[\s*([\[{"\]]|-?\d+(\.\d+)?\s*[,\]]|$)')


def build_unknown_input_error(source: Source, why: str = "") -> UnreadableError:
    """Return the error for an input that no loader accepts."""
    what, todo = describe_input(source.head, source.path.suffix)
    return UnreadableError(what, where=source.label, why=why, todo=todo)


def is_tar(raw: bytes) -> bool:
    """Whether an input is a tar archive: its first file may look like a profile, and others follow."""
    return raw[257:262] == b"ustar"


def describe_input(head: Head, suffix: str = "") -> tuple[str, str]:
    """Describe an input and what to do with it, as two halves of a sentence."""
    raw = head.raw
    if not raw:
        return "is empty", "check that the capture has finished"
    if not raw.strip(b"\0 \t\r\n"):
        return "contains only blanks or zeros", "check that the capture has finished"
    if is_tar(raw):
        return "is a tar archive", "unpack it (tar xf FILE) and open the profiles inside"
    if suffix == ".ncu-rep" and not _is_text(raw):
        return _NCU_REPORT
    for magic, what, todo in _MAGIC:
        if raw.startswith(magic):
            return what, todo or FORMATS_HINT
    return _describe_text(head) if _is_text(raw) else _describe_binary(raw)


def has_lost_content(head: Head, suffix: str) -> bool:
    """Whether an input that no loader accepts has lost its content: empty, blank, noise, a git-lfs pointer."""
    raw = head.raw
    if not raw.strip(b"\0 \t\r\n") or raw.startswith(_LFS_POINTER):
        return True
    return suffix.removesuffix(".gz") in _TEXT_SUFFIXES and not _is_text(raw)


def _is_text(raw: bytes) -> bool:
    sample = raw[:4096]
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    control = sum(b < 9 or 13 < b < 32 for b in sample)
    return control * 20 < len(sample)


def _describe_binary(raw: bytes) -> tuple[str, str]:
    if len(raw) > 9 and raw[8:9] == b"{" and int.from_bytes(raw[:8], "little") < 1 << 27:
        return "is a safetensors file: weights, not a profile", FORMATS_HINT
    return "is a binary file of an unknown kind", FORMATS_HINT


def _describe_text(head: Head) -> tuple[str, str]:
    for pattern, description, todo in _TEXTS:
        if pattern.search(head.stripped_text[:2000]):
            return description, todo
    if _JSON_BEGIN.match(head.stripped_text):
        keys = re.findall(r'"([A-Za-z_][\w .-]{0,30})"\s*:', head.stripped_text[:2000])
        named = ", ".join(dict.fromkeys(keys[:6]))
        description = f"is JSON of no known profiler (first keys: {named})"
        return description if named else "is JSON without events", FORMATS_HINT
    return "is text of no known profiler", FORMATS_HINT
