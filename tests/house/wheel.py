"""Install a wheel in an empty environment, without the constraints of development, and run the README's first example.

    python tests/house/wheel.py dist

tries the newest wheel in a folder with every Python of this machine that it supports, and says what each did.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def example() -> tuple[str, str]:
    """Return the code and the output of the README's first example."""
    blocks = re.findall(r"^```(python|text)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    (kind, code), (_, output) = blocks[:2]
    assert kind == "python"
    return code, output


def interpreters() -> dict[str, str]:
    """Return the Pythons on this machine that start and have the version they are named after."""
    found = {}
    for version in VERSIONS:
        for path in filter(None, (shutil.which(f"python{version}"), *map(str, _pyenv(version)))):
            asked = subprocess.run(
                [path, "-c", "import sys; print(*sys.version_info[:2], sep='.')"], capture_output=True
            )
            if asked.stdout.decode().strip() == version:
                found[version] = path
                break
    return found


def _pyenv(version: str) -> list[Path]:
    return sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))


def try_wheel(wheel: Path, python: str, folder: Path) -> str:
    """Install the wheel and use it from Python and from the command line; return how much was installed."""
    subprocess.run([python, "-m", "venv", folder / "env"], check=True)
    binaries = folder / "env" / "bin"
    subprocess.run([binaries / "python", "-m", "pip", "install", "-qq", wheel], check=True)
    environment = {"TRELLISWORK_CACHE_DIR": str(folder / "cache"), "PATH": str(binaries), "HOME": str(folder)}

    def run(*command: str, given: str | None = None, fails: bool = False) -> str:
        done = subprocess.run(
            [binaries / command[0], *command[1:]],
            cwd=folder,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
        )
        assert bool(done.returncode) == fails, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout

    code, output = example()
    assert run("python", "-c", code) == output
    options = ("--columns", "0", "--label", "1", "--max-iter", "3", "--out", "tagger")
    run("trelliswork", "train", "crf", "--bundled", *options)
    assert run("trelliswork", "tag", "tagger", "--format", "text", given="They saw her duck .\n").count("\t") == 5
    message = run("python", "-c", "import trelliswork; trelliswork.LinearChain", fails=True)
    assert "pip install 'trelliswork[torch]'" in message, message
    assert "pip install 'trelliswork[torch]'" in run("trelliswork", "train", "hmm-lm", "--bundled", fails=True)
    megabytes = sum(f.stat().st_size for f in (folder / "env").rglob("*") if f.is_file()) / 1e6
    return f"{megabytes:.0f} MB installed"


def main() -> int:
    """Try the newest wheel in the folder that is named on the command line; return the number of failures."""
    failures = 0
    wheel = max(Path(sys.argv[1]).resolve().glob("trelliswork-*.whl"), key=lambda path: path.stat().st_mtime)
    for version, python in interpreters().items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(f"Python {version}: {try_wheel(wheel, python, Path(folder))}", flush=True)
            except (AssertionError, subprocess.CalledProcessError) as error:
                print(f"Python {version}: failed: {error}", flush=True)
                failures += 1
    return failures


if __name__ == "__main__":
    sys.exit(main())
