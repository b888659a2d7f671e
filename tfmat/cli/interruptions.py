"""Signals that end a command: as exceptions, and never lost."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from tfmat.errors import Interrupted

# Seconds after which a lost interruption comes again: by then the destructor that swallowed it is done.
_AGAIN_AFTER = 0.02


class _CtrlC(KeyboardInterrupt):
    """Ctrl-C. A plain KeyboardInterrupt in code that was made of text, as that of dataclasses is, would make Python end
    by SIGINT, whatever the status is (unhandled_keyboard_interrupt in pythonrun.c)."""


@contextlib.contextmanager
def signals_as_interruptions(*, to_the_end: bool = False) -> Iterator["Interruptions"]:
    """SIGTERM and SIGUSR1 end a command as Ctrl-C does. While it trains, the training room takes them, and saves.

    Args:
      to_the_end: the process ends with the command, and Ctrl-C does nothing from there on: Python's own handler would
        let an impatient one tear what is still deleted then.

    Raises:
      Interrupted: at SIGTERM or SIGUSR1, once.
      KeyboardInterrupt: at each Ctrl-C.
    """
    interruptions = Interruptions()
    if threading.current_thread() is not threading.main_thread():  # Python takes no signals there
        yield interruptions
        return
    handlers: dict[signal.Signals, Any] = {
        signal.SIGTERM: interruptions.by_signal,
        signal.SIGUSR1: interruptions.by_signal,
    }
    # Where the caller ignores Ctrl-C, as a shell does for what runs in its background, so do we.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        handlers[signal.SIGINT] = interruptions.by_hand
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    sys.unraisablehook = interruptions.unraisable
    try:
        yield interruptions
    finally:
        interruptions.stop_listening()
        sys.unraisablehook = interruptions.other_hook
        if to_the_end:
            previous.pop(signal.SIGINT, None)
        for number, handler in previous.items():
            signal.signal(number, handler)


class Interruptions:
    """The handlers, and what they need to know of each other."""

    def __init__(self) -> None:
        self._listening = True
        # The signal that became Interrupted, or 0; later ones do not disturb the clearing up.
        self._raised: int = 0
        # What is raised while the hook runs is lost for good.
        self._in_hook = False
        self.other_hook = sys.unraisablehook

    def stop_listening(self) -> None:
        """Nothing interrupts from here on."""
        self._listening = False

    def by_hand(self, number: int, frame: FrameType | None) -> None:
        """Handler of SIGINT."""
        if self._in_hook:
            _send_again(number)
        elif self._listening:
            raise _CtrlC

    def by_signal(self, number: int, frame: FrameType | None) -> None:
        """Handler of SIGTERM and SIGUSR1."""
        if self._in_hook:
            _send_again(number)
        elif self._listening and not self._raised:
            self._raised = number
            name = signal.Signals(number).name
            raise Interrupted(f"{name} received; start the same command again to go on")

    def unraisable(self, lost: "sys.UnraisableHookArgs") -> None:
        """Sends again what came while an object was being deleted: Python prints it there, and goes on."""
        self._in_hook = True
        try:
            if isinstance(lost.exc_value, KeyboardInterrupt):
                _send_again(signal.SIGINT)
            elif isinstance(lost.exc_value, Interrupted) and self._raised:
                number, self._raised = self._raised, 0
                _send_again(number)
            else:
                self.other_hook(lost)
        finally:
            self._in_hook = False


def _send_again(number: int) -> None:
    """Not here and now, where it would be lost again; on a busy machine the thread may be earlier than its start."""
    again = threading.Timer(_AGAIN_AFTER, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()
