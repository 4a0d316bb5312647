"""Pages are short, written in American spelling, and show the figures of the records."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted(DOCS.rglob("*.md")),
]
# Words of prose, without tables and code: a page, and the guides that need more.
MOST, MOST_OF_GUIDES, LONG = 900, 1400, ("confidence.md", "little_labeled_data.md", "parser.md", "your_data.md")
BRITISH = re.compile(
    r"behaviour|colour|favour|neighbour|honour|rigour|harbour"
    r"|(?<!_)(?:label|model|travel|cancel|signal|fuel|tunnel)l(?:ed|ing|ers?)\b"
    r"|(?:token|normal|optim|initial|organ|recogn|marginal|factor|regular|minim|maxim|summar|general|special|penal"
    r"|parametr|discret|linear|serial|vector|synchron|capital|visual|util|real|emphas|character|custom|final"
    r"|formal|local|memor|prior|random|standard|stabil|symbol|binar|categor|lexical)is(?:es?|ed|ers?|ing|ations?)\b"
    r"|\b(?:analys(?:e|ed|ing)|licences?|centred?|centres|grey|metres?|artefacts?|judgement|programmes?|catalogues?"
    r"|whilst|amongst|learnt|spelt|burnt|fulfil|defence|offence|ageing|per cent)\b",
    re.IGNORECASE,
)


def tables():
    spec = importlib.util.spec_from_file_location("site_tables", DOCS / "site" / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=lambda p: p.name)
def test_pages_are_short(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    n_words = sum(len(line.split()) for line in text.splitlines() if not line.startswith(("|", "<!--")))
    assert n_words <= (MOST_OF_GUIDES if page.name in LONG else MOST)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_pages_are_in_american_spelling(page):
    text = page.read_text(encoding="utf-8")
    assert BRITISH.findall(text) == []


def test_docstrings_and_messages_are_in_american_spelling():
    for path in sorted((ROOT / "src").rglob("*.py")):
        if path.parent.name != "bundled":  # words of the corpus
            text = path.read_text(encoding="utf-8").replace(".cancelled()", "")  # asyncio's spelling
            assert BRITISH.findall(text) == [], path


def test_british_spellings_are_found():
    text = "The colour of labelled, tokenised and normalised neighbours; modelling behaviour; a licence, 5 per cent."
    assert len(BRITISH.findall(text)) == 9
    assert not BRITISH.findall("labeled tokenized neighbors exercise otherwise precise finalist parallel license")


@pytest.mark.parametrize(
    "page", [p for p in PAGES if "<!-- table:" in p.read_text(encoding="utf-8")], ids=lambda p: p.name
)
def test_tables_show_their_records(page):
    text = page.read_text(encoding="utf-8")
    assert tables().render(text) == text, "run: make docs-tables"


def test_a_table_that_differs_from_its_record_is_found():
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    changed = re.sub(r"\*\*(\d)", r"**9\1", text, count=1)  # the first ratio
    assert changed != text
    assert tables().render(changed) == text


def test_records_name_command_machine_and_date():
    for path in sorted((DOCS / "records").glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        runs = [line for line in lines if "row" not in line]
        assert runs
        for run in runs:
            assert run["command"], run
            assert run["machine"], run
            assert re.fullmatch(r"2\d{3}-\d\d-\d\d", run["date"]), run
        if "experiment" in lines[0]:
            known = {run["experiment"] for run in runs}
            assert {line["experiment"] for line in lines} == known


def test_records_are_measured_not_copied_or_derived():
    for line in (DOCS / "records" / "benchmarks.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        assert re.fullmatch(r"2\d{3}-\d\d-\d\d", entry["date"]), entry
        assert not {"derived", "disturbed"} & set(entry["extra"]), entry
        if entry["peer_seconds"] is not None:
            assert entry["ratio"] == pytest.approx(entry["peer_seconds"] / entry["seconds"], rel=1e-3), entry


UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}
TIME = r"([\d.]+) (µs|ms|s)\b"


def shown_ratios(text: str) -> list[tuple[float, float, float]]:
    """Return the ratios that a page shows, with our time and the other one beside them."""
    found = []
    for row in re.findall(r"^\| .*$", text, re.MULTILINE):
        ours = re.search(rf"^\| [^|]* \| {TIME}", row)
        if ours:
            for ratio, size, unit in re.findall(rf"\*\*([\d.,]+)×\*\* {TIME}", row):
                theirs = float(size) * UNITS[unit]
                found.append((float(ratio.replace(",", "")), float(ours[1]) * UNITS[ours[2]], theirs))
        for a, unit_a, b, unit_b, ratio in re.findall(rf"{TIME} against {TIME}, ([\d.]+) times", row):
            found.append((float(ratio), float(a) * UNITS[unit_a], float(b) * UNITS[unit_b]))
    return found


def test_shown_ratios_equal_shown_times():
    shown = [ratio for page in PAGES for ratio in shown_ratios(page.read_text(encoding="utf-8"))]
    assert len(shown) > 60
    for ratio, ours, theirs in shown:
        assert theirs / ours == pytest.approx(ratio, rel=0.015), (ratio, ours, theirs)


def test_no_cell_of_a_table_is_a_traceback():
    for page in PAGES:
        for row in re.findall(r"^\| .*$", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert not re.search(r"Error: |\.cpp:|Traceback", row), row


@pytest.mark.programs
def test_pictures_are_those_of_the_report_code():
    spec = importlib.util.spec_from_file_location("site_pictures", DOCS / "site" / "pictures.py")
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    for name, draw in pictures.PICTURES.items():
        drawn, stored = draw(), (DOCS / "pictures" / name).read_text(encoding="utf-8")
        texts = [" ".join(re.findall(r"<text[^>]*>([^<]*)", svg)) for svg in (drawn, stored)]
        words = [re.sub(r"\d+", "#", text) for text in texts]
        assert words[0] == words[1], "run: make docs-pictures"
        percentages = [list(map(int, re.findall(r"\d+", text))) for text in texts]
        assert percentages[0] == pytest.approx(percentages[1], abs=2), "run: make docs-pictures"
        assert len(stored) < 10_000


def slug(heading: str) -> str:
    """Return the anchor that Python-Markdown gives a heading."""
    text = re.sub(r"[^\w\s-]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)).strip().lower()
    return re.sub(r"[-\s]+", "-", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_headings_have_targets(page):
    text = page.read_text(encoding="utf-8")
    for file, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", text):
        target = (page.parent / file if file else page).read_text(encoding="utf-8")
        headings = {slug(heading) for heading in re.findall(r"^#+ (.+)$", target, re.MULTILINE)}
        assert anchor in headings, f"{file}#{anchor}"


GUIDES = (
    "crf", "factorial_crf", "hmm", "mrf_tagger", "parser", "pcfg", "hmm_lm", "language_models", "mrf", "graph", "beams",
)  # fmt: skip
ORDER = ("What it is for", "Example", "Files", "Parameters", "Limits", "Cost", "Theory")


@pytest.mark.parametrize("name", GUIDES)
def test_guides_have_the_same_sections_in_the_same_order(name):
    headings = re.findall(r"^## (.+)$", (DOCS / f"{name}.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [heading for heading in headings if heading in ORDER] == list(ORDER)


def inline_commands() -> list[tuple[str, str]]:
    """Return the commands in running text and in blocks that are not executed, such as servers, and their pages."""
    found = set()
    for page in PAGES:
        if page.name != "CHANGELOG.md":
            text = page.read_text(encoding="utf-8")
            running = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
            found |= {(command, page.name) for command in re.findall(r"`(trelliswork [^`]+)`", running)}
            for block in re.findall(r"^```(?:sh|text)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
                joined = re.sub(r"\s*\\\n\s*", " ", block)  # a backslash continues a line
                commands = re.findall(r"^(?:.*-m )?(trelliswork [a-z][^#|\n]*)", joined, re.MULTILINE)
                found |= {(command.strip(), page.name) for command in commands}
    return sorted(found)


def test_commands_in_running_text_exist():
    """Names of commands and options are checked; blocks of commands are executed by other tests."""
    import typer

    from trelliswork.cli import app

    root = typer.main.get_command(app)
    for text, page in inline_commands():
        command = root
        for word in re.split(r"\s+", text)[1:]:
            if word.startswith("--"):
                known = {name for p in [*command.params, *root.params] for name in (*p.opts, *p.secondary_opts)}
                assert word.split("=")[0].rstrip(",.") in known | {"--help"}, f"{page}: {text}: {word}"
            elif hasattr(command, "get_command") and word.isupper():
                break  # a placeholder
            elif hasattr(command, "get_command") and re.fullmatch(r"[a-z][a-z-]+", word):
                chosen = command.get_command(None, word)
                assert chosen is not None, f"{page}: {text}: {word}"
                command = getattr(chosen, "inner", chosen)


def test_memory_is_shown_without_powers_of_ten():
    assert [tables().memory_size(m) for m in (1.26, 24.4, 999, 1290, 10_100)] == [
        "1.3 MB",
        "24 MB",
        "999 MB",
        "1.3 GB",
        "10.1 GB",
    ]


def test_figures_of_a_paper_with_other_data_have_columns_of_their_own():
    entries = [
        {"row": f"{data} tags, HMM: {measure}", "paper": paper, "ours": ours, "unit": "%"}
        for data, measure, paper, ours in (
            ("A", "all", 95.8, 92.7),
            ("A", "unseen", 65.4, 28.0),
            ("B", "all", 95.8, 86.3),
        )
    ]
    shown = tables().experiment(entries, split=r"^(\w) tags, ", digits="1", paper="paper")
    assert shown == [
        "|  | A, all | A, unseen | B, all | paper, all | paper, unseen |",
        "|---|---|---|---|---|---|",
        "| HMM | 92.7 | 28.0 | 86.3 | 95.8 | 65.4 |",
    ]
