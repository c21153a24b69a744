"""The sentences that users read are plain: no turn of phrase that reviewers stumbled over."""

import pytest

from capture.load_runs import load
from tests.sentences import MOST_ACTION_LETTERS, find_faults, iter_fixed_sentences, iter_sentences
from tests.tracetui.views.test_views import everything
from tracetui.samples import SAMPLES, find_sample
from tracetui.views.fix import ADVICE_BY_CAUSE


@pytest.mark.parametrize(
    "sentence",
    [
        "of a changed op, the time that is taken off its rows",
        "a note about the row, which is kept",
        "a name that lies on this machine",
        "begin so deep",
        "`doctor` says of the scanner which",
        "there is nothing further in",
        "1 steps",
        "wall times; host times cover the same time and are not added",
        "31 more recordings per side would tell",
        "tokens/s are of the 10.45 ms that the device took",
        "roof: 708,000 GFLOP/s",
    ],
)
def test_find_faults_of_a_sentence_that_reviewers_stumbled_over_names_one(sentence: str) -> None:
    assert find_faults(sentence)


def test_sentences_of_keys_and_advice_are_plain() -> None:
    assert [(place, s) for place, s in iter_fixed_sentences() if find_faults(s)] == []
    assert all(len(advice.action) <= MOST_ACTION_LETTERS for advice in ADVICE_BY_CAUSE.values())


def test_notes_of_all_views_of_the_samples_are_plain() -> None:
    runs = [everything(), *(load(find_sample(name))[0] for name in SAMPLES)]
    sentences = dict.fromkeys(iter_sentences(runs))
    assert len(sentences) > 20
    assert [(place, s) for place, s in sentences if find_faults(s)] == []
