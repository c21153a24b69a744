"""`python -m tracetui`."""

import sys

from tracetui.cli import main

sys.exit(main())
