"""The command line of the scripts: one parser, and the option that a typo meant."""

from __future__ import annotations

import argparse
import inspect
import itertools
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import yaml
from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace
from lightning.pytorch.accelerators import AcceleratorRegistry

from datamodules.core.options import RENAMED
from names import (
    BASES,
    UsageError,
    argument_names,
    closest,
    import_path,
    known_names,
    made_by,
    passed_on,
    resolve,
)

DEFAULTS = {"data": "datamodules.samples.digits", "model": "models.Classifier"}
TRAINER_FLAGS = tuple(inspect.signature(L.Trainer).parameters)


def spell_out(arguments: Sequence[str], defaults: Mapping[str, str] | None = None) -> list[str]:
    """Rewrite what jsonargparse does not know: bare names, and options that a function hands on.

    Modules in the working directory can be imported from now on.

    Args:
        arguments: Without the program's name.
        defaults: What ``data`` and ``model`` are where neither arguments nor a YAML file say.

    Raises:
        UsageError: If a name is unknown.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    spelt: list[str] = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        before = spelt[-1] if spelt else ""
        if equals and flag in ("--data", "--model"):
            argument = f"{flag}={resolve(flag[2:], value)}"
        elif before in ("--data", "--model") and not argument.startswith("--"):
            argument = resolve(before[2:], argument)
        elif before == "--model.net" and "." in argument and argument[0] != "{":
            # a network of the user's by import path; a string would be a name of ours
            argument = json.dumps({"class_path": argument})
        spelt.append(argument)
    for kind, default in (defaults or {}).items():
        if any(argument.startswith(f"--{kind}.") for argument in spelt):
            target = _import_quietly(named_path(kind, spelt) or default)
            handed_on = passed_on(target) if inspect.isfunction(target) else []
            spelt = [_below_dict_kwargs(kind, argument, handed_on) for argument in spelt]
    return spelt


def _below_dict_kwargs(kind: str, argument: str, handed_on: Sequence[str]) -> str:
    found = re.match(rf"--{kind}\.(\w+)(\.\w+)?", argument)
    if found is None or found[1] not in handed_on:
        return argument
    if found[2]:
        raise UsageError(
            f"{found[0]}: give it as a whole, such as --{kind}.{found[1]} "
            f"'{{\"{found[2][1:]}\": ...}}'"
        )
    return f"--{kind}.dict_kwargs.{argument.removeprefix(f'--{kind}.')}"


def named_path(kind: str, arguments: Sequence[str]) -> str:
    """What a command line, or else its YAML file, names as data or model; empty if nothing."""
    given = {flag: value for flag, _, value in (a.partition("=") for a in arguments) if value}
    given |= dict(itertools.pairwise(arguments))
    if path := given.get(f"--{kind}"):
        return path
    named = read_settings(given.get("--config")).get(kind)
    return str(named.get("class_path") or "") if isinstance(named, dict) else str(named or "")


def read_settings(path: str | None) -> dict[str, Any]:
    """Content of a YAML file; nothing where there is none, or none that can be read."""
    if path is None or not Path(path).is_file():
        return {}
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        return {}  # the parser says so
    return found if isinstance(found, dict) else {}


def _import_quietly(path: str) -> Any:
    try:
        return import_path(path)
    except Exception:  # a wrong name is said elsewhere
        return None


# --- parsing -------------------------------------------------------------------------------------


def new_parser(description: str, examples: str) -> ArgumentParser:
    """A parser whose errors are raised, with ``--config`` and ``--print_config``."""
    parser = ArgumentParser(
        description=description,
        epilog=examples,
        usage="%(prog)s [options]",
        formatter_class=_Help,
        exit_on_error=False,
        allow_abbrev=False,  # an abbreviation is a typo: say which option was meant
    )
    parser.add_argument("--config", action="config", help="YAML file; flags after it win")
    return parser


class _Help(DefaultHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Types and defaults beside every option, examples as they were written."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=100)  # type: ignore[no-untyped-call]

    def _expand_help(self, action: argparse.Action) -> str:
        said = super()._expand_help(action)
        # classes by the dozen are what --callbacks.help and the like are for
        said = re.sub(r", known subclasses: [^)]*", "", said)
        return re.sub(r"type: <class .*default: {'class_path': '(.*?)'}", r"default: \1", said)


def add_objects(parser: ArgumentParser) -> None:
    """Add ``--data`` and ``--model``: a class or function by name, and its arguments below it."""
    for kind, default in DEFAULTS.items():
        known = ", ".join(known_names(kind))
        parser.add_subclass_arguments(
            BASES[kind],
            kind,
            default={"class_path": default},
            metavar="NAME",
            help=f"{known}, or the import path of your own; its arguments are --{kind}.ARGUMENT",
        )
        _entitle(parser, kind, kind.capitalize())


def _entitle(parser: ArgumentParser, group: str, title: str) -> None:
    """A group's own title in place of the first line of its class's docstring."""
    (parser.groups or {})[group].title = title


def add_trainer(parser: ArgumentParser, **defaults: Any) -> None:
    """Add every argument of ``lightning.Trainer`` as a flat option."""
    parser.add_class_arguments(L.Trainer, None, instantiate=False)
    _entitle(parser, "Trainer", "Trainer, as in Lightning")
    for action in parser._actions:
        # the docstring's markup: :paramref:`~lightning.pytorch.Trainer.logger` and ``True``
        said = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", action.help or "")
        # its defaults, of which some differ here; the real ones stand behind
        said = re.sub(r"\s*Default: [^ ]+\.$", "", said.replace("``", ""))
        action.help = said or action.help
    parser.set_defaults({"devices": 1, "enable_autolog_hparams": False, **defaults})


def parse(parser: ArgumentParser, arguments: Sequence[str], *, defaults: bool = True) -> Namespace:
    """Parse, and say in one line what is wrong.

    Raises:
        UsageError: If an option or its value is wrong.
    """
    for kind in DEFAULTS:
        named = named_path(kind, arguments)
        if named and _takes_any_class(parser, kind):
            # else what the default class leaves behind, such as digits' mode="L" and image_size=8,
            # holds for the class that is named in its place
            parser.set_defaults({kind: {"class_path": named}})
    try:
        return parser.parse_args(list(arguments), defaults=defaults)
    except argparse.ArgumentError as error:
        raise UsageError(explain(parser, str(error), arguments)) from error


def _takes_any_class(parser: ArgumentParser, kind: str) -> bool:
    found = [action.default for action in parser._actions if action.dest == kind]
    return any(
        isinstance(default, dict | Namespace) and "class_path" in default for default in found
    )


def explain(parser: ArgumentParser, message: str, arguments: Sequence[str]) -> str:
    """One line for jsonargparse's several, with the option that was probably meant."""
    keys = ".".join(re.findall(r'[Pp]arser key "([^"]+)"', message))
    if unknown := re.search(r"unrecognized arguments: (\S+)", message):
        return _unknown_option(parser, unknown[1].partition("=")[0], arguments)
    if unknown := re.search(r"[Oo]ption '([^']+)' is not accepted", message):
        key = unknown[1] if keys in ("", "config") else f"{keys}.{unknown[1]}"
        return _unknown_option(parser, f"--{key}", arguments, message)
    if keys in BASES and (wrong := re.search(r"dot import path string: (\S+)", message)):
        try:
            resolve(keys, wrong[1])
        except UsageError as error:
            return str(error)
    if required := re.search(r"arguments are required: ([\w, .]+)", message):
        needed = [f"--{keys}.{name}" for name in required[1].split(", ")]
        return f"{named_path(keys, arguments) or keys} needs {' and '.join(needed)}"
    given = re.search(r"(?:Got value|Given value): (.*)", message)
    wanted = re.search(r"Subtypes: \[(.*)\]|Expected an? (.*?)\. Got value", message)
    if keys and given and wanted:
        return f"--{keys}: expected {_in_words(wanted[1] or wanted[2])}, got {given[1]!r}"
    return re.sub(r'[Pp]arser key "([^"]+)":', r"--\1:", " ".join(message.split()))


def _in_words(types: str) -> str:
    """``int or null`` for ``<class 'int'>, <class 'NoneType'>``.

    Example:
        >>> _in_words("typing.Literal[64, '64-true'], dict[str, int], <class 'NoneType'>")
        "64, '64-true', dict[str, int] or null"
    """
    types = re.sub(r"<class '([^']+)'>", r"\1", types).replace("NoneType", "null")
    types = re.sub(r"\b(typing|collections\.abc)\.", "", types)
    types = re.sub(r"Literal\[([^\]]*)\]", r"\1", types)
    *most, last = re.split(r", (?![^\[]*\])", types)
    return f"{', '.join(most)} or {last}" if most else last


def _unknown_option(
    parser: ArgumentParser, option: str, arguments: Sequence[str], message: str = ""
) -> str:
    if not option.startswith("--"):
        return f"unexpected argument {option!r}; options start with --, see --help"
    option = option.replace(".init_args.", ".")
    below, targets = {}, {}
    for kind in BASES:
        found = (re.fullmatch(rf"--{kind}\.(\w+)", o) for o in parser._option_string_actions)
        below[kind] = [o[1] for o in found if o and o[1] != "help"]
        if not below[kind] and (target := _target(parser, kind, arguments, message)) is not None:
            below[kind], targets[kind] = argument_names(target), target
    kind, _, name = option[2:].partition(".")
    if name and kind in below:
        if name in below[kind] and inspect.isfunction(targets.get(kind)):
            made = made_by(targets[kind]).__name__
            if name in passed_on(targets[kind]):
                return f"{option} is handed on: in a YAML file it stands below {kind}: dict_kwargs:"
            return (
                f"{targets[kind].__name__} takes no {option}; name the class as well, such as "
                f"--{kind} {made} {option} ..."
            )
        if name in RENAMED and RENAMED[name].partition(".")[0] in below[kind]:
            return f"unknown option {option}; pass --{kind}.{RENAMED[name]}"
        if near := closest(name, below[kind]):
            return f"unknown option {option}; did you mean --{kind}.{near}?"
        return f"unknown option {option}; known below --{kind}: {', '.join(below[kind])}"
    known = [o[2:] for o in parser._option_string_actions if re.fullmatch(r"--\w+", o)]
    known += [f"{kind}.{name}" for kind, names in below.items() for name in names]
    near = closest(option[2:], known)
    return f"unknown option {option}; " + (f"did you mean --{near}?" if near else "see --help")


def _target(parser: ArgumentParser, kind: str, arguments: Sequence[str], message: str) -> Any:
    """The class or function that a command line names for data or model, or None."""
    said = re.search(rf'"{kind}".*?class_path \'([^\']+)\'', message, re.DOTALL)
    default: Any = parser.get_default(kind)
    path = said[1] if said else named_path(kind, arguments)
    return _import_quietly(path or (default["class_path"] if default else ""))


# --- objects -------------------------------------------------------------------------------------


def instantiate(parser: ArgumentParser, config: Namespace) -> Any:
    """Make the objects of a command line.

    Raises:
        UsageError: If an argument has a value that its class refuses.
    """
    try:
        return parser.instantiate(config)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error


def make_trainer(flags: dict[str, Any]) -> L.Trainer:
    """A Trainer of flags and callbacks.

    Raises:
        UsageError: If the flags ask for what this machine or Lightning has not.
    """
    try:
        return L.Trainer(**flags)
    except Exception as error:  # Lightning refuses flags with half a dozen types
        here = [
            name
            for name in AcceleratorRegistry.available_accelerators()
            if AcceleratorRegistry[name]["accelerator"].is_available()
        ]
        known = ["auto", *here, *(["gpu"] if {"cuda", "mps"} & set(here) else [])]
        asked = flags.get("accelerator")
        if isinstance(asked, str) and asked not in known:
            raise UsageError(
                f"--accelerator {asked}: there is none here; this machine has "
                f"{', '.join(sorted(here))}"
            ) from error
        raise UsageError(f"the Trainer refused its flags: {error}") from error


def trainer_flags(objects: Any, **given: Any) -> dict[str, Any]:
    """The Trainer's arguments out of a parsed command line; ``given`` win."""
    return {**{name: objects[name] for name in TRAINER_FLAGS if name in objects}, **given}


def as_list(value: Any) -> list[Any]:
    """None, one object or several, as a list."""
    if value is None or isinstance(value, bool):
        return []
    return list(value) if isinstance(value, Iterable) else [value]
