"""Give each worker thread a random stream, without changing torch's default generator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

T = torch.Tensor
DRAWING = frozenset(
    [
        *(torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal, torch.bernoulli),
        *(torch.multinomial, torch.poisson, torch.rand_like, torch.randn_like, torch.randint_like),
        *(T.uniform_, T.normal_, T.random_, T.bernoulli, T.bernoulli_, T.multinomial),
        *(T.exponential_, T.geometric_, T.cauchy_, T.log_normal_),
    ]
)


class Stream(TorchFunctionMode):
    """Context in which torch's random functions of this thread draw from ``generator``.

    torch has one default generator for all threads, but a stack of function modes per thread.
    With the seed of the default generator ``generator`` gives the same numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call ``func``; pass ``generator`` to a random function that was not given one."""
        if func in DRAWING:
            kwargs = {"generator": self.generator, **(kwargs or {})}
        return func(*args, **(kwargs or {}))


_local = threading.local()


def active_stream() -> Stream | None:
    """Return the stream that this thread draws from, or None."""
    return getattr(_local, "stream", None)


def generator_in_use() -> torch.Generator:
    """Return the generator that torch's random functions draw from in this thread."""
    stream = active_stream()
    return torch.default_generator if stream is None else stream.generator


def without_modes() -> AbstractContextManager[Any]:
    """Turn torch's function modes off, for calls that draw nothing or are given a generator.

    A mode takes 2 to 3 us of each call. Without ``DisableTorchFunction`` in torch it stays on.
    """
    switch: Callable[[], AbstractContextManager[Any]]
    switch = getattr(torch._C, "DisableTorchFunction", nullcontext)
    return switch()


@contextmanager
def own_stream() -> Iterator[Stream]:
    """Make torch's random functions draw from a new stream of this thread."""
    _local.stream = stream = Stream()
    try:
        with stream:
            yield stream
    finally:
        _local.stream = None


def thread_unsafe_step(transform: Any) -> str | None:
    """Return the name of a step that must not run in worker threads, or None.

    Most of torchvision's transforms use torch's random functions only. Other callables may use
    ``random`` or NumPy, whose states are shared by all threads.
    """
    from torchvision.transforms import transforms as v1
    from torchvision.transforms import v2

    if transform is None:
        return None
    kind = type(transform)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if not kind.__module__.startswith("torchvision.transforms.") or kind in (v1.Lambda, v2.Lambda):
        return getattr(transform, "__qualname__", name)
    if kind in (v1.RandomChoice, v1.RandomOrder):  # use Python's random
        return name
    inner = getattr(transform, "transforms", ())
    if isinstance(inner, Iterable):
        return next((found for step in inner if (found := thread_unsafe_step(step))), None)
    return thread_unsafe_step(inner)
