"""A family is added by one file and one line, as `engines/models/__init__.py` says."""

import shutil
import subprocess
import sys
from pathlib import Path

import engines.models
from engines.models import FAMILIES
from engines.models.catalogue import PRESETS

ROOT = Path(engines.models.__file__).parents[2]
FAMILY = '''"""Tiny: Llama with a window in every other layer."""

from engines.models.decoder_config import read_decoder, find_rope_section
from engines.models.config_fields import Family, ModelConfig
from engines.models.spec import Spec
from engines.models.decoder_config import mark_all_but_every, with_windows


def read(config: ModelConfig, name: str) -> Spec:
    """Return the model of a config."""
    spec = read_decoder(config, name, find_rope_section(config))
    return with_windows(spec, mark_all_but_every(2, spec.layers), config.read_integer("odd_window"))


FAMILY = Family("tiny", read, (Spec("tiny-1m", "tiny", 301, 48, 2, 4, 2, 12, 80),))
'''
READ = """
from engines.models.catalogue import build_spec, find_preset
sizes = dict(vocab_size=9, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=8)
spec = build_spec({**sizes, "model_type": "tiny", "odd_window": 7}, "x")
print(spec.windowed_layers, spec.window, find_preset("tiny-1m").ffn)
"""


def test_every_file_of_a_family_is_registered() -> None:
    files = {
        path.stem for path in (ROOT / "engines" / "models").glob("*.py") if "FAMILY = " in path.read_text()
    }
    assert files - {"__init__"} == set(FAMILIES)


def test_no_other_module_knows_a_family() -> None:
    """The registry and the file of a family are the only places where its name stands."""
    for path in (ROOT / "engines").rglob("*.py"):
        if path.parent.name != "models":
            assert not [name for name in ("gemma3_text", "mistral", 'qwen2"') if name in path.read_text()], (
                path
            )


def test_presets_are_in_the_order_of_their_names() -> None:
    assert list(PRESETS) == sorted(PRESETS)


def test_a_family_is_one_file_and_one_line(tmp_path: Path) -> None:
    for room in ("engines", "capture"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    models = tmp_path / "engines" / "models"
    (models / "tiny.py").write_text(FAMILY)
    registry = models / "__init__.py"
    registry.write_text(registry.read_text().replace('    "qwen3",\n', '    "qwen3",\n    "tiny",\n'))
    command = [sys.executable, "-P", "-c", READ]
    result = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}
    )
    assert result.stdout == "(True, False, True) 7 80\n", result.stderr
