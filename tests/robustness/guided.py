"""Fuzzing guided by coverage: ``python -m tests.robustness.guided FORMAT -runs=100000``, where atheris is installed.

libFuzzer mutates those inputs further that reach new lines of the readers. Its own options follow the format.
"""

import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import atheris

SOURCE = Path(__file__).resolve().parents[2] / "src"
# Modules whose bytecode Numba reads: it must stay as it is.
COMPILED = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if {"kernels", "compute"} & set(path.parts)
]

with atheris.instrument_imports(include=["trelliswork"], exclude=COMPILED):
    from tests.robustness.fuzz import ALLOWED, FORMATS, MEMORY, QUICK_DISK, SECONDS
    from tests.robustness.mutation import INTERESTING


def main(name: str, arguments: list[str]) -> None:
    """Run libFuzzer on a format, in this process, which it ends."""
    form = FORMATS[name]
    folder = Path(tempfile.mkdtemp(prefix="trelliswork-fuzz-", dir=QUICK_DISK))
    (corpus := folder / "corpus").mkdir()
    for k, seed in enumerate(form.seeds()):
        (corpus / str(k)).write_bytes(seed)
    path, words = folder / "input", folder / "words"
    known = (*form.words, *INTERESTING)
    words.write_text("".join('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in known))

    def one_input(data: bytes) -> None:
        path.write_bytes(data)
        with suppress(*ALLOWED):
            form.read(path)

    limits = [f"-timeout={SECONDS}", f"-rss_limit_mb={MEMORY >> 20}", "-max_len=4096", f"-dict={words}"]
    atheris.Setup([sys.argv[0], str(corpus), *limits, *arguments], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
