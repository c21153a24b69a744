"""What the tests share: where the fixtures and the larger samples lie."""

import os
import signal
from collections import defaultdict
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import settings

# the same examples on every machine; HYPOTHESIS_PROFILE=explore draws new ones
settings.register_profile("suite", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=15)
# what a person has chosen or recorded changes no test; root could create any other folder
os.environ |= {f"XDG_{kind}_HOME": "/dev/null" for kind in ("CONFIG", "STATE", "CACHE")}
# under nohup, or behind `&`, these are ignored, also in the programs that tests start and signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

FIXTURES = Path(__file__).parent / "fixtures"
QUICK_SHARE = 8  # one case of so many of a corpus runs in `make test`
GOLDEN = Path(__file__).parent / "tracetui" / "golden"
SHARED = Path(__file__).parent.parent.parent / "shared"


NEEDS_TORCH = (
    "engines",
    "capture/record/test_patch_torch.py",
    "tracetui/test_doctor.py",
    "tracetui/analysis/test_training_nsys.py",
)
assert all((Path(__file__).parent / place).exists() for place in NEEDS_TORCH)
collect_ignore = [] if find_spec("torch") else [str(Path(__file__).parent / place) for place in NEEDS_TORCH]


def pytest_configure(config: pytest.Config) -> None:
    """Draw fewer examples where slow tests are left out."""
    usual = "quick" if "not slow" in config.option.markexpr else "suite"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", usual))


def pytest_report_header() -> str:
    """Say what is left out where torch is not installed."""
    return f"torch is not installed: without {', '.join(NEEDS_TORCH)}" if collect_ignore else "with torch"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Of the cases of each test marked `corpus`, mark as slow all but a fixed eighth, at least one."""
    corpora = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("corpus"):
            corpora[item.nodeid.partition("[")[0]].append(item)
    for cases in corpora.values():
        quick = [case for case in cases if crc32(case.name.encode()) % QUICK_SHARE == 0] or cases[:1]
        for case in set(cases).difference(quick):
            case.add_marker(pytest.mark.slow)


def shared(relative: str) -> Path:
    """Return a large sample kept beside the checkout; the test is skipped where it is absent."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"the sample {relative} is not beside this checkout")
    return path


def seed(number: int) -> Path:
    paths = sorted(shared("seeds").glob(f"{number:03d}_*"))
    if not paths:
        pytest.skip(f"seed {number} is not beside this checkout")
    return paths[0]


def document(name: str) -> Path:
    """Return a fixture, `seed N` or `samples/…`; the test is skipped where a large sample is absent."""
    if name.startswith("seed "):
        return seed(int(name.removeprefix("seed ")))
    return shared(name) if name.startswith("samples/") else FIXTURES / name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden texts anew, then read the diff"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the golden one of that name."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert text == path.read_text()

    return compare
