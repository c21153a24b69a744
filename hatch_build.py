"""The hook of the build: compiles the parts in C where a compiler is, else leaves them out."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

BUILDER = "capture/build_part.py"
PARTS = ("capture/loaders/_scan/_events.c", "engines/processor/_processor.c")


class CompiledParts(BuildHookInterface):  # type: ignore[type-arg]
    """Puts compiled parts into wheels, and beside their sources where the checkout itself is installed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        builder = runpy.run_path(str(root / BUILDER))
        for source in PARTS:
            reason = builder["build"](root / source)
            if reason:
                self.app.display_warning(f"{source} is left out, all else works: {reason}")
                continue
            output = builder["derive_output_path"](root / source)
            build_data["artifacts"].append(output.relative_to(root).as_posix())
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{next(sys_tags()).platform}"
