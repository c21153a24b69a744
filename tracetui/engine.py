"""The bundled engine as `python -m tracetui.engine`, for launchers such as torchrun that take a module.

It is the package `engines`, found whatever the current folder holds; ranks that it starts find it too.
"""

import os
import runpy

from tracetui import rooms

if __name__ == "__main__":
    os.environ.update(rooms.environment())
    rooms.put_first()
    runpy.run_module("engines", run_name="__main__", alter_sys=True)
