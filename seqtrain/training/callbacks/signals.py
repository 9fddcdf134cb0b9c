"""Stopping on a signal: at the next optimiser step during training, immediately before and after it."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType

from seqtrain.distributed.ranks import CAUGHT, all_max

EXCHANGE_EVERY, MOST_STEPS = 0.5, 100  # seconds, or steps if they are fewer, between exchanges of several processes


class Interrupted(BaseException):
    """A signal stopped the run; it can be resumed."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Signals:
    """Catch SIGTERM, SIGINT and SIGUSR1 while this context is entered.

    A second signal stops at once if this process is `alone`; each of several processes gets signals more than once.
    Outside the main thread no signal is caught: Python delivers signals to the main thread only.
    """

    CAUGHT = CAUGHT

    def __init__(self, *, alone: bool = True) -> None:
        self.alone = alone
        self.received: int | None = None
        self.agreed: int | None = None  # differs from `received` if a signal comes after the exchange
        self._deferred = False
        self._exchanged: tuple[int, float] | None = None  # step and time of the last exchange
        self._next_exchange = 0  # step
        self._former: dict[int, object] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            outer = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
            if isinstance(outer, Signals):  # Python discards what its handler raises within an import or a destructor
                outer.leave()
            self._former = {number: signal.signal(number, self._handle) for number in self.CAUGHT}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, former in self._former.items():
            if former is None:  # set by C code, which Python cannot restore
                former = signal.SIG_DFL
            signal.signal(number, former)  # type: ignore[arg-type]

    def defer(self) -> None:
        """From here on only record signals. This sets the handlers again, because Lightning has replaced them."""
        self._deferred = True
        for number in self._former:
            signal.signal(number, self._handle)

    def at_once(self) -> None:
        """From here on stop at once on a signal."""
        self._deferred = False
        self.leave()

    def agree(self, step: int) -> None:
        """Share a signal received by one process with all others; every process calls this after the same steps.

        In an exchange the processes wait for each other, so exchanges are at least half a second apart.
        """
        if self.alone:
            self.agreed = self.received
        elif step >= self._next_exchange:
            self.agreed = all_max(self.received or 0) or None
            before, self._exchanged = self._exchanged, (step, time.monotonic())
            if before is not None:  # use the slowest process, so that all choose the same step
                microseconds = all_max(round(1e6 * (self._exchanged[1] - before[1])) // (step - before[0]))
                self._next_exchange = step + min(MOST_STEPS, int(1e6 * EXCHANGE_EVERY) // max(microseconds, 1))

    def leave_together(self) -> None:
        """Raise Interrupted if a signal was agreed upon: in every process or in none."""
        if self.agreed is not None:
            raise Interrupted(self.agreed)

    def leave(self) -> None:
        """Raise Interrupted if this process received a signal, where it does not wait for other processes."""
        if self.received is not None:
            raise Interrupted(self.received)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, self.received = self.received is not None, number
        if (again and self.alone) or not self._deferred:
            raise Interrupted(number)
