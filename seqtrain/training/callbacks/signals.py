"""Leaving on a signal: at the next optimiser step during training, at once before and after it."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType

from seqtrain.distributed.ranks import CAUGHT, all_max

EXCHANGE_EVERY, MOST_STEPS = 0.5, 100  # seconds, or steps if they are fewer, between exchanges of several processes


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
        self._exchanged: tuple[int, float] | None = None  # step and time of the last exchange
        self._next_exchange = 0  # step
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

    def agree(self, step: int) -> None:
        """Share a signal noted by one process with all of them; every process calls this after the same steps.

        In an exchange the processes wait for each other, so steps of less than half a second share one.
        """
        if self.alone:
            self.agreed = self.received
        elif step >= self._next_exchange:
            self.agreed = all_max(self.received or 0) or None
            before, self._exchanged = self._exchanged, (step, time.monotonic())
            if before is not None:  # by the slowest process, so that all choose the same step
                microseconds = all_max(round(1e6 * (self._exchanged[1] - before[1])) // (step - before[0]))
                self._next_exchange = step + min(MOST_STEPS, int(1e6 * EXCHANGE_EVERY) // max(microseconds, 1))

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
