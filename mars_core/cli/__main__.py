"""`python -m mars_core.cli`, where the `mars` script is not installed."""

import sys

from mars_core.cli import main

sys.exit(main())
