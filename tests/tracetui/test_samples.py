"""The samples: real recordings that every command takes in place of a file."""

import json
from pathlib import Path

import pytest

from capture.errors import UsageError
from capture.load_runs import load
from tests.tracetui.in_process import tracetui
from tracetui import samples
from tracetui.samples import SAMPLES, find_sample, resolve_file

LARGEST = 150_000  # bytes of all samples together: they travel with every installation


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_whole_and_tells_nothing_of_the_machine_it_was_made_on(name: str) -> None:
    (run,) = load(find_sample(name), cache=False)
    assert run.log.dropped == run.log.repaired == 0
    assert run.events.filter(run.events["kind"] == "step").height == 49
    actual = json.dumps(dict(run.meta), default=str)
    assert "/" not in run.meta["argv"][0] and "/home" not in actual and "/tmp" not in actual  # noqa: S108


def test_every_file_of_the_folder_is_a_sample_and_small() -> None:
    files = list(Path(samples.__file__).parent.glob("*.gz"))
    assert {f.name for f in files} == {f"{name}.jsonl.gz" for name in SAMPLES}
    assert sum(f.stat().st_size for f in files) < LARGEST


def test_only_the_prefix_makes_a_word_a_sample() -> None:
    assert resolve_file("decode") == "decode" and resolve_file("./sample:decode") == "./sample:decode"
    assert resolve_file("sample:decode") == str(find_sample("decode"))
    with pytest.raises(UsageError, match="did you mean decode"):
        find_sample("decod")


def test_commands_take_samples_for_files() -> None:
    opened = tracetui("open", "--sample", "decode")
    assert opened.returncode == 0 and "smollm2-135m" in opened.stdout
    assert tracetui("sample:decode").stdout == opened.stdout
    wrong = tracetui("report", "kernels", "sample:decoed")
    assert wrong.returncode == 2 and "did you mean decode?" in wrong.stderr


def test_the_slowed_sample_is_what_diff_finds() -> None:
    """One run a side: nobody knows by what runs of the same differ, so a person takes the risk."""
    gate = ("diff", "sample:decode", "sample:slowed", "--fail-over", "10%")
    result = tracetui(*gate)
    assert result.returncode == 4 and "one run per side does not fail the gate" in result.stderr
    assert "ffn_down slower +40.2% in decode" in result.stdout
    assert tracetui(*gate, "--trust-one-run").returncode == 1
    repeats = tracetui("diff", "--a", "sample:decode", "--b", "sample:slowed", "--threshold", "1%")
    assert repeats.returncode == 0 and "ffn_down slower" in repeats.stdout
