"""Mutexes in shared memory for many processes. `docs/PYTHON.md` of the project is the introduction."""

import builtins
from types import TracebackType
from typing import Any, Literal, final

__version__: str

def remove(name: str) -> None:
    """Removes the file of an instance. Processes that have it open keep it."""

@final
class Instance:
    """A segment of shared memory with its mutexes, found by a name, or by a path if there is a `/` in it.

    Opened twice in a process, it is one instance. It can be pickled unless it is anonymous.
    """

    @classmethod
    def open(
        cls,
        name: str,
        *,
        sessions: int | None = None,
        mutexes: int | None = None,
        locations: int | None = None,
        rows: int | None = None,
        arena: int | None = None,
        permissions: int = 0o600,
    ) -> Instance:
        """Attaches to it, and creates it if there is none. What it has room for is said by its creator: threads
        at a time (`sessions`, 1024), mutexes (16,384), places (4096), rows of figures for each session (64), and
        bytes for mutexes and their data (`arena`, 1 MiB)."""

    @classmethod
    def create(
        cls,
        name: str,
        *,
        sessions: int | None = None,
        mutexes: int | None = None,
        locations: int | None = None,
        rows: int | None = None,
        arena: int | None = None,
        permissions: int = 0o600,
    ) -> Instance:
        """Creates it; `Exists` if there is one."""

    @classmethod
    def attach(cls, name: str) -> Instance:
        """Attaches to it; `NotFound` if there is none."""

    @classmethod
    def anonymous(
        cls,
        *,
        sessions: int | None = None,
        mutexes: int | None = None,
        locations: int | None = None,
        rows: int | None = None,
        arena: int | None = None,
    ) -> Instance:
        """Creates one for this process and what it forks."""

    @property
    def name(self) -> str | None:
        """Its name or path; None for an anonymous one."""

    @property
    def params(self) -> dict[str, int | str]:
        """The parameters in force for the instance, by name."""

    def mutex(self, name: str, type: str = "python", size: int = 8, format: str = "B") -> Mutex:
        """The mutex of this name with `size` bytes of data, which are 0 if it is new. `format` is how `data`
        shows them: one of B, b, H, h, I, i, Q, q, f, d of the module `struct`. `Invalid` if there is one with
        data of another size."""

    def set(self, name: str, value: int | str | None, *, type: str | None = None) -> None:
        """Sets a parameter for the instance or for a mutex type, at the next step of every wait. None takes a
        setting back."""

    def figures(self, *, by: Literal["mutex", "location"] = "mutex") -> list[dict[str, Any]]:
        """What was counted since the instance was created, and the measures that follow from it: a row for each
        mutex, or for each place where sessions missed. None is not known."""

    def sessions(self) -> list[dict[str, Any]]:
        """The sessions: process and thread, name and action, what each holds, what it waits for, where, in which
        mode and since how many s, and which session is in its way."""

    def alerts(self, after: int = 0) -> list[dict[str, Any]]:
        """The alert log after this number: `number`, `time` (s since 1970), `text`."""

    def set_action(self, action: str) -> None:
        """Says what the calling thread is about, for the views: up to 32 bytes."""

    def close(self) -> None:
        """Ends the thread's session, and has every later call refused with `Closed`. `Error` while this thread
        holds a mutex of it. The memory goes with the last object and thread that used it."""

    def __enter__(self) -> Instance: ...
    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@final
class Mutex:
    """A mutex with the data that it protects. `with mutex as held` holds it in X; `acquire` and `release` are
    those of `threading.Lock`, but for the thread that holds it alone: `threading.Condition` takes it for one, for
    the threads of one process. It can be pickled as its instance can."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def instance(self) -> Instance: ...
    @property
    def data(self) -> memoryview:
        """The data, while this thread holds it by `with mutex` or `acquire`."""

    def exclusive(
        self, *, timeout: float | None = None, at: str | None = None, on_death: Literal["raise", "hold"] = "raise"
    ) -> Hold:
        """X, for `with`: nobody else has it. `timeout` in s: None waits for ever, 0 is one try. `at` is the place
        for the views. `on_death="hold"` holds a mutex whose holder has died instead of raising `OwnerDied`."""

    def long_exclusive(
        self, *, timeout: float | None = None, at: str | None = None, on_death: Literal["raise", "hold"] = "raise"
    ) -> Hold:
        """LX, for `with`: as X for long; waits for it are counted apart."""

    def shared(
        self, *, timeout: float | None = None, at: str | None = None, on_death: Literal["raise", "hold"] = "raise"
    ) -> Hold:
        """S, for `with`: beside others in S. Waits while another session has E, X or LX; one that comes for E later
        does not wait for this hold, but the end of the `with` waits until E ends or asks for X."""

    def examine(
        self, *, timeout: float | None = None, at: str | None = None, on_death: Literal["raise", "hold"] = "raise"
    ) -> Hold:
        """E, for `with`: beside those that have it in S already; nobody else gets it meanwhile. The data can be read,
        and changed after `upgrade`."""

    def acquire(self, blocking: bool = True, timeout: float = -1.0) -> bool:
        """Gets it in X. Whether it was got: False after `timeout` s, or after the one try of `blocking=False` or
        `timeout=0`. The thread that has it gets False from one try, and `Deadlock` where it would wait."""

    def release(self) -> None:
        """Gives it back; `NotHeld` unless this thread has it by `with mutex` or `acquire`, of this object or another
        one of the same mutex."""

    def locked(self) -> bool:
        """Whether any thread of any process holds it, in whatever mode."""

    def __enter__(self) -> Hold: ...
    def __exit__(
        self,
        exc_type: builtins.type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class Hold:
    """A mutex asked for in a mode; held between begin and end of the `with`. It may be entered again then. One of S
    or E is refused with `NotHeld` while another thread has it in S: each thread makes its own."""

    @property
    def data(self) -> memoryview:
        """The data, until the `with` ends or the mode changes; read-only in S and E. Where views made of it are
        still there then, that raises `BufferError`; later holds do not mind them."""

    @property
    def mode(self) -> Literal["S", "X", "LX", "E"]:
        """The mode in which it is held."""

    @property
    def owner_died(self) -> bool:
        """Whether a holder had died, and `consistent` was not called since."""

    def consistent(self) -> None:
        """Says that the data are right again after the death of a holder; in X, LX or E."""

    def examine(self, *, timeout: float | None = None) -> None:
        """S to E: beside the others in S, nobody gets X in between."""

    def upgrade(self, *, timeout: float | None = None) -> None:
        """E to X: waits until the readers have left. Nobody gets in between."""

    def share(self) -> None:
        """X, LX or E to S. Nobody gets in between."""

    def __enter__(self) -> Hold: ...
    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

class Error(Exception): ...
class OwnerDied(Error): ...
class TimedOut(Error, TimeoutError): ...
class Busy(Error, TimeoutError): ...
class Deadlock(Error, RuntimeError): ...
class NotHeld(Error, RuntimeError): ...
class Closed(Error, ValueError): ...
class Exists(Error, FileExistsError): ...
class NotFound(Error, FileNotFoundError): ...
class Denied(Error, PermissionError): ...
class Invalid(Error, ValueError): ...
class Full(Error): ...
