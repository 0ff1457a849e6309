# SPDX-License-Identifier: Apache-2.0
"""pawl: locks between processes and machines, with fencing tokens, leases and recovery from holders that died.

    import pawl

    with pawl.open("local:") as space, space.lock("report", timeout=5) as grant:
        write_report(grant.token)

In asyncio:

    async with space.lock_async("report", timeout=5) as grant:
        ...

A key is a str or bytes (a name), or an int (a number), as the space has them. Times are seconds. Every failure is a pawl.Error.
Handles are not inherited: a child process after fork() opens its own. The calls release Python's global lock while they wait.
"""
from __future__ import annotations

import ctypes
import enum
import errno
from dataclasses import dataclass
from types import TracebackType
from typing import Callable, Iterable, Optional, Union

from . import _lib as _c
from ._lib import lib as _pawl

__version__ = "0.1.0"
__all__ = [
    "BadSegment", "Cancelled", "Deadlock", "Error", "Forked", "Grant", "Grants", "Held", "Limit", "Lost", "NotOwner", "NotSupported", "OtherLimit", "Space",
    "State", "Timeout", "Unknown", "Why", "open",
]

Key = Union[str, bytes, int]
_byref = ctypes.byref
_lock, _unlock = _pawl.pawl_lock, _pawl.pawl_unlock
_NS = 1_000_000_000
_KEYS_MAX = 1024  # keys of a space that are kept ready for C

# ---- errors ----


class Error(OSError):
    """A call failed. `errno` is the positive code of pawl.h, `strerror` the sentence that explains it."""


class Held(Error, BlockingIOError):
    """Another session holds the lock, and the call does not wait."""


class Timeout(Error, TimeoutError):
    """The deadline passed; the lock is not held."""


class Lost(Error):
    """The session was lost: its lease ran out, or an operator broke it. Its grants are void."""


class NotOwner(Error, PermissionError):
    """This session does not, or no longer, hold the grant."""


class Deadlock(Error):
    """The caller was chosen as the victim of a deadlock. Locks held are still held."""


class Unknown(Error):
    """The outcome is unknown: the connection broke in between."""


class NotSupported(Error):
    """The design of this space does not offer that."""


class Forked(Error):
    """The handle belongs to the parent process."""


class Limit(Error):
    """Too many sessions in the space, or holds or requests in the session."""


class OtherLimit(Error):
    """The semaphore is held with another limit, or its key is locked without one."""


class BadSegment(Error):
    """Not a segment of this version of pawl, or damaged."""


class Cancelled(Error):
    """The request was cancelled before the grant; the lock is not held."""


_ERRORS: dict[int, type[Error]] = {
    _c.EHELD: Held,
    _c.ELOST: Lost,
    _c.EUNKNOWN: Unknown,
    _c.ENOTOWNER: NotOwner,
    _c.ENOTSUP: NotSupported,
    _c.EFORKED: Forked,
    _c.ESEGMENT: BadSegment,
    _c.ELIMIT: Limit,
    _c.ELIMITS: OtherLimit,
    errno.ETIMEDOUT: Timeout,
    errno.EDEADLK: Deadlock,
    errno.ECANCELED: Cancelled,
}


def _error(code: int, explained: bool = True) -> Error:
    text = _pawl.pawl_explain() if explained else b""
    text = text or _pawl.pawl_strerror(code)
    return _ERRORS.get(-code, Error)(-code, text.decode(errors="replace"))


def _check(code: int) -> int:
    if code < 0:
        raise _error(code)
    return code


# ---- arguments ----


def _key(key: Key) -> _c.key:
    if isinstance(key, str):
        key = key.encode()
    if isinstance(key, (bytes, bytearray)):
        return _c.key(bytes(key), len(key))
    if isinstance(key, int) and 0 <= key < 2**64:
        return _c.key(None, key)
    raise TypeError(f"a key is a str, bytes or an int of 64 bits, not {key!r}")


def _deadline(timeout: Optional[float]) -> int:
    if timeout is None:
        return _c.NEVER
    if timeout <= 0:
        return _c.TRY
    return min(_pawl.pawl_now() + int(timeout * _NS), _c.NEVER - 1)


def _mode(shared: bool) -> int:
    return _c.SHARED if shared else _c.EXCLUSIVE


# ---- grants ----


class Why(enum.IntEnum):
    """Why a grant ended; `str()` is a sentence."""

    HELD = 0
    UNLOCKED = 1
    LEASE = 2
    BROKEN = 3
    REMOVED = 4
    GRANTER = 5
    COORDINATOR = 6

    def __str__(self) -> str:
        return _pawl.pawl_strwhy(self).decode()


class Grant(_c.grant):
    """A lock held, with its `token` (0 if the design has none) and, in designs with ranges, the bytes `start` to `end` that are locked.
    As a context manager it is released at the end of the block."""

    _space: Space
    _open = True

    @property
    def shared(self) -> bool:
        return self.mode == _c.SHARED

    def held(self) -> bool:
        """Whether the grant is certainly still held. Makes no system call."""
        return self._open and _pawl.pawl_check(self._space._handle, self) == 0

    def check(self) -> None:
        """Raises Lost or NotOwner unless the grant is certainly still held."""
        _check(_pawl.pawl_check(self._space._handle, self))

    def why(self) -> Why:
        """Why the grant ended; Why.HELD if it is held."""
        return Why(_check(_pawl.pawl_why(self._space._handle, self)))

    def watch(self) -> None:
        """Asks to be told once that others wait for this lock: by the callback of space.on_wanted, or await wanted_async()."""
        _check(_pawl.pawl_watch(self._space._handle, self))

    def wanted_async(self):
        """For asyncio: an awaitable that is done when others wait for this lock. It stays undone if the grant ends first."""
        from . import _aio

        return _aio.wanted(self)

    def extend(self) -> None:
        """Renews the session's lease now. The library renews it by itself every third of a lease."""
        _check(_pawl.pawl_extend(self._space._handle, self))

    def convert(self, *, shared: bool, timeout: Optional[float] = None) -> None:
        """Makes an exclusive grant shared, or a shared one exclusive. On failure the grant is unchanged."""
        _check(_pawl.pawl_convert(self._space._handle, self, _mode(shared), _deadline(timeout)))

    def reshape(self, start: int, end: int, *, timeout: Optional[float] = None) -> None:
        """Makes a held range larger or smaller."""
        _check(_pawl.pawl_reshape(self._space._handle, self, start, end, _deadline(timeout)))

    def split(self, at: int) -> Grant:
        """Cuts a held range in two: this grant ends at byte `at`, the one that is returned goes on from there."""
        right = self._space._grant()
        _check(_pawl.pawl_split(self._space._handle, self, at, right))
        return right

    @property
    def value(self) -> Optional[bytes]:
        """The value beside the lock, up to 64 bytes; None: it has none. Set under an exclusive grant; None removes it."""
        room, length = ctypes.create_string_buffer(_c.VALUE_MAX), ctypes.c_size_t(_c.VALUE_MAX)
        code = _pawl.pawl_get_value(self._space._handle, self, room, length)
        return None if -code == _c.ENOVALUE else room.raw[: _check(code) or length.value]

    @value.setter
    def value(self, value: Optional[bytes]) -> None:
        _check(_pawl.pawl_set_value(self._space._handle, self, value or b"", len(value or b"")))

    def unlock(self) -> None:
        """Releases the lock. NotOwner if it was released before, Lost if the session was lost."""
        self._open = False
        code = _unlock(self._space._handle, self)
        if code:
            raise _error(code)

    def __enter__(self) -> Grant:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        if self._open:
            self._open = False
            code = _unlock(self._space._handle, self)
            if code and (kind is None or -code != _c.ELOST):  # else the exception of the block is the one that matters
                raise _error(code)

    def __repr__(self) -> str:
        return f"<pawl.Grant {'shared' if self.shared else 'exclusive'} token={self.token}{'' if self._open else ' released'}>"


class Grants(list):
    """The grants of lock_all. As a context manager they are all released at the end of the block."""

    def unlock(self) -> None:
        """Releases those that are still held: all together, in one round trip of a rack."""
        held = [grant for grant in self if grant._open]
        for grant in held:
            grant._open = False
        if held:
            _check(_pawl.pawl_unlock_all(held[0]._space._handle, (_c.grant * len(held))(*held), len(held)))

    def __enter__(self) -> Grants:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        try:
            self.unlock()
        except Lost:
            if kind is None:
                raise


@dataclass(frozen=True)
class State:
    """A lock at one moment."""

    mode: Optional[str]  # None: free; "shared" or "exclusive"
    holders: int
    waiters: int
    token: int


# ---- spaces ----


class Space:
    """A session in a space. Threads may share it; a child process may not."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._aio: Optional[object] = None
        self._keys: dict[Key, _c.key] = {}
        self._on_lost: Optional[object] = None  # what C calls must not be collected
        self._on_wanted: Optional[object] = None

    def _grant(self) -> Grant:
        grant = Grant()
        grant._space = self
        return grant

    def _known(self, key: Key) -> _c.key:
        """The key as C has it: made once for keys that are used often."""
        known = self._keys.get(key)
        if known is None:
            if len(self._keys) >= _KEYS_MAX:
                self._keys.clear()
            known = self._keys[key] = _key(key)
        return known

    def lock(self, key: Key, *, shared: bool = False, timeout: Optional[float] = None, start: int = 0, end: Optional[int] = None) -> Grant:
        """Locks and returns the grant. `timeout` None waits for ever; 0 does not wait: Held. `start` and `end` lock bytes of a range."""
        grant = Grant()
        grant._space = self
        mode = _c.SHARED if shared else _c.EXCLUSIVE
        if start or end is not None:
            code = _pawl.pawl_lock_range(self._handle, self._known(key), start, _c.END if end is None else end, mode, _deadline(timeout), grant)
        elif timeout is None:
            code = _lock(self._handle, self._known(key), mode, grant)
        elif timeout <= 0:
            code = _pawl.pawl_trylock(self._handle, self._known(key), mode, grant)
        else:
            code = _pawl.pawl_timedlock(self._handle, self._known(key), mode, _deadline(timeout), grant)
        if code:
            raise _error(code)
        return grant

    def semaphore(self, key: Key, limit: int, *, timeout: Optional[float] = None) -> Grant:
        """Takes one of `limit` places of a semaphore, and returns the grant. OtherLimit while it is held with another limit."""
        grant = self._grant()
        if not 0 < limit < 2**32:
            raise ValueError(f"the limit of a semaphore is a positive number, not {limit!r}")
        _check(_pawl.pawl_semaphore(self._handle, self._known(key), limit, _deadline(timeout), grant))
        return grant

    def lock_all(self, keys: Iterable[Key], *, shared: bool = False, timeout: Optional[float] = None) -> Grants:
        """Locks all or none. Users of lock_all do not deadlock with each other."""
        wanted = [_key(k) for k in keys]
        wants = (_c.want * max(len(wanted), 1))(*[_c.want(k, _mode(shared), 0, 0, 0) for k in wanted])
        room = (_c.grant * max(len(wanted), 1))()
        _check(_pawl.pawl_lock_all(self._handle, wants, len(wanted), _deadline(timeout), room))
        grants = Grants(Grant.from_buffer_copy(g) for g in room[: len(wanted)])
        for grant in grants:
            grant._space = self
        return grants

    def lock_async(self, key: Key, *, shared: bool = False, timeout: Optional[float] = None):
        """For asyncio: `async with space.lock_async(key) as grant`, or `grant = await space.lock_async(key)`."""
        from . import _aio

        return _aio.Lock(self, key, shared, timeout)

    def on_lost(self, callback: Optional[Callable[[Why], None]]) -> None:
        """Calls callback(why) once, in a thread of the library, when the session is lost. None: not any more. Lost, if it is lost
        already."""
        call = _c.LOST(lambda _, why: callback(Why(why))) if callback else _c.LOST()
        _check(_pawl.pawl_on_lost(self._handle, call, None))
        self._on_lost = call

    def on_wanted(self, callback: Optional[Callable[[Grant], None]]) -> None:
        """Calls callback(grant) in a thread of the library when others wait for the lock of a grant that is watched. It may unlock
        the grant. None: not any more."""

        def tell(_: Optional[int], g) -> None:
            grant = Grant.from_buffer_copy(g.contents)
            grant._space = self
            callback(grant)

        call = _c.WANTED(tell) if callback else _c.WANTED()
        _check(_pawl.pawl_on_wanted(self._handle, call, None))
        self._on_wanted = call

    def lost_async(self):
        """For asyncio: an awaitable whose result is the Why of the session's loss, once it is lost."""
        from . import _aio

        return _aio.lost(self)

    def query(self, key: Key) -> State:
        """The state of a lock at this moment."""
        s = _c.state()
        _check(_pawl.pawl_query(self._handle, _key(key), _byref(s)))
        return State({0: None, _c.SHARED: "shared", _c.EXCLUSIVE: "exclusive"}[s.mode], s.holders, s.waiters, s.token)

    def close(self) -> None:
        """Ends the session; its locks are released."""
        handle = self.__dict__.pop("_handle", None)
        if self._aio:
            self._aio.close()
        if handle is not None:
            _check(_pawl.pawl_close(handle))

    def __getattr__(self, name: str):
        if name == "_handle":  # it is gone after close(): the calls of C are never given a handle that was closed
            raise Error(errno.EBADF, "the space was closed")
        raise AttributeError(name)

    def __enter__(self) -> Space:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()


def open(
    where: str = "local:",
    *,
    design: Optional[str] = None,
    keys: Optional[str] = None,
    capacity: int = 0,
    lease: float = 0,
    sessions: int = 0,
    holds: int = 0,
    permissions: int = 0,
    create: bool = True,
    exclusive: bool = False,
    tenant: int = 0,
    priority: int = 0,
    timeout: float = 0,
) -> Space:
    """Joins a space with a session of its own: "local:NAME" is shared memory of this machine, "pawl://ADDRESS:PORT/SPACE" a rack or a
    memory node. `keys` is "named", "sparse" or "dense". `create` False: FileNotFoundError's code unless the space exists; `exclusive`:
    an error if it exists. `timeout`: for how long a rack is waited for. Everything else as in pawl.h; 0 is the default there."""
    if keys not in _c.KEYS:
        raise ValueError(f"keys are 'named', 'sparse' or 'dense', not {keys!r}")
    o = _c.options(
        design=design.encode() if design else None,
        keys=_c.KEYS[keys],
        capacity=capacity,
        lease_ns=int(lease * _NS),
        sessions=sessions,
        holds=holds,
        permissions=permissions,
        flags=(0 if create else _c.NO_CREATE) | (_c.MUST_CREATE if exclusive else 0),
        tenant=tenant,
        priority=priority,
        open_ns=int(timeout * _NS),
    )
    handle = ctypes.c_void_p()
    _check(_pawl.pawl_open(where.encode(), _byref(o), _byref(handle)))
    return Space(handle.value)
