"""`python -m semifl` and the command `semifl`: what is pressed while the verbs are still being imported counts, too."""

import sys


def main() -> None:
    try:
        from semifl.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
