# SPDX-License-Identifier: Apache-2.0
"""Requests that ended, on their way into an asyncio loop.

The library's threads push onto a list and write an eventfd; the loop reads it like any other file. A loop has
one channel for all models; it goes with the loop."""
from __future__ import annotations

import asyncio
import weakref

from . import _fletch

_channels: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _fletch.Channel] = weakref.WeakKeyDictionary()


def forget_channels() -> None:
    """In a forked child: its loops are new, and the parent's eventfds are the parent's."""
    _channels.clear()


def channel_of(loop: asyncio.AbstractEventLoop) -> _fletch.Channel:
    channel = _channels.get(loop)
    if channel is None:
        channel = _fletch.make_channel()
        loop.add_reader(channel.fileno(), _deliver, channel)
        _channels[loop] = channel
    return channel


def _deliver(channel: _fletch.Channel) -> None:
    for future, error in channel.take_done():
        if future.done():  # cancelled meanwhile
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
