"""Runs the scheduler's steps on the wall clock, each as long as the performance model says.

Steps follow each other on a timetable: the next begins when the last was due to end, not when the
process came round to it, so that small delays do not add up. Should the process fall behind by more than
`GRACE_S` (a busy machine), the timetable is moved and the delay logged. An engine that schedules ahead has decided the
next step when a sequence arrives: it is seen one step later (vllm/v1/engine/core.py, 0.24.0 519-594).
"""

import asyncio
import random
import time
from collections.abc import Callable

from tokenpeak.predict.physics import StepTime, request_s, step_time_s, turns_s
from tokenpeak.sim.engine_metrics import Counters
from tokenpeak.sim.scheduler import Scheduler, Step
from tokenpeak.sim.sequence import Sequence
from tokenpeak.sim.settings import Settings
from tokenpeak.sim.simulated_node import Meter

GRACE_S = 0.25
_EARLY_S = 0.0015
"""The event loop's timers count milliseconds: it wakes this much early, and the rest is slept exactly."""

ACCEPTANCE = 0.7
"""Share of drafted tokens that are accepted, each given that those before it were."""


class Pace:
    """The engine's heart. `flush` is called at the end of each step, to send what its sequences were given."""

    def __init__(
        self,
        settings: Settings,
        scheduler: Scheduler,
        counters: Counters,
        meter: Meter,
        *,
        flush: Callable[[], None],
        warn: Callable[[str], None],
        seed: int,
        noise: float,
        speed: float,
    ) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._counters = counters
        self._meter = meter
        self._flush = flush
        self._warn = warn
        self._random = random.Random(seed)  # noqa: S311 - noise, not secrets
        self._noise = noise
        # A relaunch is a source of variance of its own, about half as large as that between steps.
        self._launch_factor = (self._random.lognormvariate(0, noise / 2) if noise else 1.0) / speed
        self._loop = asyncio.get_running_loop()
        self._busy = False
        self._api_free_s = 0.0
        self._unseen: list[Sequence] = []
        """Arrived after the next step was scheduled."""
        self._end_s = 0.0
        self._step: Step | None = None
        self._time: StepTime | None = None
        self._duration_s = 0.0

    def submit(self, sequence: Sequence) -> None:
        """Take a sequence: its core has it once the API server has had time for it, as for those before it."""
        settings = self._settings
        streams = len(self._scheduler.running) / settings.deployment.data_parallel
        taken_s = request_s(sequence.prompt_tokens) / settings.deployment.data_parallel
        self._api_free_s = max(self._api_free_s, time.monotonic()) + taken_s
        self._loop.call_later(self._api_free_s + turns_s(streams) - time.monotonic(), self._queue, sequence)

    def _queue(self, sequence: Sequence) -> None:
        """Queue a sequence; an idle engine starts its next step once the event loop has read all that came with it."""
        if sequence.aborted:
            return
        if self._busy and self._settings.deployment.schedules_ahead:
            self._unseen.append(sequence)
        else:
            self._scheduler.add(sequence)
        self._count_waiting()
        if not self._busy:
            self._busy = True
            self._meter.begins()
            self._loop.call_soon(lambda: self._begin(time.monotonic()))

    def abort(self, sequence: Sequence) -> None:
        """Drop a sequence whose client has gone."""
        if not sequence.aborted:
            if sequence in self._unseen:
                self._unseen.remove(sequence)
            self._scheduler.abort(sequence)
            self._counters.sequence_finished(sequence, "abort", time.monotonic())

    def duration(self, step: Step) -> StepTime:
        """How long a step takes without noise."""
        settings = self._settings
        replicas, stages = settings.deployment.data_parallel, settings.deployment.pipeline_parallel
        share = replicas * min(stages, max(1, step.decode_sequences))
        drafted = step.decode_tokens - step.decode_sequences
        prompts = step.prefill_sequences + (step.decode_sequences if drafted else 0)
        return step_time_s(
            settings.deployment,
            prefill_tokens=-(-(step.prefill_tokens + drafted) // replicas),
            prefill_context_tokens=-(-step.prefill_context_tokens // replicas),
            decode_sequences=-(-step.decode_sequences // share),
            decode_context_tokens=-(-step.decode_context_tokens // share),
            prefill_sequences=max(1, prompts // replicas),
        )

    def _begin(self, start_s: float) -> None:
        counters, scheduler = self._counters, self._scheduler
        step = scheduler.schedule()
        for sequence in self._unseen:
            scheduler.add(sequence)
        self._unseen.clear()
        if step is None and scheduler.waiting:
            step = scheduler.schedule()
        counters.running = len(scheduler.running)
        self._count_waiting()
        counters.kv_usage = scheduler.pool.usage
        counters.prefix_queries, counters.prefix_hits = scheduler.prefix_queries, scheduler.prefix_hits
        counters.preemptions = scheduler.preemptions
        if step is None:
            self._busy = False
            self._meter.idle()
            return
        for sequence, _ in step.scheduled:
            if sequence.scheduled_s is None:
                sequence.scheduled_s = start_s
        self._step, self._time = step, self.duration(step)
        seconds = self._time.total_s * self._launch_factor
        if step.decode_tokens > step.decode_sequences:
            seconds += self._settings.memory.draft_tokens * self._settings.memory.draft_share * self._time.weights_s
        if self._noise:
            seconds *= self._random.lognormvariate(0, self._noise)
        self._duration_s = seconds
        self._end_s = start_s + seconds
        wait_s = self._end_s - time.monotonic() - _EARLY_S
        if wait_s > 0:
            self._loop.call_later(wait_s, self._finish)
        else:
            self._loop.call_soon(self._finish)

    def _count_waiting(self) -> None:
        self._counters.waiting = len(self._scheduler.waiting) + len(self._unseen)

    def _finish(self) -> None:
        left_s = self._end_s - time.monotonic()
        if left_s > 2 * _EARLY_S:
            self._loop.call_later(left_s - _EARLY_S, self._finish)
            return
        if left_s > 0:
            time.sleep(left_s)
        step, now_s = self._step, self._end_s
        assert step is not None and self._time is not None, "a step is being finished"
        self._deliver(step, now_s)
        self._meter.worked(self._time, self._duration_s)
        self._flush()
        late_s = time.monotonic() - now_s
        if late_s > GRACE_S:
            self._warn(f"The simulated engine fell {late_s:.3f} s behind its timetable; this machine is too busy.")
            now_s += late_s
        self._begin(now_s)

    def _deliver(self, step: Step, now_s: float) -> None:
        """Give each sequence that has computed all it knows its next tokens."""
        counters, scheduler = self._counters, self._scheduler
        generated = 0
        gaps: dict[float, int] = {}
        for sequence, tokens in step.scheduled:
            if sequence.aborted:
                continue
            if sequence.decoding:
                new, reason = sequence.generate(self._accepted(sequence, tokens))
                scheduler.computed(sequence, len(new))
            else:
                scheduler.computed(sequence, tokens)
                if sequence.computed < len(sequence.tokens):
                    continue
                sequence.decoding = True
                if not sequence.output_tokens:
                    counters.prompt_tokens += sequence.prompt_tokens
                new, reason = sequence.generate(1)
            generated += len(new)
            if sequence.first_token_s is None:
                sequence.first_token_s = now_s
                counters.ttft.observe(now_s - sequence.arrived_s)
            elif sequence.last_token_s is not None:
                gap = now_s - sequence.last_token_s
                gaps[gap] = gaps.get(gap, 0) + 1
            sequence.last_token_s = now_s
            if reason is not None:
                scheduler.finish(sequence)
                counters.sequence_finished(sequence, reason, now_s)
            sequence.on_tokens(sequence, new, reason)
        for gap, times in gaps.items():
            counters.itl.observe(gap, times)
        counters.generation_tokens += generated
        counters.running, counters.kv_usage = len(scheduler.running), scheduler.pool.usage

    def _accepted(self, sequence: Sequence, tokens: int) -> int:
        """Tokens that a verified draft yields: those accepted in a row, and the one after them."""
        drafts = tokens - 1
        if drafts <= 0:
            return 1
        accepted = 0
        while accepted < drafts and sequence.draw() < ACCEPTANCE:
            accepted += 1
        self._counters.drafts += 1
        self._counters.draft_tokens += drafts
        self._counters.accepted_tokens += accepted
        return accepted + 1
