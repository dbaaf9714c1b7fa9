"""A random stream of its own for each worker thread, without touching torch's default generator."""

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
    """Inside ``with stream:`` torch's random functions draw from ``generator``, in this thread.

    torch has one default generator for all threads; the stack of function modes is kept by thread.
    A generator seeded like the default one gives the same numbers.
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
        """Call ``func``, with the stream's generator where it draws and none was given."""
        if func in DRAWING:
            kwargs = {"generator": self.generator, **(kwargs or {})}
        return func(*args, **(kwargs or {}))


_local = threading.local()


def active_stream() -> Stream | None:
    """The stream that this thread draws from, or None."""
    return getattr(_local, "stream", None)


def generator_in_use() -> torch.Generator:
    """The generator that torch's random functions draw from in this thread."""
    stream = active_stream()
    return torch.default_generator if stream is None else stream.generator


def without_modes() -> AbstractContextManager[Any]:
    """Function modes set aside, for calls that draw nothing or are given a generator.

    A thread's mode takes 2 to 3 us of each call; where torch has no switch, it goes on doing so.
    """
    switch: Callable[[], AbstractContextManager[Any]]
    switch = getattr(torch._C, "DisableTorchFunction", nullcontext)
    return switch()


@contextmanager
def own_stream() -> Iterator[Stream]:
    """Draw from a stream of this thread's own."""
    _local.stream = stream = Stream()
    try:
        with stream:
            yield stream
    finally:
        _local.stream = None


def drawn_elsewhere(transform: Any) -> str | None:
    """The step that keeps a transform from worker threads, or None.

    torchvision's own classes draw from torch alone, but for a few; of any other callable it is
    not known, and ``random``'s and NumPy's states are shared by all threads.
    """
    from torchvision.transforms import transforms as v1
    from torchvision.transforms import v2

    if transform is None:
        return None
    kind = type(transform)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if not kind.__module__.startswith("torchvision.transforms.") or kind in (v1.Lambda, v2.Lambda):
        return getattr(transform, "__qualname__", name)
    if kind in (v1.RandomChoice, v1.RandomOrder):  # draw from Python's random
        return name
    inner = getattr(transform, "transforms", ())
    if isinstance(inner, Iterable):
        return next((found for step in inner if (found := drawn_elsewhere(step))), None)
    return drawn_elsewhere(inner)
