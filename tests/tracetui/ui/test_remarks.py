"""Marks and notes of rows: by keys, kept by the content of the file, and never written into it."""

import gzip
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from capture.errors import CaptureError
from capture.load_runs import load
from capture.run import Run
from tests.conftest import FIXTURES
from tests.tracetui.ui.hand import decode, play, press, screen
from tracetui.ui import saved_remarks
from tracetui.ui.app import Explorer
from tracetui.ui.saved_remarks import hash_content
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.session import Remarks, RemarkScope

Pilots = Pilot[Any]
KEEPS = ScreenOptions(view="kernels", saves_choices=True)


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording, with a state folder of its own beside it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Path(shutil.copy(FIXTURES / "native" / "flat.jsonl", tmp_path / "flat.jsonl"))


def opened(path: Path) -> list[Run]:
    return load(path, cache=False)


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "state" / "tracetui" / "remarks").glob("*"))


async def note(pilot: Pilots, text: str) -> None:
    await press(pilot, "A", *("space" if c == " " else c for c in text), "enter")


def test_a_mark_and_a_note_are_there_again_in_the_next_screen(recording: Path, tmp_path: Path) -> None:
    before = hashlib.sha256(recording.read_bytes()).digest()

    async def first(app: Explorer, pilot: Pilots) -> None:
        await note(pilot, "look here")
        await press(pilot, "j", "m")
        name = app.main_screen.table.row["name"]
        assert any(line.startswith(f"•{name}") for line in screen(app))
        await press(pilot, "k")
        assert "look here" in screen(app)[-2]
        assert any(line.startswith(f'"{app.main_screen.table.row["name"]}') for line in screen(app))

    names: list[str] = []

    async def again(app: Explorer, pilot: Pilots) -> None:
        assert "look here" in screen(app)[-2]
        names.append(app.main_screen.table.row["name"])
        await press(pilot, "j")
        assert "look here" not in screen(app)[-2]
        names.append(app.main_screen.table.row["name"])
        assert app.workspace.session.look.chosen == ((names[1],),)
        await press(pilot, "m", "k", "A", "ctrl+u", "enter")  # both taken back
        assert "look here" not in screen(app)[-2]

    play(first, opened(recording), KEEPS)
    assert hashlib.sha256(recording.read_bytes()).digest() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["flat.jsonl", "state"]
    moved = recording.rename(tmp_path / "elsewhere.jsonl")
    play(again, opened(moved), KEEPS)
    assert kept(tmp_path) == []  # nothing is remarked any more


def test_another_file_has_none_of_them(recording: Path, tmp_path: Path) -> None:
    async def first(app: Explorer, pilot: Pilots) -> None:
        await note(pilot, "mine")

    async def other(app: Explorer, pilot: Pilots) -> None:
        assert not app.workspace.session.remarks.notes

    play(first, opened(recording), KEEPS)
    changed = tmp_path / "changed.jsonl"
    changed.write_text(recording.read_text().replace('"dur":100', '"dur":101'))
    play(other, opened(changed), KEEPS)
    assert len(kept(tmp_path)) == 1


def test_each_view_and_each_run_has_its_own(recording: Path) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "m")
        marked = app.workspace.session.look.chosen
        assert marked
        await press(pilot, "tab")
        assert app.workspace.session.look.chosen == ()
        await press(pilot, "shift+tab")
        assert app.workspace.session.look.chosen == marked

    play(script, opened(recording), KEEPS)
    run = opened(recording)[0]
    remarks = saved_remarks.load_remarks([run])
    assert {where.view for where in remarks.marks} == {"kernels"}
    assert {where.run for where in remarks.marks} == {run.name}


def test_a_note_needs_a_row_of_a_whole_view(recording: Path) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "slash", "z", "z", "z", "enter")
        await press(pilot, "A")
        assert app.workspace.draft is None and "notes belong to rows" in screen(app)[-2]

    play(script, opened(recording), KEEPS)


def test_what_comes_from_no_file_is_remarked_until_the_screen_closes(recording: Path, tmp_path: Path) -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await note(pilot, "for now")
        assert "is lost when the screen closes" in screen(app)[-2]
        assert list(app.workspace.session.notes.values()) == ["for now"]

    play(script, [decode()], KEEPS)
    assert kept(tmp_path) == []


def test_a_recording_that_grows_keeps_its_remarks_and_another_file_that_grows_is_another(
    tmp_path: Path,
) -> None:
    native, table = tmp_path / "native.jsonl", tmp_path / "table.csv"
    native.write_bytes(b'{"kind":"run","schema":1}\n' + b'{"kind":"mark","name":"x"}\n' * 400)
    table.write_bytes(b"name,dur\n" + b"gemm,1\n" * 40_000)
    before = hash_content(native), hash_content(table)
    for path in (native, table):
        path.write_bytes(path.read_bytes() + b'{"kind":"mark","name":"y"}\n')
    assert hash_content(native) == before[0] and hash_content(table) != before[1]
    middle = table.read_bytes()
    table.write_bytes(b"name,sum\n" + middle[9:])
    assert hash_content(table) not in (before[1], None)
    assert hash_content(tmp_path) is None and hash_content(tmp_path / "absent") is None
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(b"x"))
    assert hash_content(packed) is not None


def test_a_damaged_file_of_remarks_is_passed_over(recording: Path, tmp_path: Path) -> None:
    where = RemarkScope(str(recording), "flat", "kernels")
    saved_remarks.save_remarks(Remarks().with_marks(where, (("a",), (3,), (None,))), str(recording))
    (place,) = kept(tmp_path)
    lines = place.read_text().splitlines()
    assert json.loads(lines[0]) == {"recording": str(recording)} and len(lines) == 4
    odd = ["{", "[]", "3", '{"row": 3}', '{"row": [[1]], "marked": true}', "[" * 100_000, "\x00"]
    output = {"run": "flat", "view": "kernels", "row": ["b\u202e"], "note": "n\x1b[31m" + "x" * 900}
    place.write_text("\n".join([*lines[1:], *odd, json.dumps(output)]))
    run = opened(recording)[0]
    remarks = saved_remarks.load_remarks([run])
    actual = RemarkScope(run.log.source, "flat", "kernels")
    assert remarks.marks == {actual: (("a",), (3,), (None,))}
    (text,) = remarks.notes[actual].values()
    assert set(remarks.notes[actual]) == {("b",)} and text.startswith("n�[31mx") and len(text) == 500


def test_remarks_of_no_file_are_refused_in_a_sentence(recording: Path) -> None:
    with pytest.raises(CaptureError, match="is lost when the screen closes"):
        saved_remarks.save_remarks(Remarks(), "stdin")
