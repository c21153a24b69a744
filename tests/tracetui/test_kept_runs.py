"""Baselines and recordings are kept until somebody says otherwise."""

import os
from pathlib import Path

from tests.tracetui.in_process import tracetui


def test_a_baseline_is_replaced_with_a_word_only(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    assert tracetui("baseline", "main", "sample:slowed", env=env).returncode == 0
    kept = tmp_path / "tracetui" / "baselines" / "main.jsonl"
    before = kept.read_bytes()
    again = tracetui("baseline", "main", "sample:decode", env=env)
    assert again.returncode == 2 and "--replace" in again.stderr and kept.read_bytes() == before
    assert tracetui("baseline", "main", "sample:decode", "--replace", env=env).returncode == 0
    assert kept.read_bytes() != before


def test_recordings_are_listed_and_the_oldest_removed_with_a_word(tmp_path: Path) -> None:
    env, folder = {"XDG_STATE_HOME": str(tmp_path)}, tmp_path / "tracetui" / "runs"
    assert tracetui("recordings", env=env).stdout == ""
    for n in range(3):
        path = folder / f"{n}.jsonl"
        path.write_bytes(bytes(1000))
        os.utime(path, (1000 * (n + 1), 1000 * (n + 1)))
    listed = tracetui("recordings", env=env).stdout.splitlines()
    assert [Path(line.split()[-1]).name for line in listed] == ["2.jsonl", "1.jsonl", "0.jsonl"]
    pruned = tracetui("recordings", "--prune", "2KB", env=env)
    assert pruned.stderr == f"tracetui: removed {folder / '0.jsonl'}\n"
    assert sorted(path.name for path in folder.iterdir()) == ["1.jsonl", "2.jsonl"]
    assert tracetui("recordings", "--prune", "lots", env=env).returncode == 2
