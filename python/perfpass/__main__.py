"""`python -m perfpass`."""

import sys

from perfpass.cli import command

sys.exit(command())
