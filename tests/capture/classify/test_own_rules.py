"""A person's own rules: read with care, never fatal."""

import time
from pathlib import Path

import pytest

from capture.classify.own_rules import OwnRule, own_rules_file, parse_own_rules, read_own_rules


def test_rules_are_read_and_the_first_that_fits_decides() -> None:
    rules = parse_own_rules(
        "# mine\n\nmy_(gemm|mm)\\b   mlp.up   matmul\n^my_ - elementwise\nwith space.* moe.experts moe\n"
    )
    assert not rules.problems and len(rules) == 3
    classified = rules.classify("void my_gemm<1>(int)")
    assert classified and (classified.op, classified.category, classified.rule_id) == (
        "mlp.up",
        "matmul",
        "own.3",
    )
    assert classified.basis == "own rule, line 3: my_gemm"
    assert (other := rules.classify("my_add")) and (other.op, other.category) == (None, "elementwise")
    assert rules.classify("a with space b") and rules.classify("nothing") is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("gemm matmul", "wants"),
        ("gemm mlp.up nonsense", "no category"),
        ("gemm MLP matmul", "is no op"),
        ("( mlp.up matmul", "no regular expression"),
        ("(a+)+b - matmul", "repeats a group"),
        ("(a|a){9} - matmul", "repeats a group"),
        (r"(a)\1 - matmul", "refers back"),
        (".*a.*b.*c - matmul", "more than two"),
        ("a" * 600 + " - matmul", "longer"),
    ],
)
def test_a_wrong_line_is_reported_and_the_others_hold(line: str, problem: str) -> None:
    rules = parse_own_rules(f"{line}\ngood - matmul\n")
    assert len(rules) == 1
    assert (
        len(rules.problems) == 1 and rules.problems[0].startswith("line 1: ") and problem in rules.problems[0]
    )


def test_brackets_and_escapes_are_no_quantifiers() -> None:
    assert len(parse_own_rules(r"a\+b\*c[+*+]\(x\)+ - matmul")) == 1


def test_hostile_text_is_cleaned() -> None:
    rules = parse_own_rules("\x1b]0;x\x07( \x1b[31m \x1b[2J\n( - matmul\n\x1b[1m( - matmul\n")
    assert rules.problems and all("\x1b" not in problem for problem in rules.problems)


def test_a_rule_that_spends_too_long_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = parse_own_rules("z.*x.*y - matmul\nb - copy\n")
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    assert (classified := rules.classify("b")) and classified.category == "copy"
    assert len(rules) == 1 and "takes too long" in rules.problems[0]


def test_searching_is_bounded() -> None:
    rules = parse_own_rules(r"\w+x\w+y - matmul")
    begun = time.process_time()
    assert rules.classify("ax" * 50_000) is None
    assert time.process_time() - begun < 2


def test_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert own_rules_file() == tmp_path / "tracetui" / "rules"
    assert len(read_own_rules()) == 0 and not read_own_rules().problems
    (tmp_path / "tracetui").mkdir()
    file = tmp_path / "tracetui" / "rules"
    file.write_bytes(b"good - matmul\n\xff\xfe - copy\n")
    assert len(read_own_rules()) == 2
    file.write_text("a - matmul\n" * 20_000)
    rules = read_own_rules()
    assert len(rules) == 500 and any("only" in problem for problem in rules.problems)
    file.unlink()
    file.mkdir()
    assert len(read_own_rules()) == 0


def test_without_a_home_there_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert own_rules_file() == Path("/home/somebody/.config/tracetui/rules")
    monkeypatch.setenv("HOME", "nowhere")
    assert own_rules_file() is None


def test_a_rule_holds_what_its_line_says() -> None:
    assert OwnRule(1, parse_own_rules("a - copy")._rules[0].pattern, None, "copy").category == "copy"
