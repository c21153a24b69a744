"""A person's own rules: read with care, never fatal."""

import time
from pathlib import Path

import polars as pl
import pytest

from capture import cache
from capture.classify import name_rules
from capture.classify.kernel_rules import UserRule, find_user_rules_file, parse_user_rules, read_user_rules
from capture.load_runs import load
from capture.native.schema import seal_record
from capture.run import Run


def test_rules_are_read_and_the_first_that_fits_decides() -> None:
    rules = parse_user_rules(
        "# mine\n\nmy_(gemm|mm)\\b   mlp.up   matmul\n^my_ - elementwise\nwith space.* moe.experts moe\n"
    )
    assert not rules.problems and len(rules) == 3
    classified = rules.classify("void my_gemm<1>(int)")
    assert classified and (classified.op, classified.category, classified.rule_id) == (
        "mlp.up",
        "matmul",
        "own.3",
    )
    assert classified.basis == "user rule, line 3: my_gemm"
    assert (other := rules.classify("my_add")) and (other.op, other.category) == (None, "elementwise")
    assert rules.classify("a with space b") and rules.classify("nothing") is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("gemm matmul", "needs"),
        ("gemm mlp.up nonsense", "unknown category"),
        ("gemm MLP matmul", "invalid op"),
        ("( mlp.up matmul", "invalid regular expression"),
        ("(a+)+b - matmul", "repeats a group"),
        ("(a|a){9} - matmul", "repeats a group"),
        (r"(a)\1 - matmul", "backreference"),
        (".*a.*b.*c - matmul", "more than two"),
        ("a" * 600 + " - matmul", "longer"),
    ],
)
def test_a_wrong_line_is_reported_and_the_others_hold(line: str, problem: str) -> None:
    rules = parse_user_rules(f"{line}\ngood - matmul\n")
    assert len(rules) == 1
    assert (
        len(rules.problems) == 1 and rules.problems[0].startswith("line 1: ") and problem in rules.problems[0]
    )


def test_brackets_and_escapes_are_no_quantifiers() -> None:
    assert len(parse_user_rules(r"a\+b\*c[+*+]\(x\)+ - matmul")) == 1


def test_hostile_text_is_cleaned() -> None:
    rules = parse_user_rules("\x1b]0;x\x07( \x1b[31m \x1b[2J\n( - matmul\n\x1b[1m( - matmul\n")
    assert rules.problems and all("\x1b" not in problem for problem in rules.problems)


def test_a_rule_that_spends_too_long_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = parse_user_rules("z.*x.*y - matmul\nb - copy\n")
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    assert (classified := rules.classify("b")) and classified.category == "copy"
    assert len(rules) == 1 and "takes too long" in rules.problems[0]


def test_searching_is_bounded() -> None:
    rules = parse_user_rules(r"\w+x\w+y - matmul")
    begun = time.process_time()
    assert rules.classify("ax" * 50_000) is None
    assert time.process_time() - begun < 2


def test_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert find_user_rules_file() == tmp_path / "tracetui" / "rules"
    assert len(read_user_rules()) == 0 and not read_user_rules().problems
    (tmp_path / "tracetui").mkdir()
    file = tmp_path / "tracetui" / "rules"
    file.write_bytes(b"good - matmul\n\xff\xfe - copy\n")
    assert len(read_user_rules()) == 2
    file.write_text("a - matmul\n" * 20_000)
    rules = read_user_rules()
    assert len(rules) == 500 and any("only" in problem for problem in rules.problems)
    file.unlink()
    file.mkdir()
    assert len(read_user_rules()) == 0


def test_without_a_home_there_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert find_user_rules_file() == Path("/home/somebody/.config/tracetui/rules")
    monkeypatch.setenv("HOME", "nowhere")
    assert find_user_rules_file() is None


def test_a_rule_holds_what_its_line_says() -> None:
    assert UserRule(1, parse_user_rules("a - copy")._rules[0].pattern, None, "copy").category == "copy"


def opened(folder: Path, monkeypatch: pytest.MonkeyPatch, rules: str) -> Run:
    """Return a trace of two kernels, read by a person whose file holds these rules."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    (folder / "tracetui").mkdir(exist_ok=True)
    (folder / "tracetui" / "rules").write_text(rules)
    trace = folder / "trace.jsonl"
    kernels = [{"kind": "kernel", "name": name, "dur": 5} for name in ("my_gemm", "rms_norm")]
    trace.write_bytes(b"".join(map(seal_record, [{"kind": "run", "schema": 1, "id": "a"}, *kernels])))
    for kept in (name_rules.load_user_rules, name_rules.classify_name, cache._compute_code_version):
        kept.cache_clear()
    try:
        return load(trace)[0]
    finally:
        monkeypatch.delenv("XDG_CONFIG_HOME")
        for kept in (name_rules.load_user_rules, name_rules.classify_name, cache._compute_code_version):
            kept.cache_clear()


def roles(run: Run) -> dict[str, tuple[str | None, str]]:
    rows = run.events.select(pl.col("name", "op", "category").cast(pl.String)).rows()
    return {name: (op, category) for name, op, category in rows}


def test_own_rules_go_before_the_built_in_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = opened(tmp_path, monkeypatch, "my_gemm mlp.up moe\n")
    assert roles(run) == {"my_gemm": ("mlp.up", "moe"), "rms_norm": ("norm", "norm")}
    assert "own_rules" not in {notice.id for notice in run.log.notices}


def test_wrong_lines_are_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = opened(tmp_path, monkeypatch, "( mlp.up moe\ngemm nonsense\n")
    (notice,) = (notice for notice in run.log.notices if notice.id == "own_rules")
    assert (notice.count, notice.severity) == (2, "notice")
    assert "line 1: invalid regular expression '('" in notice.message


def test_a_parsed_form_is_void_once_the_rules_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(cache.OFF_VARIABLE, raising=False)
    monkeypatch.setattr(cache, "MIN_INPUT_BYTES", 1)
    first = opened(tmp_path, monkeypatch, "my_gemm mlp.up matmul\n")
    other = opened(tmp_path, monkeypatch, "my_gemm mlp.down matmul\n")
    assert [roles(run)["my_gemm"][0] for run in (first, other)] == ["mlp.up", "mlp.down"]
