"""`python -m semifl` is the command `semifl`."""

from semifl.cli import main

main()
