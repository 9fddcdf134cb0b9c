"""Leaving on a signal: at the next optimiser step during training, at once before and after it."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

from seqtrain.distributed.ranks import CAUGHT, all_max


class Interrupted(BaseException):
    """The run was asked to leave by a signal; it can be resumed."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Signals:
    """Catch SIGTERM, SIGINT and SIGUSR1 while this context is entered.

    A second signal leaves at once if this process is `alone`. One of several processes gets each signal more than once.
    Outside the main thread no signal is caught: Python delivers signals to the main thread only.
    """

    CAUGHT = CAUGHT

    def __init__(self, *, alone: bool = True) -> None:
        self.alone = alone
        self.received: int | None = None
        self.agreed: int | None = None  # differs from `received`: a signal may come after the exchange
        self._deferred = False
        self._former: dict[int, object] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            self._former = {number: signal.signal(number, self._handle) for number in self.CAUGHT}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, former in self._former.items():
            if former is None:  # one that C code had set, which Python cannot put back
                former = signal.SIG_DFL
            signal.signal(number, former)  # type: ignore[arg-type]

    def defer(self) -> None:
        """Only note signals from here on. This sets the handlers again, because Lightning has replaced them."""
        self._deferred = True
        for number in self._former:
            signal.signal(number, self._handle)

    def at_once(self) -> None:
        """Leave at once on a signal from here on."""
        self._deferred = False
        self.leave()

    def agree(self) -> None:
        """Share a signal noted by one process with all of them; every process calls this at the same steps."""
        self.agreed = all_max(self.received or 0) or None

    def leave_together(self) -> None:
        """Raise Interrupted if a signal was agreed upon: in every process or in none."""
        if self.agreed is not None:
            raise Interrupted(self.agreed)

    def leave(self) -> None:
        """Raise Interrupted if this process noted a signal, at a point where it waits for no other process."""
        if self.received is not None:
            raise Interrupted(self.received)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, self.received = self.received is not None, number
        if (again and self.alone) or not self._deferred:
            raise Interrupted(number)
