"""The table of planted faults fits the code, and each fault finds tests to run."""

from collections import Counter

import pytest

from tests.mutations import ROOT, Mutation, list_stages, read_table

TABLE = read_table()


@pytest.mark.parametrize("mutation", TABLE, ids=[mutation.name for mutation in TABLE])
def test_mutation_replaces_one_text(mutation: Mutation) -> None:
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.new != mutation.old


def test_mutations_have_unique_names_and_compile() -> None:
    assert [name for name, count in Counter(m.name for m in TABLE).items() if count > 1] == []
    for m in TABLE:
        compile((ROOT / m.file).read_text().replace(m.old, m.new), m.file, "exec")


def test_stages_begin_with_the_tests_of_the_module() -> None:
    stages = list_stages(ROOT, "capture/merge_ranks.py")
    assert stages[0] == ["tests/capture/test_merge_ranks.py"]
    tests = [path for stage in stages for path in stage]
    assert len(tests) == len(set(tests)) == len(list((ROOT / "tests").rglob("test_*.py")))
