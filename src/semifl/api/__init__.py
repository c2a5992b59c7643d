"""The Python interface: `semifl.FederatedData`, `semifl.train`, `semifl.load`; docs/python.md shows it at work."""

import os

# As the command line does, for programs that import this before torch (docs/decisions/0005).
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
