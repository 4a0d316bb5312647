"""Draw the pictures of the README and of pages with the report code: ``make docs-pictures`` writes ``docs/pictures``.

A picture is the SVG of a report with its style inside, for light and dark pages.
"""

import json
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
.axis { stroke: #5c6770; fill: none; opacity: 0.6; }
.grid { stroke: #8884; }
.tick, .name { fill: #5c6770; font-size: 12px; }
.curve { fill: none; stroke: #1d6b8f; stroke-width: 2; }
.c1 { stroke: #1f2933; stroke-dasharray: 6 4; }
.c2 { stroke: #b8472d; stroke-dasharray: 2 4; }
.c3 { stroke: #5c6770; stroke-dasharray: 10 4 2 4; }
.dot { fill: #1d6b8f; } .d1 { fill: #1f2933; } .d2 { fill: #b8472d; } .d3 { fill: #5c6770; }
@media (prefers-color-scheme: dark) {
  .wordtext { fill: #e6e8ea; } .small { fill: #9aa5ae; } .arc { stroke: #6cb6d9; } .arrow { fill: #6cb6d9; }
  .axis { stroke: #9aa5ae; } .tick, .name { fill: #9aa5ae; }
  .curve { stroke: #6cb6d9; } .c1 { stroke: #e6e8ea; } .c2 { stroke: #e58a70; } .c3 { stroke: #9aa5ae; }
  .dot { fill: #6cb6d9; } .d1 { fill: #e6e8ea; } .d2 { fill: #e58a70; } .d3 { fill: #9aa5ae; }
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
    (tree,) = parser.answer([list(zip(words, tags, strict=True))])
    heads, labels = (list(column) for column in zip(*tree.value, strict=True))
    return styled(str(dependency_tree(words, heads, labels, tree.probabilities)))


def curves() -> str:
    """Return the accuracy on unseen words by the number of labeled sentences, from the record of the experiment."""
    from trelliswork.report import line_chart

    lines: dict[str, tuple[list[float], list[float]]] = {}
    for text in (FOLDER.parent / "records" / "reproduction.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(text)
        found = re.fullmatch(r"(\d+) sentences, (.*): unseen words", entry.get("row", ""))
        if entry["experiment"] == "representations" and found:
            xs, ys = lines.setdefault(found[2], ([], []))
            xs.append(float(found[1]))
            ys.append(entry["ours"])
    drawn = [(name, xs, ys) for name, (xs, ys) in lines.items()]
    chart = styled(str(line_chart(drawn, x="labeled sentences", y="correct unseen words, %")))
    legend = [
        f'<path d="M290 {140 + 17 * k}h26" class="curve c{k}"/>'
        f'<text x="322" y="{144 + 17 * k}" class="name">{name}</text>'
        for k, name in enumerate(lines)
    ]
    return chart.replace("</svg>", "".join(legend) + "</svg>")


def styled(html: str) -> str:
    """Return the SVG of a piece of a report, with its style."""
    found = re.search(r"<svg.*?</svg>", html, re.DOTALL)
    assert found
    start, _, rest = found[0].partition(">")
    return f"{start}><style>{STYLE}</style>{rest}\n"


PICTURES = {"parse.svg": parse, "curves.svg": curves}


def main() -> int:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
        print(FOLDER / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
