"""The command ``trelliswork`` and ``python -m trelliswork``: the command line, which Ctrl-C ends at any time."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is imported ends it without a traceback, too."""
    try:
        from trelliswork.cli import main as run

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
