"""Read damaged files, each is read or refused by name: ``python scripts/fuzz.py table``.

The inputs are read in a process of their own. An exception that is not the project's own, a crash
of the interpreter and an input that takes longer than a minute are printed with the seed of the
input that did it, and the next input follows; the same seed makes the same input on any machine.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the project, from anywhere

from damaged_files import TARGETS, Files, Target, target_of

EXPECTED = (ValueError, OSError, RuntimeError)
FAULTS = FOREIGN, UNNAMED, CRASHED = "foreign", "without its name", "crashed or hung"
LIMIT_SECONDS = 60


@dataclass
class Trial:
    """How far the inputs of one target are.

    Attributes:
        next: Seed of the input at work.
        end: Seed behind the last.
        came: Inputs by what came of them.
    """

    next: int
    end: int
    came: dict[str, int] = field(default_factory=dict)


def mutated(content: bytes, draw: random.Random) -> bytes:
    """A file with a few bytes changed, put in, taken out or repeated, or its end cut off."""
    data = bytearray(content)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(data)) if data else 0
        kind = draw.randrange(5)
        if kind == 0 and data:
            data[at] = draw.randrange(256)
        elif kind == 1:
            data[at:at] = draw.randbytes(draw.randint(1, 8))
        elif kind == 2:
            del data[at : at + draw.randint(1, 8)]
        elif kind == 3:
            data[at:at] = data[at : at + draw.randint(1, 32)]
        elif draw.random() < 0.3:
            del data[at:]
    return bytes(data)


def write_damaged(folder: Path, files: Files, target: Target, draw: random.Random) -> None:
    """Write one input with one of its files damaged; half of those with digests are sealed anew."""
    chosen = draw.choice(sorted(files))
    for file in folder.iterdir():
        file.unlink()  # never written over: it may still be mapped
    for name, content in files.items():
        (folder / name).write_bytes(mutated(content, draw) if name == chosen else content)
    if target.seal is not None and draw.random() < 0.5:
        target.seal(folder)


def read_inputs(name: str, trial: Trial, say: Callable[[], None]) -> None:
    """Try the inputs of one target that are left; ``say`` is called before each."""
    with tempfile.TemporaryDirectory() as scratch:
        target = target_of(name, Path(scratch))
        folder = Path(scratch) / "input"
        folder.mkdir()
        while trial.next < trial.end:
            number, draw = trial.next, random.Random(trial.next)
            say()
            faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True)
            write_damaged(folder, target.variants[number % len(target.variants)], target, draw)
            try:
                target.read(folder)
                outcome = "read"
            except EXPECTED as error:
                outcome = "refused" if target.is_named(error) else UNNAMED
                if outcome == UNNAMED:
                    print(f"{name} seed {number}: the error lacks the file's name: {error!r}"[:300])
            except Exception as error:
                outcome = FOREIGN
                print(f"{name} seed {number}: {type(error).__name__}: {error}"[:300])
            trial.came[outcome] = trial.came.get(outcome, 0) + 1
            trial.next += 1
        faulthandler.cancel_dump_traceback_later()


def run_inside(place: Path) -> None:
    """Try all inputs that ``place`` says are left; it always holds the input at work."""
    trials = read_trials(place)
    with place.open("r+", encoding="utf-8") as log:

        def say() -> None:
            log.seek(0)
            json.dump({name: asdict(trial) for name, trial in trials.items()}, log)
            log.write("\n")
            log.flush()

        for name, trial in trials.items():
            read_inputs(name, trial, say)
        say()


def read_trials(place: Path) -> dict[str, Trial]:
    """Where each target's trial stands, by the first line of a file."""
    first = place.read_text(encoding="utf-8").split("\n")[0]
    return {name: Trial(**said) for name, said in json.loads(first).items()}


def fuzz(names: Sequence[str], count: int, seed: int) -> int:
    """Try ``count`` inputs a target from ``seed`` on; return how many failed."""
    trials = {name: Trial(seed, seed + count) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "trials.json"
        while any(trial.next < trial.end for trial in trials.values()):
            place.write_text(json.dumps({name: asdict(trials[name]) for name in names}))
            inside = [sys.executable, "-W", "ignore", sys.argv[0], *names, "--inside", str(place)]
            before, ran = sum(t.next for t in trials.values()), subprocess.run(inside, check=False)
            trials = read_trials(place)
            if ran.returncode and before == sum(t.next for t in trials.values()):
                raise RuntimeError(f"no input was tried, exit code {ran.returncode}; see above")
            if ran.returncode:
                name, at = next((n, t) for n, t in trials.items() if t.next < t.end)
                print(f"{name} seed {at.next}: the process ended with code {ran.returncode}")
                at.came[CRASHED] = at.came.get(CRASHED, 0) + 1
                at.next += 1
    for name, trial in trials.items():
        print(f"{name}: {count} inputs from seed {seed}: {dict(sorted(trial.came.items()))}")
    return sum(trial.came.get(fault, 0) for trial in trials.values() for fault in FAULTS)


def main() -> int:
    """Parse and try."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("targets", nargs="+", choices=list(TARGETS))
    parser.add_argument("--count", type=int, default=100_000, help="inputs a target")
    parser.add_argument("--seed", type=int, default=0, help="number of the first input")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside is not None:
        faulthandler.enable()
        logging.disable()  # what a reader tells of a table is not asked for here
        run_inside(options.inside)
        return 0
    return min(1, fuzz(options.targets, options.count, options.seed))


if __name__ == "__main__":
    sys.exit(main())
