"""How much to test; PENSTOCK_LAW_EXAMPLES scales it and PENSTOCK_LAW_SEED repeats a run."""

import os
import secrets

# Examples for each fixed program; the number of random programs follows from it.
EXAMPLES = int(os.environ.get("PENSTOCK_LAW_EXAMPLES", "40"))
# A new seed each run finds more over time than a fixed one; a failure prints it. The workers of one run share it.
# Where CI is set the seed is fixed: there a red run should speak of the change, not of the draw.
DRAWN = "ci" if os.environ.get("CI") else os.environ.get("PYTEST_XDIST_TESTRUNUID", secrets.token_hex(4))[:8]
SEED = os.environ.get("PENSTOCK_LAW_SEED") or DRAWN
