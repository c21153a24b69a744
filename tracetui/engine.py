"""The bundled engine as `python -m tracetui.engine`, for launchers such as torchrun that take a module.

Runs the package `engines`, whatever the current folder contains; processes that it starts find it too.
"""

import os
import runpy

from tracetui import package_paths

if __name__ == "__main__":
    os.environ.update(package_paths.build_environment())
    package_paths.prefer_our_packages()
    runpy.run_module("engines", run_name="__main__", alter_sys=True)
