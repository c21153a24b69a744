"""Every input that is no profile is named for what it is, in one sentence."""

import gzip
import io
import os
import sqlite3
import tarfile
from pathlib import Path

import pytest

from capture.errors import UnreadableError
from capture.load_runs import load, load_all


def make_tar(content: bytes) -> bytes:
    """Return an archive with one file."""
    written, member = io.BytesIO(), tarfile.TarInfo("prof.jsonl")
    member.size = len(content)
    with tarfile.open(fileobj=written, mode="w") as archive:
        archive.addfile(member, io.BytesIO(content))
    return written.getvalue()


CASES = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\n ", "only blanks"),
    "zeros": (b"\0" * 4096, "only blanks or zeros"),
    "zip": (b"PK\x03\x04" + bytes(60), "zip archive"),
    "tar": (make_tar(b'{"kind":"run","schema":3}\n' * 9), "tar archive"),
    "tar in gzip": (gzip.compress(make_tar(b'{"traceEvents":[]}')), "tar xf FILE"),
    "bzip2": (b"BZh91AY" + bytes(20), "bunzip2"),
    "xz": (b"\xfd7zXZ\x00" + bytes(20), "unxz"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(20), "zstd -d"),
    "elf": (b"\x7fELF\x02\x01" + bytes(60), "ELF"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(60), "picture"),
    "parquet": (b"PAR1" + bytes(60) + b"PAR1", "Parquet"),
    "pickle": (b"\x80\x04\x95" + bytes(60), "never opened because it can run code"),
    "html": (b"<!DOCTYPE html>\n<html><body>404</body></html>", "HTML page"),
    "git-lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull"),
    "xplane": (b"\x0a\x10\x12\x0e/host:metadata", "xplane profile without a readable event"),
    "safetensors": ((64).to_bytes(8, "little") + b'{"a":1}' + b" " * 57, "weights"),
    "execution trace": (b'{"schema": "1.1", "pid": 1, "nodes": [{"id": 1}]}', "execution trace"),
    "speedscope": (
        b'{"$schema":"https://www.speedscope.app/file-format-schema.json","profiles":[]}',
        "is a speedscope",
    ),
    "memory timeline": (b"[[1795528362593007, 1795528362643753], [[0, 0, 0], [4, 8, 0]]]", "memory timeline"),
    "raw memory timeline": (b"[[-1, 1, 16384, 0], [1795528362593007685, 2, 2048, 4]]", "memory timeline"),
    "key_averages": (
        b"-------  ------------  ------------\n   Name    Self CPU %      Self CPU   CPU total\n",
        "key_averages",
    ),
    "nvprof": (b"==139== Profiling application: ./m2\n==139== Profiling result:\n", "output of nvprof"),
    "ncu": (b"==PROF== Connected to process 1\n==ERROR== ERR_NVGPUCTRPERM\n", "without a kernel"),
    "cProfile": (b"         38089 function calls (37983 primitive calls) in 0.020 seconds\n", "of cProfile"),
    "cProfile's file": (b"\xfb)\x03\xfa8/root/lib/random.py" + bytes(60), "of cProfile"),
    "perf script": (
        b"python3  4530 18310.036526:     250000 cpu-clock: \n\tffffffff8140a35e rcu_core+0x12e (vmlinux)\n",
        "output of perf script",
    ),
    "perf report": (
        b"#\n# Samples: 598  of event 'cpu-clock'\n# Event count (approx.): 1\n",
        "report of perf",
    ),
    "perf record": (b"PERFILE2" + bytes(60), "py-spy record -f chrometrace"),
    "flame graph of py-spy": (
        b'<?xml version="1.0" standalone="no"?><!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "svg11.dtd">'
        b'<svg version="1.1" width="1200"><!--Flame graph stack visualization.--><defs></defs></svg>',
        "is a picture of a flame graph",
    ),
    "folded stacks": (b" 1\nmain (a.py:1);f (a.py:7) 3\nmain (a.py:1);g (a.py:9) 12\n", "folded stacks"),
    "other json": (b'{"zebra": 1, "yak": {"x": 2}}', "first keys: zebra, yak"),
    "a log": (b"[ INFO ] Build is 2026\n[Step 1/11] Parsing\n", "is text"),
    "scalar": (b"42", "is"),
    "prose": (b"Dear reader,\nnothing here has a duration.\n", "is text"),
    "random": (bytes(range(256)) * 16, "binary"),
    "gzip twice": (gzip.compress(gzip.compress(b"{}")), "gzip inside gzip"),
}


@pytest.mark.parametrize(("content", "says"), CASES.values(), ids=CASES)
def test_named_for_what_it_is(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "unknown"
    file.write_bytes(content)
    with pytest.raises(UnreadableError) as actual:
        load(file)
    assert says in str(actual.value)
    assert str(file) in str(actual.value)
    assert "\n" not in str(actual.value)


def test_binary_reports_say_how_to_export(tmp_path: Path) -> None:
    for name, says in (("a.nsys-rep", "nsys export --type sqlite"), ("a.ncu-rep", "ncu --import")):
        file = tmp_path / name
        file.write_bytes(bytes(range(256)) * 16)
        with pytest.raises(UnreadableError, match=says):
            load(file)


def test_sqlite_of_another_kind(tmp_path: Path) -> None:
    file = tmp_path / "x.sqlite"
    with sqlite3.connect(file) as db:
        db.execute("create table songs (title text)")
    with pytest.raises(UnreadableError, match="SQLite"):
        load(file)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="folder without profiles"):
        load_all([tmp_path])
    with pytest.raises(UnreadableError, match="no such file"):
        load(tmp_path / "absent")
    with pytest.raises(UnreadableError, match="is a directory"):
        load(tmp_path)
    (tmp_path / "locked").write_bytes(b"x")
    (tmp_path / "locked").chmod(0)
    if os.access(tmp_path / "locked", os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(UnreadableError, match="permission denied"):
        load(tmp_path / "locked")


def test_a_hostile_file_name_is_cleaned(tmp_path: Path) -> None:
    file = tmp_path / "a\x1b]0;owned\x07\n.json"
    file.write_bytes(b"")
    with pytest.raises(UnreadableError) as actual:
        load(file)
    assert str(actual.value).isprintable()
