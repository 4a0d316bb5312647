"""Run the shell lines of the README exactly as they stand there, in this clone and an otherwise empty environment.

    python3 tests/house/stranger.py [--show]

The lines follow each other in one shell, as they do for a reader. ``--show`` only prints them. Needs only Python.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "CI")  # and what pip and certificates need on this machine
KEPT_PREFIXES = ("PIP_", "SSL_", "REQUESTS_", "HTTP", "http", "NO_PROXY", "no_proxy", "PYENV", "PYTEST_ADDOPTS")


def lines() -> list[str]:
    """Return the shell lines of the README, without prompts."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:console|sh|bash|shell)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.strip()]


def environment() -> dict[str, str]:
    """Return the variables that a new shell would have."""
    return {k: v for k, v in os.environ.items() if k in KEPT or k.startswith(KEPT_PREFIXES)}


def main() -> int:
    """Run the lines; stop at the first that fails."""
    if "--show" in sys.argv:
        print("\n".join(lines()))
        return 0
    script = "set -e\n" + "".join(f"echo; echo {shlex.quote('$ ' + line)}\n{line}\n" for line in lines())
    return subprocess.run(["bash", "-c", script], cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main())
