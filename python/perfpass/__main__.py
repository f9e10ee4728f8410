"""`python -m perfpass`."""

import sys

from perfpass.cli import main

sys.exit(main())
