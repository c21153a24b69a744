"""The hook of the build: compiles the scanner of trace events where a C compiler is, else leaves it out."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

BUILDER = "capture/loaders/chrome/scan/build.py"


class CompiledScanner(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the scanner into wheels, and beside its source where the checkout itself is installed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        builder = runpy.run_path(str(Path(self.root) / BUILDER))
        reason = builder["build"]()
        if reason:
            self.app.display_warning(f"the compiled scanner is left out, all else works: {reason}")
            return
        build_data["artifacts"].append(builder["BUILT"].relative_to(self.root).as_posix())
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{next(sys_tags()).platform}"
