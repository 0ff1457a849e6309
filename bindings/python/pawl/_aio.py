# SPDX-License-Identifier: Apache-2.0
"""Locks for asyncio: requests are submitted, and the event loop is told by pawl_fd when some are complete."""
from __future__ import annotations

import asyncio
import ctypes
import errno
from typing import TYPE_CHECKING, Optional

from . import Cancelled, Grant, Why, _check, _deadline, _error, _key, _mode
from . import _lib as _c
from ._lib import lib as _pawl

if TYPE_CHECKING:
    from . import Key, Space

_REAP = 16  # completions at a time


class _Waiting:
    """The requests of a space that are in flight, for one event loop."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.loop = asyncio.get_running_loop()
        self.futures: dict[int, asyncio.Future] = {}
        self.wanted: dict[int, asyncio.Future] = {}  # by the grant's serial
        self.lost = self.loop.create_future()
        self.fd = _check(_pawl.pawl_fd(space._handle))
        self.loop.add_reader(self.fd, self.reap)

    def reap(self) -> None:
        done = (_c.completion * _REAP)()
        count = _pawl.pawl_reap(self.space._handle, done, _REAP, _c.TRY)
        for c in done[: max(count, 0)]:
            if c.op == _c.OP_LOST:
                self.lost.set_result(Why(c.why))
                continue
            if c.op == _c.OP_WANTED:
                told = self.wanted.pop(c.grant.serial, None)
                if told and not told.done():
                    told.set_result(None)
                continue
            future = self.futures.pop(c.id)
            grant = Grant.from_buffer_copy(c.grant)
            grant._space = self.space
            if not future.done():
                future.set_result((c.result, grant))
            elif c.result == 0:  # granted after the task was cancelled
                _pawl.pawl_unlock(self.space._handle, grant)

    def submit(self, request: _c.request) -> tuple[int, asyncio.Future]:
        number = ctypes.c_uint64()
        _check(_pawl.pawl_submit(self.space._handle, request, number))
        future = self.loop.create_future()
        self.futures[number.value] = future
        return number.value, future

    def close(self) -> None:
        if not self.loop.is_closed():
            self.loop.remove_reader(self.fd)
        for future in self.futures.values():
            if not future.done():
                future.set_exception(Cancelled(errno.ECANCELED, "the space was closed"))
        self.futures.clear()
        for future in self.wanted.values():
            future.cancel()
        self.wanted.clear()
        if not self.lost.done():
            self.lost.cancel()


def _waiting_of(space: Space) -> _Waiting:
    waiting = space._aio
    if waiting and waiting.loop is not asyncio.get_running_loop():
        if waiting.futures:
            raise RuntimeError("another event loop waits for locks of this space: open the space once per loop")
        waiting.close()
        waiting = None
    space._aio = waiting or _Waiting(space)
    return space._aio


def lost(space: Space) -> asyncio.Future:
    return asyncio.shield(_waiting_of(space).lost)  # those that wait for it do not cancel each other


def wanted(grant: Grant) -> asyncio.Future:
    waiting = _waiting_of(grant._space)
    grant.watch()
    future = waiting.wanted.get(grant.serial)
    if future is None or future.done():
        future = waiting.wanted[grant.serial] = waiting.loop.create_future()
    return asyncio.shield(future)


class Lock:
    """A lock that is awaited, or entered with `async with`."""

    def __init__(self, space: Space, key: Key, shared: bool, timeout: Optional[float]) -> None:
        self.space, self.key, self.shared, self.timeout = space, key, shared, timeout
        self.grant: Optional[Grant] = None

    async def _acquire(self) -> Grant:
        waiting = _waiting_of(self.space)
        number, future = waiting.submit(
            _c.request(op=_c.OP_LOCK, mode=_mode(self.shared), key=_key(self.key), deadline_ns=_deadline(self.timeout))
        )
        try:
            code, grant = await future
        except asyncio.CancelledError:
            if waiting is self.space._aio and number in waiting.futures:
                _pawl.pawl_cancel(self.space._handle, number)  # its completion comes all the same, and is reaped
            raise
        if code:
            raise _error(code, explained=False)
        return grant

    def __await__(self):
        return self._acquire().__await__()

    async def __aenter__(self) -> Grant:
        self.grant = await self._acquire()
        return self.grant

    async def __aexit__(self, kind, value, trace) -> None:
        self.grant.__exit__(kind, value, trace)
