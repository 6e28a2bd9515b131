"""Entry point of `python -m paddock`."""

import sys

from paddock.cli.main import run

sys.exit(run())
