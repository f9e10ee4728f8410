"""python -m perfpass.evidence.build [FILE]: the shipped table of evidence, from data/records and data/graphs."""

from __future__ import annotations

import sys

from perfpass.evidence.build.write import build
from perfpass.evidence.table import path

if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit("usage: python -m perfpass.evidence.build [FILE]")
    build(sys.argv[1] if len(sys.argv) == 2 else path())
