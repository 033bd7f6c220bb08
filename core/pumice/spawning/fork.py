"""Helper processes: forked before their parent is confined, and connected to it by a socket."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from typing import NamedTuple, NoReturn


class Helper(NamedTuple):
    """A forked process; ``channel`` is this process's end of the socket."""

    channel: socket.socket
    pid: int

    def end(self) -> None:
        """Close the channel, at which the process ends, and wait for that."""
        self.channel.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def fork_helper(serve: Callable[[socket.socket], NoReturn], kind: int = socket.SOCK_STREAM) -> Helper:
    """Fork a process that runs ``serve`` with its end of a socket of type ``kind``.

    It shares this process's imported modules, so it takes little time and memory. Call this in a process with one
    thread.
    """
    near, far = socket.socketpair(socket.AF_UNIX, kind)
    pid = os.fork()
    if pid == 0:
        near.close()
        serve(far)
    far.close()
    return Helper(near, pid)


def detach(channel: socket.socket, also: int | None = None, same_session: bool = False) -> None:
    """Close everything inherited from the parent except standard error, ``channel`` and the descriptor ``also``.

    With ``same_session`` the process stays in its parent's session. If it is stopped when its parent ends, its process
    group becomes an orphaned one, so the kernel continues it (POSIX), and it sees the end of ``channel``.
    """
    if same_session:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # its standard error may be the session's terminal
    else:
        os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # ends with its parent; a function, so that children inherit nothing
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    kept = sorted({2, channel.fileno()} | (set() if also is None else {also}))
    for low, high in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)
