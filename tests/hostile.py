"""Hostile inputs, made by a script: what is in each, and what reading it must give.

`full`: everything is read and nothing is complained of; `partial`: the rest is read and the loss is said;
`refuse`: one sentence. Never a traceback, a hang, or a raw control byte on the screen.
"""

import bz2
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

Expect = Literal["full", "partial", "refuse"]
Event = dict[str, Any]

EVENTS: Final = 200
SOME: Final = -1  # some of the events are left, how many depends on the unpacking


@dataclass(frozen=True)
class Hostile:
    """One input."""

    file: str
    content: str | bytes | Callable[[], bytes]  # a function where the content is large or takes long to make
    expect: Expect
    why: str
    left: int = EVENTS  # events that are kept, where it is not refused
    total_us: float | None = None  # the sum of the durations, where the test states it

    def write(self, folder: Path) -> Path:
        """Write the input into a folder and return its path."""
        content = self.content() if callable(self.content) else self.content
        path = folder / self.file
        path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        return path


def event(i: int, **changed: Any) -> Event:
    """Return the i-th event of the control file, with some of its members changed."""
    plain = {"ph": "X", "cat": "kernel", "name": f"kernel_{i % 7}", "pid": 0, "tid": 7}
    return {**plain, "ts": 1000.0 + i * 10, "dur": 5.0, **changed}


def trace(events: list[Any]) -> str:
    return json.dumps({"schemaVersion": 1, "traceEvents": events})


BASE: Final = [event(i) for i in range(EVENTS)]
GOOD: Final = trace(BASE)
ARRAY: Final = json.dumps(BASE)
LINES: Final = "".join(json.dumps(e) + "\n" for e in BASE)
PACKED: Final = gzip.compress(LINES.encode(), mtime=0)
DURATION: Final = '"dur": 5.0'


def first(**changed: Any) -> str:
    """Return the control file with its first event changed."""
    return trace([event(0, **changed), *BASE[1:]])


def without(key: str) -> str:
    return trace([{k: v for k, v in e.items() if k != key} for e in BASE])


def other_kinds() -> Iterator[Hostile]:
    """Yield inputs that are no profile, or not what their name says."""
    yield Hostile("ok.json", GOOD, "full", "control")
    yield Hostile("ok.jsonl", LINES, "full", "control")
    yield Hostile("empty.json", b"", "refuse", "no byte")
    yield Hostile("empty.gz", b"", "refuse", "no byte, called gz")
    yield Hostile("ws.json", b" \n\t\n", "refuse", "white space only")
    yield Hostile("only_nul.json", b"\0" * 65536, "refuse", "a sparse file")
    yield Hostile("random.bin", bytes(i * 7919 % 256 for i in range(65536)), "refuse", "noise")
    yield Hostile("elf.json", b"\x7fELF" + b"\0" * 200, "refuse", "a program")
    yield Hostile("html.json", "<!DOCTYPE html><html>404 Not Found</html>", "refuse", "a failed download")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    yield Hostile("lfs.json", pointer, "refuse", "a git-lfs pointer")
    yield Hostile("gz_named.json", lambda: gzip.compress(GOOD.encode()), "full", "gzip without .gz")
    yield Hostile("plain_named.json.gz", GOOD, "full", ".gz that is plain text")
    yield Hostile("ok.jsonl.bz2", bz2.compress(LINES.encode()), "refuse", "not read: name it")
    yield Hostile("ok.jsonl.xz", lzma.compress(LINES.encode()), "refuse", "not read: name it")
    yield Hostile("slip.zip", _zip_slip, "refuse", "names that leave the folder")


def _zip_slip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("../../../../escape/planted.json", GOOD)
        archive.writestr("/abs.json", GOOD)
    return out.getvalue()


def cuts_and_holes() -> Iterator[Hostile]:
    """Yield files that end too early, or have a hole."""
    yield Hostile("trunc_1.json", GOOD[: len(GOOD) // 100], "refuse", "cut short")
    for percent, left in ((25, 49), (50, 99), (75, 149), (99, 198)):
        yield Hostile(f"trunc_{percent}.json", GOOD[: len(GOOD) * percent // 100], "partial", "cut", left)
    for end, left in ((1, 200), (2, 200), (5, 199)):
        yield Hostile(f"trunc_minus{end}.json", GOOD[:-end], "partial", "the last brackets lack", left)
    yield Hostile("arr_no_close.json", ARRAY[:-1], "full", "the closing bracket is optional")
    yield Hostile("arr_trailing_comma.json", ARRAY[:-1] + ",", "full", "so ring buffers end")
    half = ARRAY[: len(ARRAY) // 2]
    yield Hostile("arr_nul_tail.json", half + "\0" * 4096, "partial", "a tail reserved in advance", 100)
    yield Hostile("torn.jsonl", LINES[:-9], "partial", "the last line is torn", 199)
    yield Hostile("torn_mid.jsonl", LINES[:3000] + LINES[3040:], "partial", "a hole in the middle", 198)
    hole = LINES[:3000] + "\0" * 512 + LINES[3512:]
    yield Hostile("nul_hole.jsonl", hole, "partial", "zeros after a power loss", 194)


def damaged_gzip() -> Iterator[Hostile]:
    """Yield gzip streams that are cut, wrong, several, or bombs."""
    yield Hostile("ok.json.gz", lambda: gzip.compress(GOOD.encode()), "full", "control")
    yield Hostile("trunc.jsonl.gz", PACKED[: len(PACKED) * 2 // 3], "partial", "cut", SOME)
    yield Hostile("trunc_trailer.jsonl.gz", PACKED[:-4], "partial", "no trailer")
    yield Hostile("badcrc.jsonl.gz", PACKED[:-8] + bytes(4) + PACKED[-4:], "partial", "a wrong checksum")
    middle = len(PACKED) // 2
    flipped = PACKED[:middle] + bytes([PACKED[middle] ^ 0xFF]) + PACKED[middle + 1 :]
    yield Hostile("flip.jsonl.gz", flipped, "partial", "a flipped byte in the middle", SOME)
    yield Hostile("multi.jsonl.gz", PACKED * 2, "full", "two members", 400)
    yield Hostile("tail_garbage.jsonl.gz", PACKED + b"garbage", "partial", "garbage after the end")
    yield Hostile("tail_zero.jsonl.gz", PACKED + bytes(512), "full", "padding after the end")
    yield Hostile(
        "empty_members.gz", lambda: gzip.compress(b"") * 50_000, "refuse", "50,000 empty members: linear time"
    )
    yield Hostile(
        "bomb_1000x.json.gz",
        lambda: gzip.compress(b'{"traceEvents":[' + b" " * 200_000_000),
        "refuse",
        "200 MB of blanks",
    )
    yield Hostile(
        "bomb_gz_in_gz.gz", lambda: gzip.compress(gzip.compress(bytes(100_000_000))), "refuse", "gzip in gzip"
    )


def encodings() -> Iterator[Hostile]:
    """Yield text in other encodings and with other line ends."""
    yield Hostile("bom.json", b"\xef\xbb\xbf" + GOOD.encode(), "full", "a byte-order mark")
    yield Hostile("utf16.json", GOOD.encode("utf-16"), "full", "as PowerShell redirects")
    latin = GOOD.replace("kernel_1", "caf\u00e9").encode("latin-1")
    yield Hostile("latin1.json", latin, "partial", "bytes that are not UTF-8")
    yield Hostile("crlf.jsonl", LINES.replace("\n", "\r\n"), "full", "Windows line ends")
    yield Hostile("mixed_eol.jsonl", LINES.replace("\n", "\r\n", 50), "full", "both line ends")


NO_NUMBERS: Final = (
    "NaN", "Infinity", "-Infinity", "inf", "nan", "N/A", "None", "0x10", "+1", "007", ".5", "1e999",
)  # fmt: skip


def depths_and_numbers() -> Iterator[Hostile]:
    """Yield JSON that is too deep, and numbers that JSON or a clock cannot hold."""
    yield Hostile("deep_array.json", "[" * 100_000 + "]" * 100_000, "refuse", "nested 100,000 times")
    yield Hostile("deep_array_20k.json", "[" * 20_000 + "]" * 20_000, "refuse", "nested 20,000 times")
    deep = DURATION + ', "args": ' + '{"a":' * 50_000 + "1" + "}" * 50_000
    yield Hostile("deep_args.json", GOOD.replace(DURATION, deep, 1), "partial", "one deep event", 199)
    yield Hostile("int5000.json", GOOD.replace("1000.0", "9" * 5000, 1), "partial", "5,000 digits", 199)
    wide = GOOD.replace('"tid": 7', '"tid": 18446744073709551616', 1)
    yield Hostile("int_2_64.json", wide, "full", "a number of 65 bits")
    for word in (
        "NaN",
        "Infinity",
        "-Infinity",
        "inf",
        "nan",
        "N/A",
        "None",
        "0x10",
        "+1",
        "007",
        ".5",
        "1e999",
    ):
        bad = GOOD.replace(DURATION, f'"dur": {word}', 1)
        yield Hostile(f"num_{word.replace('/', '')}.json", bad, "partial", f"dur is {word}", 199)
    for name, value in (("neg", -5.0), ("null", None), ("list", [1]), ("bool", True)):
        yield Hostile(f"dur_{name}.json", first(dur=value), "partial", f"dur is {value!r}", 199)
    for name, value in (("zero", 0), ("str", "5.0"), ("huge", 1e300), ("tiny", 5e-324)):
        yield Hostile(f"dur_{name}.json", first(dur=value), "full", f"dur is {value!r}")
    stamps: dict[str, float | str] = {
        "zero": 0,
        "neg": -1e15,
        "str": "1669329643132548.123",
        "epoch_ns": 1669329643132548123,
    }
    for name, stamp in stamps.items():
        yield Hostile(f"ts_{name}.json", first(ts=stamp), "full", f"ts is {stamp!r}")
    yield Hostile("ts_null.json", first(ts=None), "partial", "ts is null", 199)


def shapes() -> Iterator[Hostile]:
    """Yield lists of events of an odd shape."""
    yield Hostile("ts_backwards.json", trace(BASE[::-1]), "full", "the last event first")
    yield Hostile("ts_all_equal.json", trace([event(i, ts=5) for i in range(EVENTS)]), "full", "one moment")
    lying = [event(i, ts=i, dur=100) for i in range(EVENTS)]
    yield Hostile("overlap.json", trace(lying), "full", "events that overlap in part")
    twice = GOOD.replace('"ts": 1000.0', '"ts": 1000.0, "ts": 999999', 1)
    yield Hostile("dup_keys.json", twice, "full", "a key stands twice")
    yield Hostile("no_dur.json", without("dur"), "partial", "no durations")
    yield Hostile("no_name.json", without("name"), "full", "no names")
    yield Hostile("last_empty_event.json", trace([*BASE, {}]), "full", "JAX ends with an empty event")
    yield Hostile(
        "events_scalar.json", trace([1, "a", None, [], {}, *BASE]), "partial", "elements, no objects"
    )
    yield Hostile("events_not_list.json", '{"traceEvents": 5}', "refuse", "a number for the list")
    yield Hostile("no_kernels.json", trace([]), "full", "no events", 0)
    yield Hostile("scalar.json", "42", "refuse", "a number")
    yield Hostile("two_docs.json", GOOD + GOOD, "partial", "two documents in one file")
    loose = [event(0, ph="B"), event(1, ph="E"), event(2, ph="E"), event(3, ph="B")]
    yield Hostile("be_unbalanced.json", json.dumps(loose), "partial", "an end without a begin", 1)


def faults_of_producers() -> Iterator[Hostile]:
    """Yield faults that real profilers wrote."""
    for name, text in (("quote", '"{"device": "cpu"}(12): run"'), ("backslash", r'"torch\cuda\x(219)"')):
        bad = GOOD.replace('"kernel_3"', text, 1)
        yield Hostile(f"kineto_{name}.json", bad, "partial", "a name that is not escaped", 199)
    bad = GOOD.replace("kernel_3", "config.py(0): \x01\x02", 1)
    yield Hostile("kineto_ctrl.json", bad, "full", "raw control characters")
    bad = GOOD.replace('"tid": 7', 'tid": 7', 1)
    yield Hostile("kineto_missing_quote.json", bad, "partial", "a quote lacks", 199)
    named = GOOD.replace('{"schemaVersion"', '{"traceName": "fit-[Strategy]x.json", "schemaVersion"', 1)
    yield Hostile("trace_name_bracket.json", named, "full", "a bracket in a text of the header")


NAMES: Final[Mapping[str, str]] = {
    "osc52": "k\x1b]52;c;UFdORUQ=\x07", "title": "k\x1b]0;PWN\x07", "osc_unterminated": "k\x1b]52;c;UFdO",
    "clear": "k\x1b[2J\x1b[H", "c1": "k\x9b31m\x9d0;x\x9c", "dcs": "k\x1bP+q544e\x1b\\", "nul": "k\0k",
    "so": "k\x0ek", "cr": "safe\rEVIL", "bs": "abc\b\b\bXYZ", "tab": "a\tb", "nl": "a\nb",
    "surrogate": "k\ud800k", "rlo": "k\u202eexe.txt", "zwsp": "k\u200bk", "zalgo": "k" + "\u0301" * 500,
    "wide": "\u6f22" * 200, "emoji_zwj": "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 50,
    "tagchars": "k\U000e0041", "mk_close": "void k<[/]>", "mk_open": "[/",
    "mk_json": '{"booleans": [true, false]}', "mk_click": "[@click=app.quit]x[/]",
    "mk_link": "[link=file:///etc/passwd]x[/link]", "mk_unterminated": "should reply [b + 3",
    "percent": "%s%n{0}{x!r}", "csv_formula": '=HYPERLINK("http://x",1)', "csv_plus": "+1-2",
    "crlf_log": "ok\r\n2026-01-01 ERROR forged line", "html": "<script>alert(1)</script>",
    "path": "../../../../etc/passwd", "empty": "", "space": "   ", "long64k": "k" * 65537,
    "regex": "a" * 30 + "!",
}  # fmt: skip


def names() -> Iterator[Hostile]:
    """Yield names that attack a terminal, markup, a spreadsheet, a log or a pattern."""
    for name, text in NAMES.items():
        yield Hostile(f"name_{name}.json", first(name=text), "full", f"a hostile name: {name}")


def tables() -> Iterator[Hostile]:
    """Yield CSV and other text; a duration without a unit is taken as microseconds."""
    yield Hostile("nul.csv", b"name,dur\na\0b,1\nc,2\n", "partial", "a zero byte", total_us=3)
    long = "name,dur\n" + "a" * 200_000 + ",1\nb,2\n"
    yield Hostile("field_200k.csv", long, "full", "a cell beyond the csv module's limit", total_us=3)
    quoted = 'name,dur\n"a,1\n' + "b,2\n" * 50_000
    yield Hostile("unclosed_quote.csv", quoted, "partial", "a quote that never closes", total_us=100_000)
    yield Hostile("ragged.csv", "name,dur\na\nb,2,3,4\n\n,\n", "partial", "ragged rows", total_us=2)
    yield Hostile("bom.csv", b"\xef\xbb\xbfname,dur\nk,1\n", "full", "a mark before the header", total_us=1)
    yield Hostile("semicolon.csv", "name;dur\nk;1,5\n", "full", "a decimal comma", total_us=1.5)
    odd = "name,dur\nk,1_000\nk,\u0663\nk,inf\nk,nan\n"
    yield Hostile("underscore.csv", odd, "partial", "what float() takes and is no number", total_us=0)
    yield Hostile("cr.csv", "name,dur\rk,1\r", "full", "bare carriage returns", total_us=1)
    yield Hostile("longline.txt", lambda: b"x" * 20_000_000, "refuse", "one line of 20 MB")
    yield Hostile("redos.txt", "a" * 50_000 + "!\n", "refuse", "slow for careless patterns")


JSON: Final = (
    *other_kinds(), *cuts_and_holes(), *damaged_gzip(), *encodings(), *depths_and_numbers(), *shapes(),
    *faults_of_producers(), *names(),
)  # fmt: skip
TABLES: Final = tuple(tables())
