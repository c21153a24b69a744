"""What makes two runs hard to compare, from their rows."""

from tracetui.compare.pairing.comparability import _check_matched_share
from tracetui.compare.pairing.row_matching import RowMatch


def test_matched_share_is_of_time_of_both_runs() -> None:
    matches = [RowMatch((0,), (1,), "exact"), RowMatch((1,), (0,), "role"), RowMatch((), (2,), "new")]
    assert list(_check_matched_share(matches, ([60, 40], [40, 60, 10]))) == []
    ((factor, reason),) = _check_matched_share(matches, ([60, 40], [40, 60, 200]))
    assert (factor, reason) == (0.5, "only 50% of the time is in rows that both runs have")
