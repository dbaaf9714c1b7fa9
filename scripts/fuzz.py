"""Test that damaged files are read or refused by name: ``python scripts/fuzz.py table``.

The inputs are read in a process of their own. An unexpected exception, a crash of the interpreter
and an input that takes longer than a minute are printed with the seed of the input. The same seed
makes the same input on any machine.
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

from damaged_files import TARGETS, Files, Target

EXPECTED = (ValueError, OSError, RuntimeError)
FAULTS = UNEXPECTED, UNNAMED, CRASHED = "unexpected error", "file not named", "crashed or hung"
LIMIT_SECONDS = 60


@dataclass
class Trial:
    """Progress of the inputs of one target.

    Attributes:
        next: Seed of the current input.
        end: One more than the last seed.
        counts: Number of inputs by outcome.
    """

    next: int
    end: int
    counts: dict[str, int] = field(default_factory=dict)

    def finish_input(self, outcome: str) -> None:
        """Count the current input and go to the next."""
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
        self.next += 1


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Change, insert, remove or repeat a few bytes, or cut off the end."""
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
    """Write one input with one of its files damaged; update the digests of every second one."""
    chosen = draw.choice(sorted(files))
    for file in folder.iterdir():
        file.unlink()  # never overwritten: it may still be memory-mapped
    for name, content in files.items():
        (folder / name).write_bytes(mutated(content, draw) if name == chosen else content)
    if target.seal is not None and draw.random() < 0.5:
        target.seal(folder)


def read_inputs(name: str, trial: Trial, save: Callable[[], None]) -> None:
    """Read the remaining inputs of one target; ``save`` is called before each."""
    with tempfile.TemporaryDirectory() as scratch:
        target = TARGETS[name](Path(scratch))
        folder = Path(scratch) / "input"
        folder.mkdir()
        while trial.next < trial.end:
            number, draw = trial.next, random.Random(trial.next)
            save()
            faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True)
            write_damaged(folder, target.variants[number % len(target.variants)], target, draw)
            try:
                target.read(folder)
                outcome = "read"
            except EXPECTED as error:
                outcome = "refused" if target.is_named(error) else UNNAMED
                if outcome == UNNAMED:
                    print(
                        f"{name} seed {number}: the error does not name the file: {error!r}"[:300]
                    )
            except Exception as error:
                outcome = UNEXPECTED
                print(f"{name} seed {number}: {type(error).__name__}: {error}"[:300])
            trial.finish_input(outcome)
        faulthandler.cancel_dump_traceback_later()


def run_inside(place: Path) -> None:
    """Read all remaining inputs; the file ``place`` always contains the current input."""
    trials = read_trials(place)
    with place.open("r+", encoding="utf-8") as log:

        def save() -> None:
            log.seek(0)
            json.dump({name: asdict(trial) for name, trial in trials.items()}, log)
            log.write("\n")
            log.flush()

        for name, trial in trials.items():
            read_inputs(name, trial, save)
        save()


def read_trials(place: Path) -> dict[str, Trial]:
    """Return the progress of each target, from the first line of a file."""
    first = place.read_text(encoding="utf-8").split("\n")[0]
    return {name: Trial(**values) for name, values in json.loads(first).items()}


def fuzz(names: Sequence[str], count: int, seed: int) -> int:
    """Read ``count`` inputs per target, starting at ``seed``; return how many failed."""
    trials = {name: Trial(seed, seed + count) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "trials.json"
        while any(trial.next < trial.end for trial in trials.values()):
            place.write_text(json.dumps({name: asdict(trials[name]) for name in names}))
            inside = [sys.executable, "-W", "ignore", sys.argv[0], *names, "--inside", str(place)]
            before, ran = sum(t.next for t in trials.values()), subprocess.run(inside, check=False)
            trials = read_trials(place)
            if ran.returncode and before == sum(t.next for t in trials.values()):
                raise RuntimeError(f"no input was read, exit code {ran.returncode}; see above")
            if ran.returncode:
                name, at = next((n, t) for n, t in trials.items() if t.next < t.end)
                print(f"{name} seed {at.next}: the process ended with code {ran.returncode}")
                at.finish_input(CRASHED)
    for name, trial in trials.items():
        print(f"{name}: {count} inputs from seed {seed}: {dict(sorted(trial.counts.items()))}")
    return sum(trial.counts.get(fault, 0) for trial in trials.values() for fault in FAULTS)


def main() -> int:
    """Parse the command line and read the inputs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("targets", nargs="+", choices=list(TARGETS))
    parser.add_argument("--count", type=int, default=100_000, help="inputs per target")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first input")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside is not None:
        faulthandler.enable()
        logging.disable()  # notes of the readers
        run_inside(options.inside)
        return 0
    return min(1, fuzz(options.targets, options.count, options.seed))


if __name__ == "__main__":
    sys.exit(main())
