"""Draw the pictures of the README from the report code: ``make docs-pictures`` writes ``docs/pictures``.

A picture is the SVG of a report with its style inside, for light and dark pages.
"""

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
STYLE = """
svg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
.wordtext { fill: #1f2933; font-size: 14px; }
.small { fill: #5c6770; font-size: 11.5px; }
.arc { fill: none; stroke: #1d6b8f; stroke-width: 1.6; }
.arrow { fill: #1d6b8f; }
@media (prefers-color-scheme: dark) {
  .wordtext { fill: #e6e8ea; } .small { fill: #9aa5ae; } .arc { stroke: #6cb6d9; } .arrow { fill: #6cb6d9; }
}
"""


def parse() -> str:
    """Return an ambiguous sentence: its best tree with the probabilities of the arcs."""
    from trelliswork import DependencyParser, bundled
    from trelliswork.report import dependency_tree

    train = bundled.load("train")[:600]
    X, y = (
        [list(zip(s.words, s.tags, strict=True)) for s in train],
        [list(zip(s.heads, s.relations, strict=True)) for s in train],
    )
    parser = DependencyParser(1, hash_bits=18, batch_size=8).fit(X, y)
    words, tags = ["They", "saw", "the", "dog", "in", "the", "park"], ["PRP", "VBD", "DT", "NN", "IN", "DT", "NN"]
    arcs = parser.parse([list(zip(words, tags, strict=True))])[0]
    heads, labels, probabilities = (list(column) for column in zip(*arcs, strict=True))
    return styled(str(dependency_tree(words, heads, labels, probabilities)))


def styled(html: str) -> str:
    """Return the SVG of a piece of a report, with its style."""
    found = re.search(r"<svg.*?</svg>", html, re.DOTALL)
    assert found
    start, _, rest = found[0].partition(">")
    return f"{start}><style>{STYLE}</style>{rest}\n"


PICTURES = {"parse.svg": parse}


def main() -> int:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
        print(FOLDER / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
