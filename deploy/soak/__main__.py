"""`python deploy/soak`: run as a folder, it is not a package yet."""

import sys
from importlib import import_module
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

sys.exit(import_module("soak.cli").main())
