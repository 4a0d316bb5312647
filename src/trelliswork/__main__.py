"""``python -m trelliswork``: the command line."""

from trelliswork.cli import main

if __name__ == "__main__":
    main()
