"""The command-line reference in Markdown, from the program itself."""

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args

INTRODUCTION = """# Commands

Every command and option, as the program itself tells them: `trelliswork COMMAND --help` (or `-h`) prints the same.
Options before the command's name: `--threads N`, `--debug` (tracebacks of errors), `--version`. `trelliswork
--install-completion` makes the shell complete names with the tab key.

- Exit codes: 0 done, 1 an error (one line on standard error), 2 wrong use, 130 Ctrl-C.
- Results go to standard output, progress and warnings to standard error; progress bars appear on terminals only.
  `NO_COLOR=1` is respected.
- `--json` gives figures as JSON: one object, or one a line.
- `-` is standard input; gzip is recognised; without a file the bundled corpus is used.
"""


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands below one, by their paths."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from walk(child, (*path, name))


def page() -> str:
    """The whole page."""
    import typer

    from trelliswork.cli import app

    parts = [INTRODUCTION]
    for path, command in walk(typer.main.get_command(app), ("trelliswork",)):
        if len(path) > 1:
            parts.append(section(path, command))
    return "\n".join(parts)


def section(path: tuple[str, ...], command: Any) -> str:
    """Heading, usage, text, example and tables of one command."""
    name = " ".join(path[1:])
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts]
    text, example = split(f"{command.help or ''}\n\n{command.epilog or ''}")
    lines = [f"{'#' * len(path)} {name}", "", text, ""]
    if hasattr(command, "commands"):
        return "\n".join(lines)
    usage = " ".join([*path, *(_metavar(p) for p in arguments), *(["[OPTIONS]"] if options else [])])
    lines += ["```text", usage, "```", ""]
    if example:
        lines += ["Example:", "", "```sh", example, "```", ""]
    if arguments or options:
        lines += ["| | | default |", "|---|---|---|"]
        lines += [f"| `{_metavar(p)}` | {_cell(p.help)} | {_default(p)} |" for p in arguments]
        lines += [f"| {_names(p)} | {_cell(p.help)} | {_default(p)} |" for p in options]
    return "\n".join([*lines, ""])


def split(text: str) -> tuple[str, str]:
    """The text without its example, and the example."""
    found = re.search(r"Example[^:]*: (.+)", text)
    example = found.group(1).strip() if found else ""
    rest = re.sub(r"Example[^:]*: .+", "", text)
    paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", rest) if p.strip()]
    return "\n\n".join(_cell(p) for p in paragraphs), example


def _metavar(parameter: Any) -> str:
    name = parameter.name.upper()
    return name if parameter.required else f"[{name}]"


def _names(parameter: Any) -> str:
    shown = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if getattr(parameter, "is_flag", False):
        return shown
    annotation = parameter.type_descriptor.annotation
    plain = next((a for a in get_args(annotation) if a is not type(None)), annotation)  # of X | None, list[X]
    plain = next(iter(get_args(plain)), plain)
    if isinstance(plain, type) and issubclass(plain, Enum):
        return f"{shown} {_cell(' '.join(str(choice.value) for choice in plain))}"
    return f"{shown} {({int: 'N', float: 'X'}).get(plain, 'TEXT')}"


def _default(parameter: Any) -> str:
    shown = parameter.show_default
    if isinstance(shown, str):
        return _cell(shown)
    value = parameter.default
    if value is None or value is False or value == () or callable(value) or "Sentinel" in type(value).__name__:
        return ""
    return f"`{getattr(value, 'value', value)}`"


def _cell(text: str | None) -> str:
    return re.sub(r"([|<>*_\[\]])", r"\\\1", " ".join((text or "").split()))


if __name__ == "__main__":
    print(page())
