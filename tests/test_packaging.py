"""What is installed and by which recipe: metadata, and recipes that name what pyproject.toml names."""

import re
import tomllib

import pytest

from tests.house import ROOT

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CLASSIFIED = re.compile(r"Programming Language :: Python :: (3\.\d+)")
HEAVY = ("torch", "triton", "transformers", "ray", "distributed", "mcp", "fsspec", "resvg", "jsonschema")


def test_the_conda_recipe_needs_what_the_project_needs() -> None:
    recipe = (ROOT / ".ci" / "conda" / "recipe.yaml").read_text()
    run = recipe.partition("  run:\n")[2].partition("\ntests:")[0]
    named = {line.strip("- \n") for line in run.splitlines() if line.strip()}
    spaced = {re.sub(r"^([\w-]+)", r"\1 ", dependency) for dependency in PROJECT["dependencies"]}
    assert named == spaced | {f"python {PROJECT['requires-python']}"}
    assert f'version: "{PROJECT["version"]}"' in recipe


def test_the_image_takes_extras_that_exist() -> None:
    recipe = (ROOT / ".ci" / "docker" / "Dockerfile").read_text()
    extras = {extra for actual in re.findall(r"\[([\w,]+)\]", recipe) for extra in actual.split(",")}
    assert extras and extras <= set(PROJECT["optional-dependencies"])
    assert "--no-index" in recipe.partition("COPY --from")[2] and "USER reader" in recipe


def test_a_plain_installation_stays_small() -> None:
    names = [re.match(r"[\w-]+", dependency)[0] for dependency in PROJECT["dependencies"]]  # type: ignore[index]
    assert len(names) <= 8 and not set(names) & set(HEAVY)


def test_the_metadata_says_what_it_is_and_invents_no_address() -> None:
    versions = CLASSIFIED.findall("\n".join(PROJECT["classifiers"]))
    assert versions[0] == PROJECT["requires-python"].removeprefix(">=") == "3.11"
    assert "Typing :: Typed" in PROJECT["classifiers"] and (ROOT / "tracetui" / "py.typed").exists()
    assert "urls" not in PROJECT
