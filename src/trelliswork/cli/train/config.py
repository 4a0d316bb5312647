"""Which options of ``train`` are shown by ``--help``, and files of options: ``--config`` and ``--save-config``."""

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from trelliswork import __version__
from trelliswork.errors import DataError

MOST = 15  # options in a --help
ALWAYS = "bundled dev out force page config help_all"
FIRST = (  # the others by importance; a name means the same in all commands
    "counts format columns label layers features n_states order unlabeled tags window context_size n_nonterminals "
    "n_preterminals rank tagger n_restarts l2 max_iter algorithm engine min_count max_words clusters projective "
    "learning_rate patience seed"
)
NOT_SAVED = ("force", "quiet", "json")


def shown_options(names: Sequence[str]) -> frozenset[str]:
    """Return the names of the options that ``--help`` shows, of those of a command."""
    chosen = [name for name in f"{ALWAYS} {FIRST}".split() if name in names]
    return frozenset(chosen[:MOST])


def _keys(command: Any) -> dict[str, Any]:
    """Return the parameters of a command by their keys in a file: ``files``, and options without dashes."""
    keys = {}
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            keys["files"] = parameter
        elif parameter.name not in ("config", "save_config", "help_all"):
            longest = max(parameter.opts, key=len)
            keys[longest.lstrip("-").replace("-", "_")] = parameter
    return keys


def read_config(context: typer.Context, file: str | None) -> str | None:
    """Use the options of a file as those that the user has not given."""
    if file is None or context.resilient_parsing:
        return file
    try:
        plain = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: expected options in TOML, such as l2 = 0.1: {error}.") from None
    name = f"train {context.command.name}"
    if plain.pop("command", name) != name:
        raise DataError(f"{file}: the options are not those of {name}: see the entry 'command'.")
    keys, values = _keys(context.command), dict[str, Any]()
    for given, value in plain.items():
        key = given.replace("-", "_")
        if key not in keys:
            near = difflib.get_close_matches(key, keys, 1)
            hint = f" Did you mean {near[0]}?" if near else f" trelliswork {name} --help-all lists all."
            raise DataError(f"{file}: {name} has no option {given}.{hint}")
        values[keys[key].name] = _checked(keys[key], value, f"{file}: {given}", context)
    context.default_map = {**(context.default_map or {}), **values}
    return file


def _checked(parameter: Any, value: Any, where: str, context: typer.Context) -> Any:
    """Return a value as the command line would give it; raise an error unless it fits the option."""
    if parameter.param_type_name == "argument" or parameter.multiple:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise DataError(f"{where} must be a list of names, got {value!r}.")
        return value
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise DataError(f"{where} must be true or false, got {value!r}.")
        return value
    if isinstance(value, bool | list | Mapping) or value != value:
        raise DataError(f"{where} must be {_expected(parameter)}, got {json.dumps(value, default=str)}.")
    try:
        parameter.type_cast_value(context, str(value))
    except typer.BadParameter as error:
        raise DataError(f"{where} must be {_expected(parameter)}, got {value!r}: {error.message}") from None
    return str(value)


def _expected(parameter: Any) -> str:
    kind = parameter.type
    if choices := getattr(kind, "choices", None):
        return "one of " + ", ".join(str(getattr(choice, "value", choice)) for choice in choices)
    name = str(kind.name)
    return "a number" if name.startswith("float") else "a whole number" if name.startswith("int") else "a text"


def write_config(file: str, command: Any, given: Mapping[str, Any]) -> None:
    """Write the given options of a run to a file that `read_config` reads."""
    from trelliswork.data.files import atomic_write

    lines = [f"# trelliswork {__version__}", f"command = {json.dumps(f'train {command.name}')}"]
    for key, parameter in _keys(command).items():
        if parameter.name in given and parameter.name not in NOT_SAVED:
            value = given[parameter.name]
            lines.append(f"{key} = {json.dumps(getattr(value, 'value', value), ensure_ascii=False)}")
    with atomic_write(file) as out:
        out.writelines(f"{line}\n" for line in lines)
