"""Generate the command-line reference in Markdown from the program."""

import re
from collections.abc import Iterator
from typing import Any

INTRODUCTION = """# Commands

All commands and options; `trelliswork COMMAND --help` (or `-h`) prints the same text. Options before the name of the
command: `--threads N` (also after it), `--debug` (tracebacks of errors), `--version`.
`trelliswork --install-completion` installs completion for the shell.

- Exit codes: 0 success, 1 error (one line on standard error), 2 wrong usage, 130 Ctrl-C.
- Results are written to standard output, progress and warnings to standard error; progress bars appear on terminals
  only. `NO_COLOR=1` is respected.
- `--json` prints results as JSON: one object, or one object per line.
- `-` is standard input; gzip is recognized; `--bundled` reads the bundled corpus, whose parts are
  `bundled:train`, `bundled:dev` and `bundled:test` where a file is expected.
- `--out` of commands that save a model is never replaced without `--force`.
- `train NAME --help` prints the most important options, `--help-all` all of them. `--save-config run.toml` writes the
  options of a run to a file, and `--config run.toml` reads them.
"""


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a command and all commands below it, with their paths."""
    command = getattr(command, "inner", command)  # a train command is completed from its estimator when needed
    yield path, command
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        child = command.get_command(None, name)
        if not child.hidden:
            yield from walk(child, (*path, name))


def page() -> str:
    """Return the page."""
    import typer

    from trelliswork.cli import app

    parts = [INTRODUCTION]
    for path, command in walk(typer.main.get_command(app), ("trelliswork",)):
        if len(path) > 1:
            parts.append(section(path, command))
    return "\n".join(parts)


def section(path: tuple[str, ...], command: Any) -> str:
    """Return heading, usage, text, example and table of one command."""
    name = " ".join(path[1:])
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts and not p.hidden]
    options = [p for p in options if p.name != "threads" or p.expose_value]  # of all commands: in the introduction
    text, example = split(f"{command.help or ''}\n\n{command.epilog or ''}")
    lines = [f"{'#' * len(path)} {name}", "", text, ""]
    if hasattr(command, "list_commands"):
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
    """Return the text without its example, and the example."""
    match = re.search(r"Example[^:]*: (.+)", text)
    example = match.group(1).strip() if match else ""
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
    if choices := getattr(parameter.type, "choices", None):
        return f"{shown} {_cell(' '.join(str(getattr(choice, 'value', choice)) for choice in choices))}"
    name = parameter.type.name
    return f"{shown} {'N' if name.startswith('int') else 'X' if name.startswith('float') else 'TEXT'}"


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
