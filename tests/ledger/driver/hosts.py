"""Workers: a main process with its heartbeat and passes, and the processes of its pool.

What they do is the package's and Celery's own code; only the event loop and the pool are made here.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import RLock
from types import SimpleNamespace
from typing import Any

from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError
from celery.worker import state
from celery.worker.consumer import Consumer
from kombu.asynchronous.semaphore import LaxBoundedSemaphore
from kombu.transport.redis import Empty

from celery_reliable import clock
from celery_reliable.broker import transport_for
from celery_reliable.context import WorkerProcess
from celery_reliable.native_threads import NativeThread
from celery_reliable.worker.consumer_step import ConsumerStep
from celery_reliable.worker.heartbeat import Heartbeat
from celery_reliable.worker.passes import Passes
from celery_reliable.worker.running_claims import RunningClaims
from celery_reliable.worker.waker import Waker
from celery_reliable.worker.worker_step import WorkerStep
from tests.ledger.driver import shifts
from tests.ledger.driver.schedule import Actor, Process
from tests.ledger.driver.tasks import QUEUE

#: How often kombu's transport looks for messages that nobody acknowledged.
_RESTORE_SECONDS = 10.0


class _Timer:
    """What the event loop does some time."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._repeated: list[list[Any]] = []
        self._once: list[tuple[float, Callable[..., Any], tuple[Any, ...]]] = []

    def call_repeatedly(
        self, seconds: float, function: Callable[..., Any], args: tuple[Any, ...] = ()
    ) -> None:
        self._repeated.append([self._host.now + seconds, seconds, function, args])

    def call_at(
        self, at: float, function: Callable[..., Any], args: tuple[Any, ...] = (), **_: Any
    ) -> object:
        self._once.append((at, function, args))
        return object()

    def call_after(self, seconds: float, function: Callable[..., Any]) -> object:
        return self.call_at(self._host.wall() + seconds, function)

    def turn(self) -> None:
        for entry in self._repeated:
            if entry[0] <= self._host.now:
                entry[0] = self._host.now + entry[1]
                entry[2](*entry[3])
        # An ETA is a time of the host's own clock.
        wall = self._host.wall()
        due = [one for one in self._once if one[0] <= wall]
        self._once = [one for one in self._once if one[0] > wall]
        for _, function, args in due:
            function(*args)

    def next_at(self) -> float:
        """When the next is due, by the host's own clock; 0 for never."""
        return min([at for at, _, _ in self._once], default=0.0)


class _Pool:
    """Runs each request in a process of its own, or in a thread of the main process."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._pool = self
        self.num_processes = host.n_slots

    def maintain_pool(self) -> None:
        """The main loop looks at them in each turn."""

    def stop(self) -> None:
        """Likewise."""

    def terminate_job(self, pid: int, signal: int | None = None) -> None:
        if self._host.pool_name != "prefork":
            raise NotImplementedError
        self._host.world.note(f"{self._host.name} stops its process {pid}")
        self._host.schedule.kill(self._host.world.processes[pid])

    def apply_async(self, trace: Any, args: Any, **callbacks: Any) -> Any:
        return self._host.begin(trace, args, callbacks)


class _Job:
    """One request in the pool."""

    def __init__(self, process: Process, callbacks: dict[str, Any]) -> None:
        self.process = process
        self.callbacks = callbacks
        self.actor: Actor | None = None
        self.result: Any = None
        #: What it raised, as billiard tells it.
        self.error: ExceptionInfo | None = None
        self.is_accepted = False

        #: When it was handed over.
        self.began_ms = 0.0

    @property
    def task_id(self) -> str:
        """Empty for a shift."""
        return str(self.callbacks.get("correlation_id", ""))

    @property
    def is_lost(self) -> bool:
        return not self.process.is_alive and self.result is None and self.error is None

    def terminate(self, signum: int) -> None:
        """billiard notes it only: the pool has stopped the process by then."""


class _Step(WorkerStep):
    """The package's own, without Celery's worker."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        host.identity = host.main.worker = self.process
        self.pool_name = host.pool_name
        self.claims = _Claims(host, self)


class _Claims(RunningClaims):
    """The package's own, which looks into the driver's pool."""

    def __init__(self, host: Host, step: WorkerStep) -> None:
        super().__init__(SimpleNamespace(pool=None), step)
        self._host = host

    def runs(self, claim: Any) -> bool:
        return super().runs(claim) or claim.task_id in self._host.jobs_by_id()


class _Driven(NativeThread):
    """A thread that sleeps in the driver's time."""

    host: Host

    def start_of(self, host: Host, name: str) -> None:
        self.host, self._actor = host, host.schedule.start(host.main, name, self.run)

    def wake(self) -> None:
        self._actor.wake_ms = min(self._actor.wake_ms, self.host.schedule.now_ms + 5)

    def stop_asked(self, wait_seconds: float = 0.0) -> bool:
        if wait_seconds:
            # At rest one of them is enough, and takes less of the real time.
            is_idle = self.host.world.is_resting and not self.host.is_first
            self.host.schedule.sleep(wait_seconds * 4 if is_idle else wait_seconds)
        return self._is_to_stop


class _Passes(_Driven, Passes):
    """The package's own."""


class _Waker(_Driven, Waker):
    """The package's own, which hears no bell, and looks seldom where nothing waits."""

    def __init__(self, step: _Step) -> None:
        super().__init__(step.reliable, step.process.id, step.passes.send)  # type: ignore[union-attr]

    def stop_asked(self, wait_seconds: float = 0.0) -> bool:
        keys = self.host.world.observer.indexes.keys
        n_waiting = self.host.world.stage.ask("ZCARD", keys.begin + "later")
        return super().stop_asked(max(wait_seconds, 1.0 if n_waiting else 10.0))


class _Strategies(dict[str, Any]):
    """What is done with a message, by the name of its task; made when the first one comes."""

    def __init__(self, consumer: Any) -> None:
        super().__init__()
        self._consumer = consumer

    def __missing__(self, name: str) -> Any:
        task = self._consumer.app.tasks[name]
        strategy = task.start_strategy(self._consumer.app, self._consumer)
        # Celery's own goes by the real clock.
        self[name] = partial(strategy, to_timestamp=lambda moment, *_: moment.timestamp())
        return self[name]


class _Consumer(Consumer):  # type: ignore[misc]
    """Celery's own, as far as it handles messages."""

    def __init__(self, host: Host) -> None:
        self.app = host.app
        self.controller = host
        self.hostname = host.name
        self.pool = _Pool(host)
        self.hub = self
        self.timer = _Timer(host)
        self.task_buckets = defaultdict(lambda: None)
        self.disable_rate_limits = True
        self.event_dispatcher = None
        self.connection_errors = host.connection.connection_errors
        self.on_task_request = host.accept
        self.on_task_message = set()
        self.task_consumer = self
        self.accept = None
        self.channel = host.channel
        self.qos = host.prefetch
        self.restart_count = 0
        self.steps = ()
        self._maximum_prefetch_restored = True
        self.strategies = _Strategies(self)

    # The hub's and the consumer's.

    def call_soon(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.controller.soon.append(lambda: function(*args, **kwargs))
        return function

    def apply_eta_task(self, request: Any) -> None:
        state.task_reserved(request)
        self.controller.prefetch.value -= 1
        self.controller.accept(request)


class _Prefetch:
    """Celery's prefetch count, which grows by what waits for its ETA."""

    def __init__(self, value: int, channel: Any) -> None:
        self.value = self.prev = value
        self._channel = channel
        self._mutex = RLock()

    def increment_eventually(self, n: int = 1) -> int:
        self.value += n
        return self.value

    def set(self, value: int) -> None:
        self.value = value
        self.update()

    def update(self) -> None:
        self.prev = self.value
        self._channel.basic_qos(0, self.value, False)


class HostState:
    """What Celery knows of requests, of the worker that asks: here its module is that of all."""

    def __init__(self, world: Any) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(state, name)

    def _is_here(self, request: Any) -> bool:
        actor = self._world.schedule.current
        channel = request.message.channel
        return any(
            one.main is actor.process and one.channel is channel for one in self._world.hosts
        )

    @property
    def requests(self) -> dict[str, Any]:
        return {one: req for one, req in state.requests.items() if self._is_here(req)}

    @property
    def reserved_requests(self) -> list[Any]:
        return [one for one in list(state.reserved_requests) if self._is_here(one)]

    @property
    def active_requests(self) -> list[Any]:
        return [one for one in list(state.active_requests) if self._is_here(one)]


class Host:
    """One worker from its start to its end; `main` is its main process."""

    max_tasks_per_child = max_memory_per_child = time_limit = soft_time_limit = None
    autoscale = autoscaler = pool_cls = None
    prefetch_multiplier = 1
    task_events = False
    state = state

    def __init__(self, world: Any, name: str, *, pool_name: str, n_slots: int) -> None:
        self.world = world
        self.app = world.app
        self.schedule = world.schedule
        self.name = name
        self.hostname = f"celery@{name}"
        self.pool_name = pool_name
        self.n_slots = n_slots
        self.main: Process = world.process(name)
        self.identity: WorkerProcess | None = None
        self.jobs: list[_Job] = []
        #: What is delivered and not yet handed to the pool waits there, as in Celery's.
        self.semaphore = LaxBoundedSemaphore(0)
        self.soon: deque[Callable[[], Any]] = deque()
        self.is_ready = False
        self.n_turns = 0
        #: For how many turns it has not heard what came.
        self._n_unheard = 0
        self.is_stopping = ""
        self.has_ended = False
        self.connection: Any = None
        self.channel: Any = None
        #: As Celery's worker has it.
        self.process_task = self._process_task = self._execute
        self.started_ms = self.schedule.now_ms
        self._actor = self.schedule.start(self.main, "main", self._run)

    @property
    def pool(self) -> Any:
        return self.consumer.pool

    @property
    def waiting(self) -> deque[Any]:
        """A function, and the request that it hands to the pool."""
        return self.semaphore._waiting

    @property
    def queues(self) -> list[str]:
        """What it consumes."""
        own = self.step._direct_queue
        return [QUEUE, own] if own else [QUEUE]

    @property
    def is_up(self) -> bool:
        return self.main.is_alive and not self.has_ended

    @property
    def is_idle(self) -> bool:
        """Whether it could begin something, and has nothing to do."""
        is_able = self.is_up and self.is_ready and not (self.is_stopping or self.main.is_frozen)
        if not is_able or self.jobs or self.waiting or self.identity is None:
            return False
        # A worker whose heartbeat had no turn for as long as its lease takes nothing.
        return self.surely_holds(self.identity.id)

    @property
    def is_first(self) -> bool:
        """Whether it is the first of those that are up."""
        return next((one for one in self.world.hosts if one.is_up), None) is self

    @property
    def now(self) -> float:
        return float(self.world.host_time.monotonic())

    def wall(self) -> float:
        return float(self.world.host_time.time())

    # The main process.

    def _run(self) -> None:
        try:
            self._start()
        except self.world.failures as exc:
            # It exits, and whoever looks after it starts another.
            self.world.note(f"{self.name} does not come up: {exc!r:.80}")
            self.world.events.start_again(self)
            return
        while not self.is_stopping:
            try:
                self._turn()
            except self.world.connection_errors:
                # Celery connects anew after it has given up what was delivered before.
                self._reconnect()
            pauses = (2.0,) if self.world.is_resting else (0.2, 1.0, 1.0)
            self.schedule.sleep(self.world.choice.choice(pauses))
        self._leave()
        self.has_ended = True

    def _start(self) -> None:
        self.step = self.reliable = _Step(self)
        self.step.orders.install()
        self.step.heartbeat = Heartbeat(self.step)
        self.step.heartbeat.register()
        self.schedule.start(self.main, "heartbeat", self.step.heartbeat.run)
        self.step.passes = _Passes(self.step)
        self.step.passes.start_of(self, "passes")
        self.step.waker = _Waker(self.step)
        self.step.waker.start_of(self, "waker")
        if self.world.climate.has_shifts:
            shifts.give(self)
        self._connect()
        self.is_ready = True

    def _connect(self) -> None:
        scheme = self.app.conf.broker_url.split("://", 1)[0]
        while True:
            try:
                self.connection = self.app.connection_for_read(transport=transport_for(scheme))
                self.channel = self.connection.channel()
                self.prefetch = _Prefetch(self.n_slots * 2, self.channel)
                self.consumer = _Consumer(self)
                ConsumerStep(self.consumer).start(self.consumer)
                self.channel.basic_qos(0, self.prefetch.value, False)
                handler = self.consumer.create_task_handler()
                self.consumer.timer.call_repeatedly(_RESTORE_SECONDS, self._restore)
                for queue in self.queues:
                    self.channel.basic_consume(queue, False, handler, consumer_tag=queue)
                return
            except self.world.connection_errors:
                self.schedule.sleep(1.0)

    def unbegun(self) -> list[Any]:
        """The requests that wait for the pool."""
        return [args[0] for _, args, _ in self.waiting]

    def _turn(self) -> None:
        self.n_turns += 1
        self.step.turned_at = self.now
        self.consumer.timer.turn()
        self._hear_the_pool()
        while self.soon:
            self.soon.popleft()()
        self._hand_over()
        if self.prefetch.prev != self.prefetch.value:
            # As Celery's loop does: what waits for its ETA takes nobody's place.
            self.prefetch.update()
        self._fetch()

    def _fetch(self) -> None:
        """Take what has come, and wait for more, as kombu's poller has the channel do."""
        channel = self.channel
        # To find nothing takes time.
        may_find = channel._awaited or channel._n_waiting or self.waits_for_it()
        if self.step.is_leaving or not may_find:
            return
        channel.connection.cycle.on_poll_start()
        # What a wait has moved into the inbox, its worker may not know of before its next turn.
        self._n_unheard += 1
        if self._n_unheard > 2 or self.world.choice.random() < 0.7:
            self._n_unheard = 0
            self._hear()

    def waits_for_it(self) -> str:
        """Return a list, or an inbox, in which there is a message that it may take; empty if there
        is none.
        """
        keys = self.channel.lists(self.queues)
        return next((str(key) for key in keys if self.world.n_queued(key)), "")

    def next_message(self) -> bytes:
        """Return the message that it may take next; empty if there is none."""
        key = self.waits_for_it()
        return self.world.next_in(key) if key else b""

    def _hear(self) -> None:
        """Let the channel hear the end of each of its waits."""
        channel = self.channel
        for name in list(channel._awaited):
            if name in channel._awaited and channel.qos.can_consume():
                with suppress(Empty):
                    (channel.handlers.get(name) or channel._ears[name].handlers[name])()

    def _restore(self) -> None:
        """Do what kombu's transport does with what lies in the hash that all share."""
        channel = self.channel
        limits = channel.unacked_restore_limit, channel.unacked_restore_throttle
        channel.qos.restore_visible(num=limits[0], interval=limits[1])

    def _reconnect(self) -> None:
        self.world.note(f"{self.name} connects anew")
        self.is_ready = False
        ConsumerStep(self.consumer).stop(self.consumer)
        self.waiting.clear()
        for request in set(state.reserved_requests) - set(state.active_requests):
            state.requests.pop(request.id, None)
        state.reserved_requests.clear()
        try:
            self.channel.close()
        except self.world.connection_errors:
            pass
        self._connect()
        self.is_ready = True

    def accept(self, request: Any) -> None:
        """Give the pool what was delivered; what it has no room for waits."""
        self.semaphore.acquire(self._process_task, request)
        self._hand_over()

    def _hand_over(self) -> None:
        while self.waiting and len(self.jobs) < self.n_slots:
            hand_over, args, _ = self.waiting.popleft()
            hand_over(*args)

    def _execute(self, request: Any) -> None:
        try:
            request.execute_using_pool(self.pool)
        except Exception as exc:
            if type(exc).__name__ != "TaskRevokedError":
                raise

    def _hear_the_pool(self) -> None:
        for job in list(self.jobs):
            callbacks = job.callbacks
            if not job.is_accepted:
                job.is_accepted = True
                callbacks["accept_callback"](job.process.pid, self.wall())
            if job.result is not None:
                self.jobs.remove(job)
                callbacks["callback"](job.result)
            elif job.error is not None:
                self.jobs.remove(job)
                callbacks["error_callback"](job.error)
            elif job.is_lost:
                self.jobs.remove(job)
                try:
                    raise WorkerLostError("Worker exited prematurely: signal 9 (SIGKILL)")
                except WorkerLostError:
                    callbacks["error_callback"](ExceptionInfo())

    def _leave(self) -> None:
        """A warm stop ends what runs first, a cold one stops it."""
        self.step.shutdown.leave()
        self.channel.stop_waiting()
        self.waiting.clear()
        if self.is_stopping == "cold" and self.pool_name == "prefork":
            for job in self.jobs:
                self.schedule.kill(job.process)
            self.jobs.clear()
        while self.jobs:
            try:
                self._hear_the_pool()
            except self.world.connection_errors as exc:
                # Celery could not store what became of a plain task.
                self.world.note(f"{self.name} hears its pool, and fails: {exc!r:.80}")
            while self.soon:
                self.soon.popleft()()
            self.schedule.sleep(0.2)
        try:
            self.channel.close()
            self.step.shutdown.finish()
        except self.world.failures as exc:
            # Celery logs what a step raises, and ends.
            self.world.note(f"{self.name} does not end well: {exc!r:.80}")
        self.schedule.kill(self.main)

    # The pool.

    def _quick_acquire(self, hand_over: Callable[[Any], Any], job: Any) -> None:
        """A shift is for a slot that is free."""
        hand_over(job)

    def begin(self, trace: Any, args: Any, callbacks: dict[str, Any]) -> _Job:
        """Run a request in the pool."""
        is_prefork = self.pool_name == "prefork"
        process = self.world.process("child", self.main) if is_prefork else self.main
        job = _Job(process, callbacks)
        job.began_ms = self.schedule.now_ms
        self.jobs.append(job)

        def run() -> None:
            try:
                job.result = trace(*args)
            except Exception:
                job.error = ExceptionInfo()
            self.wake()

        job.actor = self.schedule.start(process, f"job of {self.name}", run)
        return job

    def wake(self) -> None:
        """Let the main loop turn, as it hears something."""
        for actor in self.main.actors:
            if actor.name.endswith("/main"):
                actor.wake_ms = min(actor.wake_ms, self.schedule.now_ms + 5)

    def jobs_by_id(self) -> set[str]:
        """The ids of what the pool was handed and has not ended."""
        return {job.task_id for job in self.jobs}

    def tasks_of(self, job: _Job) -> list[str]:
        """The ids of what a process has: its request's, or those that its shift has claimed."""
        return [job.task_id] if job.task_id else shifts.claimed_in(self, job)

    def next_eta_ms(self) -> float:
        """For how long the next message that has an ETA waits."""
        next_at = self.consumer.timer.next_at() if self.is_ready else 0.0
        return max(0.0, next_at - self.wall()) * 1000

    # Ends.

    def processes(self) -> list[Process]:
        return [self.main, *(job.process for job in self.jobs if job.process is not self.main)]

    def has_heard(self, at_ms: float) -> bool:
        """Whether its heartbeat has moved since."""
        found = [one for one in self.main.actors if one.name.endswith("/heartbeat")]
        return not found or found[0].moved_ms > at_ms

    def surely_holds(self, name: str, in_seconds: float = 0.0) -> bool:
        """Whether its main process is sure of the lease *name*, by its own clock, and will be in
        so many seconds.
        """
        if self.identity is None or self.main.is_frozen:
            return False
        before, self.schedule.current = self.schedule.current, self._actor
        try:
            is_for_long = clock.now() + in_seconds < self.identity.lease_until
            return is_for_long and self.identity.surely_holds(name)
        finally:
            self.schedule.current = before

    def cut(self) -> None:
        """Let the server see the end of the connection that its witness looks at."""
        step = getattr(self, "step", None)
        if step is not None and step.heartbeat is not None:
            step.heartbeat.connection.disconnect()

    def close(self) -> None:
        """Close what a process would have taken with it."""
        step = getattr(self, "step", None)
        if step is not None and step.heartbeat is not None:
            step.heartbeat.connection.close()
            step.heartbeat.connection._waker.close()
            step.heartbeat.connection._woken.close()
        for pool in () if self.channel is None else (self.channel._pool, self.channel._async_pool):
            if pool is not None:
                pool.disconnect()
