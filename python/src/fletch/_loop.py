# SPDX-License-Identifier: Apache-2.0
"""Requests that ended, on their way into an asyncio loop.

The library's threads push onto a list and send a wakeup; the loop listens to it like to any other file. A loop has
one channel for all models; it goes with the loop. The loop that Windows has by default listens to no file: there a
task receives the wakeups, while there is something to wait for."""
from __future__ import annotations

import asyncio
import socket
import weakref

from . import _fletch

_channels: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _fletch.Channel] = weakref.WeakKeyDictionary()
_receiving: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Receiving] = weakref.WeakKeyDictionary()


def forget_channels() -> None:
    """In a forked child: its loops are new, and the parent's wakeups are the parent's."""
    _channels.clear()
    _receiving.clear()


def channel_of(loop: asyncio.AbstractEventLoop) -> _fletch.Channel:
    channel = _channels.get(loop)
    if channel is None:
        channel = _fletch.make_channel()
        try:
            loop.add_reader(channel.fileno(), _deliver, channel)
        except NotImplementedError:
            _receiving[loop] = _Receiving(loop, channel)
        _channels[loop] = channel
    return channel


def await_done(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    """`future` is of a request that was sent through the loop's channel: its end is to be delivered."""
    if loop in _receiving:
        _receiving[loop].expect(future)


class _Receiving:
    """Wakeups of a loop without add_reader."""

    def __init__(self, loop: asyncio.AbstractEventLoop, channel: _fletch.Channel) -> None:
        self._loop, self._channel = weakref.ref(loop), channel
        self._expected: set[asyncio.Future[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def expect(self, future: asyncio.Future[None]) -> None:
        loop = self._loop()
        self._expected.add(future)
        future.add_done_callback(self._expected.discard)
        if loop is not None and (self._task is None or self._task.done()):
            self._task = loop.create_task(self._receive(loop))

    async def _receive(self, loop: asyncio.AbstractEventLoop) -> None:
        listener = socket.socket(fileno=self._channel.fileno())
        listener.setblocking(False)
        try:
            _deliver(self._channel)
            while self._expected:
                await loop.sock_recv(listener, 8)
                _deliver(self._channel)
        finally:
            listener.detach()  # the channel's


def _deliver(channel: _fletch.Channel) -> None:
    for future, error in channel.take_done():
        if future.done():  # cancelled meanwhile
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
