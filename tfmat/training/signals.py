"""Signals that ask a run to stop: noted at once, acted on after the current block."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopRequest:
    """Context manager; inside it `received` is the signal that came, 0 for none.

    A second Ctrl-C stops at once, without saving. Outside the main thread, where Python takes no signals, it does
    nothing.
    """

    def __init__(self) -> None:
        self.received: int = 0
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number
