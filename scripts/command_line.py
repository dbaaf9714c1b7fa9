"""Parse the command lines of the scripts, and explain a wrong option in one line."""

from __future__ import annotations

import argparse
import inspect
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import yaml
from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace
from lightning.pytorch.accelerators import AcceleratorRegistry

from datamodules.core.options import RENAMED
from datamodules.settings.arguments import did_you_mean
from names import (
    BASES,
    UsageError,
    allow_local_imports,
    argument_names,
    import_path,
    known_names,
    resolve,
    returned_class,
)

DEFAULTS = {"data": "datamodules.samples.digits", "model": "models.Classifier"}
TRAINER_FLAGS = tuple(inspect.signature(L.Trainer).parameters)


def new_parser(description: str, examples: str) -> ArgumentParser:
    """Make a parser with ``--config`` and ``--print_config`` whose errors are raised."""
    allow_local_imports()
    parser = ArgumentParser(
        description=description,
        epilog=examples,
        usage="%(prog)s [options]",
        formatter_class=_Help,
        exit_on_error=False,
        allow_abbrev=False,  # an abbreviation is reported as a misspelt option
    )
    parser.add_argument("--config", action="config", help="YAML file; options after it override it")
    return parser


class _Help(DefaultHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Show types and defaults of every option, and the examples as written."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=100)  # type: ignore[no-untyped-call]

    def _expand_help(self, action: argparse.Action) -> str:
        text = super()._expand_help(action)
        # --callbacks.help and the like list the dozens of subclasses
        text = re.sub(r", known subclasses: [^)]*", "", text)
        return re.sub(r"type: <class .*default: {'class_path': '(.*?)'}", r"default: \1", text)


def add_options(
    parser: argparse.ArgumentParser, title: str, options: Mapping[str, tuple[Any, Any, str]]
) -> None:
    """Add a group of options, and ``--traceback``.

    Args:
        parser: Changed in place.
        title: Of the group.
        options: Type, default and help by name; type None is a switch without a value.
    """
    group = parser.add_argument_group(title)
    for name, (kind, default, text) in options.items():
        if kind is None:
            group.add_argument(f"--{name}", action="store_true", help=text)
        else:
            group.add_argument(f"--{name}", type=kind, default=default, help=text)
    group.add_argument("--traceback", action="store_true", help="print the traceback of errors")


def add_objects(parser: ArgumentParser, kinds: Iterable[str] = tuple(DEFAULTS)) -> None:
    """Add ``--data`` and ``--model``, each a class or function by name, and their arguments."""
    for kind in kinds:
        parser.add_subclass_arguments(
            BASES[kind],
            kind,
            default={"class_path": DEFAULTS[kind]},
            metavar="NAME",
            help=f"{', '.join(known_names(kind))}, or the import path of your own; set its "
            f"arguments with --{kind}.ARGUMENT, list them with --{kind} NAME --help",
        )
        _set_title(parser, kind, kind.capitalize())


def _set_title(parser: ArgumentParser, group: str, title: str) -> None:
    """Replace a group's title, by default the first line of its class's docstring."""
    (parser.groups or {})[group].title = title


def add_trainer(parser: ArgumentParser, **defaults: Any) -> None:
    """Add every argument of ``lightning.Trainer`` as an option."""
    parser.add_class_arguments(L.Trainer, None, instantiate=False)
    _set_title(parser, "Trainer", "Trainer, as in Lightning")
    for action in parser._actions:
        # the docstring's markup: :paramref:`~lightning.pytorch.Trainer.logger` and ``True``
        text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", action.help or "")
        # Lightning's default, which may differ from the one that is shown behind it
        text = re.sub(r"\s*Default: [^ ]+\.$", "", text.replace("``", ""))
        action.help = text or action.help
    parser.set_defaults({"devices": 1, "enable_autolog_hparams": False, **defaults})


# --- parsing -------------------------------------------------------------------------------------


def parse(parser: ArgumentParser, arguments: Sequence[str], *, defaults: bool = True) -> Namespace:
    """Parse a command line; ``--data NAME --help`` shows the arguments of that class.

    Raises:
        UsageError: If an option or its value is wrong, in one line.
    """
    arguments = _spell_out(arguments)
    for kind in _class_options(parser):
        if named := named_path(kind, arguments):
            named = resolve(kind, named)
            if {"-h", "--help"} & {*arguments}:
                arguments = [f"--{kind}.help={named}"]
            # else values of the default class, such as digits' mode="L", would be kept
            parser.set_defaults({kind: {"class_path": named}})
    try:
        return parser.parse_args(list(arguments), defaults=defaults)
    except argparse.ArgumentError as error:
        raise UsageError(explain(parser, str(error), arguments)) from error


def _spell_out(arguments: Sequence[str]) -> list[str]:
    """Replace short names of classes by import paths."""
    full: list[str] = []
    for argument in arguments:
        option, equals, value = argument.partition("=")
        before = full[-1] if full else ""
        if equals and option in ("--data", "--model"):
            argument = f"{option}={resolve(option[2:], value)}"
        elif before in ("--data", "--model") and not argument.startswith("--"):
            argument = resolve(before[2:], argument)
        elif before == "--model.net" and "." in argument and argument[0] != "{":
            # the user's own network; a string would be a name of this project
            argument = json.dumps({"class_path": argument})
        full.append(argument)
    return full


def _class_options(parser: ArgumentParser) -> list[str]:
    """Return which of ``data`` and ``model`` take any class by name."""
    return [action.dest for action in parser._actions if action.metavar == "NAME"]


def named_path(kind: str, arguments: Sequence[str]) -> str:
    """Return the data or model named on a command line or in its YAML file, or ``""``."""
    values = {option: value for option, _, value in (a.partition("=") for a in arguments) if value}
    values |= dict(itertools.pairwise(arguments))
    if path := values.get(f"--{kind}"):
        return path
    named = read_settings(values.get("--config")).get(kind)
    return str(named.get("class_path") or "") if isinstance(named, dict) else str(named or "")


def read_settings(path: str | None) -> dict[str, Any]:
    """Return the content of a YAML file; ``{}`` if there is none, or it cannot be read."""
    if path is None or not Path(path).is_file():
        return {}
    try:
        settings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        return {}  # the parser reports it
    return settings if isinstance(settings, dict) else {}


# --- errors --------------------------------------------------------------------------------------


def explain(parser: ArgumentParser, message: str, arguments: Sequence[str]) -> str:
    """Rewrite the jsonargparse messages that a newcomer meets; return others in one line."""
    key = ".".join(re.findall(r'[Pp]arser key "([^"]+)"', message)).removeprefix("config")
    prefix = f"--{key}." if key else "--"
    unknown = r"unrecognized arguments: ([^\s=]+)|Option '(.+)' is not|Unexpected keys: {'([^']+)'"
    if found := re.search(unknown, message):
        option = next(filter(None, found.groups()))
        if not key and found[1] and not option.startswith("--"):
            return f"unexpected argument {option!r}; options start with --, see --help"
        return _unknown_option(parser, prefix + option.removeprefix("--"), arguments)
    if found := re.search(r"arguments are required: ([\w, .]+)", message):
        needed = " and ".join(prefix + name for name in found[1].split(", "))
        return f"{named_path(key, arguments) or key} needs {needed}"
    value = re.search(r"(?:Got value|Given value): (.*)", message)
    types = re.search(r"Subtypes: (\[.*\])|Expected an? (.*?)\. Got value", message)
    if value and types:
        names = re.sub(r"<class '([^']+)'>|\b[a-z]+\.", r"\1", types[1] or types[2])
        names = names.replace("NoneType", "null").replace("Literal", "one of ")
        return f"--{key}: expected {'one of ' * bool(types[1])}{names}, got {value[1]!r}"
    return " ".join(message.split())


def _unknown_option(parser: ArgumentParser, option: str, arguments: Sequence[str]) -> str:
    known = [o for o in parser._option_string_actions if re.fullmatch(r"--[\w.]+", o)]
    for kind in _class_options(parser):
        target = import_path(named_path(kind, arguments) or DEFAULTS[kind])
        names = [f"--{kind}.{name}" for name in argument_names(target)]
        if option in names:  # only the class that the function returns has it
            return (
                f"{target.__name__} does not take {option}; name the class as well: "
                f"--{kind} {returned_class(target).__name__} {option} ..."
            )
        renamed = RENAMED.get(option.removeprefix(f"--{kind}."), "")
        if renamed.partition(".")[0] in argument_names(target):
            return f"unknown option {option}; pass --{kind}.{renamed}"
        known += names
    name = option.removeprefix("--").rpartition(".")[2]
    same_argument = [o for o in known if o.endswith(f".{name}")]  # --lr: --model.lr
    hint = did_you_mean(option, same_argument or known, cutoff=0.5)
    return f"unknown option {option}; {hint}see --help"


# --- objects -------------------------------------------------------------------------------------


def instantiate(parser: ArgumentParser, config: Namespace) -> Any:
    """Make the objects that a command line names.

    Raises:
        UsageError: If a class refuses the value of an argument.
    """
    try:
        return parser.instantiate(config)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error


def make_trainer(flags: dict[str, Any]) -> L.Trainer:
    """Make a Trainer.

    Raises:
        UsageError: If Lightning refuses a flag, or the machine has no such accelerator.
    """
    try:
        return L.Trainer(**flags)
    except Exception as error:  # Lightning refuses flags with half a dozen types
        available = [
            name
            for name in AcceleratorRegistry.available_accelerators()
            if AcceleratorRegistry[name]["accelerator"].is_available()
        ]
        known = ["auto", *available, *(["gpu"] if {"cuda", "mps"} & set(available) else [])]
        accelerator = flags.get("accelerator")
        if isinstance(accelerator, str) and accelerator not in known:
            raise UsageError(
                f"--accelerator {accelerator} is not available; this machine has "
                f"{', '.join(sorted(available))}"
            ) from error
        raise UsageError(f"the Trainer refused its arguments: {error}") from error


def trainer_flags(objects: Any, **overrides: Any) -> dict[str, Any]:
    """Return the Trainer's arguments of a parsed command line, with some replaced."""
    return {**{name: objects[name] for name in TRAINER_FLAGS if name in objects}, **overrides}


def as_list(value: Any) -> list[Any]:
    """Convert None, one object or several to a list."""
    if value is None or isinstance(value, bool):
        return []
    return list(value) if isinstance(value, Iterable) else [value]
