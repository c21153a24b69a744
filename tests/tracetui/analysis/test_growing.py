"""What grows, in words: rate, ends and crossing against lines worked out by hand."""

from tests.tracetui.runs import decode, made
from tracetui.look import Look
from tracetui.views import ask, view
from tracetui.views.ink import Line, Size


def test_the_planted_growth_in_words() -> None:
    """A token takes 200 + 20c µs of attention and 800 µs of down: they meet at a context of 30."""
    answer = ask(view("growth"), [decode()], Look())
    assert answer.notes[0] == (
        "attn.core grows by +20.00 ms per 1k tokens of context: 440.0 µs at 12, 2.000 ms at 90; "
        "longer than mlp.down from context 30 on"
    )
    assert answer.rows["op"][0] == "attn.core"


def grown(slope: int) -> list[dict[str, object]]:
    """Ten steps: `big` takes 10 µs, `small` 1 µs and so many ns more for each token of context."""
    rows: list[dict[str, object]] = []
    for step in range(1, 11):
        context = 100 * step
        for name, ns in (("big", 10_000), ("small", 1000 + slope * context)):
            rows.append(
                {"kind": "kernel", "name": name, "op": name, "dur": ns, "step": step, "phase": "decode"}
            )
        rows.append(
            {"kind": "step", "step": step, "phase": "decode", "tokens": 1, "context": context, "dur": 20_000}
        )
    return rows


def test_a_crossing_that_is_still_to_come_is_foreseen() -> None:
    """1,000 + 2c ns reach 10,000 ns at 4,500 tokens."""
    answer = ask(view("growth"), [made(grown(2))], Look())
    assert answer.rows["op"].to_list() == ["small", "big"]  # what grows first, though it is the smaller
    assert answer.notes[0].endswith(
        "1.200 µs at 100, 3.000 µs at 1,000; on this line as long as big at context 4,500"
    )


def test_where_nothing_grows_the_largest_is_first_and_nothing_is_said() -> None:
    answer = ask(view("growth"), [made(grown(0))], Look())
    assert answer.rows["op"].to_list() == ["big", "small"] and "grows" not in " ".join(answer.notes)


def legend(lines: list[Line]) -> list[str]:
    """The names of the curves of a chart."""
    text = next(text for ln in lines if "━━" in (text := "".join(s.text for s in ln)))
    return [name.strip() for name in text.split("━━")[1:]]


def test_what_grows_is_charted_with_its_line_and_so_is_a_marked_row() -> None:
    shown = view("growth")
    assert shown.draw is not None
    answer = ask(shown, [made(grown(2))], Look())
    looks = Look(), Look(chosen=(("big",),))
    named = [legend(shown.draw(answer, look, Size(100, 30))) for look in looks]
    assert named == [["small", "small, fitted line"], ["big"]]


def test_a_course_that_grows_has_a_colour() -> None:
    shown = view("growth")
    assert shown.draw is not None
    answer = ask(shown, [made(grown(2))], Look(cursor=(1, 0)))
    lines = shown.draw(answer, Look(cursor=(1, 0)), Size(100, 30))
    assert [span.style for span in lines[1]][1] == "bad"
