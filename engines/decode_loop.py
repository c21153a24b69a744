"""Decode loop: read a prompt, decode tokens, and write every step to the recording."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from capture.native.emit import Emitter, now
from engines.decoder import PROMPT_CHUNK, Decoder
from engines.fused.run_ahead import RunAhead
from engines.host.engine_commands import Commands, Control
from engines.host.heartbeat import Heartbeat
from engines.host.op_runners import OpRunner, OpTimestamps, PlanWriter
from engines.host.tokenizer_text import TextCodec
from engines.plan import plan_host_op

CALLBACK = plan_host_op("callback")
TOKEN_DECODE = plan_host_op("token_decode")
PREFILL_TAKES_NO_PROMPT = "prefill mode accepts no prompts: it reads a made-up one again and again"


class RunLimits(NamedTuple):
    """When to stop, and how many tokens one report holds."""

    steps: int = 0  # 0: until the end token or the end of the context
    tokens_per_report: int = 1
    interactive: bool = False  # wait for further prompts


@dataclass
class StepBlock:
    """Decode steps that are reported as one."""

    start: int
    tokens: int = 0  # of each sequence
    timestamps: list[tuple[OpTimestamps, int]] = field(default_factory=list)


class DecodeEngine:
    """Connects a decoder and the runner of its ops to an emitter."""

    def __init__(
        self,
        decoder: Decoder,
        text: TextCodec,
        emitter: Emitter,
        heartbeat: Heartbeat,
        commands: Commands,
        limits: RunLimits,
        runner: OpRunner,
        run_ahead: RunAhead | None = None,
        run_idle_work: Callable[[], bool] | None = None,
    ) -> None:
        """`run_idle_work` runs between two reports, and returns whether it took time."""
        self._decoder, self._text, self._emitter = decoder, text, emitter
        self._heartbeat, self._limits = heartbeat, limits
        self._runner, self._run_ahead = runner, run_ahead
        self._run_idle_work = run_idle_work or (lambda: False)
        set_mode = (run_ahead or runner).set_mode
        self._control = Control(commands, emitter, heartbeat, set_mode, self._queue_prompt)
        self._plan_writer = PlanWriter(emitter)
        self._decode_ids: list[int] = []
        self._device = decoder.state.ids.device
        self._batch = decoder.state.batch
        self._position = 0
        self._step = 0
        self._prompts: list[str] = []

    def fill_context(self, context: int) -> None:
        """Start with a made-up past: times and bytes are then those of a long context."""
        random = torch.Generator(self._device).manual_seed(0)
        for cache in self._decoder.caches:
            cache.fill(random, context)
        self._position = context

    def run(self, prompt: str) -> None:
        """Answer the prompt, then every one from stdin, until told to end."""
        self._prompts.append(prompt)
        while not self._control.has_ended:
            if self._prompts:
                self._answer_prompt(self._prompts.pop(0))
            elif not self._limits.interactive or self._control.is_closed:
                return
            else:
                self._control.wait_idle("waiting for a prompt")

    def warm_up(self) -> None:
        """Run one step unrecorded: the first of its kind also pays for initialisation."""
        self._decoder.set_input(torch.zeros_like(self._decoder.state.ids), self._position)
        self._runner.run(OpTimestamps(now()))
        if self._run_ahead:
            self._run_ahead.warm_up(self._position)

    def run_prefills(self, length: int) -> None:
        """Read a made-up prompt again and again from the start; decode nothing."""
        ids = [n % self._decoder.spec.vocab for n in range(length)]
        self._decoder.set_input(self._slice_prompt(ids, 0), 0)
        self._runner.run(OpTimestamps(now()))  # not written: the first pays for what the others find ready
        self._heartbeat.write_status(f"prefills of {length} tokens")
        self._control.refuse_prompts(PREFILL_TAKES_NO_PROMPT)
        self._step = 1
        while not self._control.has_ended and self._step <= (self._limits.steps or self._step):
            self._position = 0
            self._prefill_prompt(ids)
            self._control.run_commands()

    def _slice_prompt(self, ids: list[int], start: int) -> torch.Tensor:
        return torch.tensor(ids[start : start + PROMPT_CHUNK], device=self._device).expand(self._batch, -1)

    def _answer_prompt(self, prompt: str) -> None:
        ids = self._text.encode(prompt)
        capacity_left = self._decoder.capacity - self._position
        if len(ids) >= capacity_left:
            self._position, ids = 0, ids[: self._decoder.capacity - 1]
            self._emitter.mark("the context is full: starting again", "note")
        self._heartbeat.write_status(f"prefill of {len(ids)} tokens")
        token = self._prefill_prompt(ids)
        self._heartbeat.write_status("capturing")
        self._decode_tokens(token)
        if self._run_ahead:
            self._run_ahead.drop_queued_steps()

    def _prefill_prompt(self, ids: list[int]) -> int:
        """Read the prompt in chunks, recorded as one step; return the first token."""
        first = timestamps = OpTimestamps(now())
        for start in range(0, len(ids), PROMPT_CHUNK):
            chunk = self._slice_prompt(ids, start)
            timed_ops = self._runner.select_timed_ops(self._decoder.plan_step(chunk.shape[1], self._position))
            op_ids = self._plan_writer.assign_ids((*timed_ops, TOKEN_DECODE))
            timestamps = OpTimestamps(timestamps.end)
            self._decoder.set_input(chunk, self._position)
            self._runner.run(timestamps)
            token = self._read_token(timestamps)
            self._position += chunk.shape[1]
            timestamps.write(self._emitter, op_ids, step=self._step, phase="prefill", context=self._position)
            self._write_device("prefill")
        duration = timestamps.end - first.times[0]
        self._emit_step(first.times[0], duration, "prefill", len(ids) * self._batch)
        self._step += 1
        return token

    def _decode_tokens(self, token: int) -> None:
        """Decode tokens, one by one or run ahead, in blocks of one report each."""
        if self._run_ahead:
            self._run_ahead.set_input(self._decoder.sampler.token, self._position)
        left = self._limits.steps or self._decoder.capacity
        end = now()
        while left > 0 and not self._is_over(token):
            count = min(self._limits.tokens_per_report, left, self._decoder.capacity - self._position)
            queue_next = left > count and self._position + count < self._decoder.capacity
            if self._run_ahead and self._run_ahead.prepare(self._position, count + queue_next):
                end = now()  # what was compiled belongs to no step
            block = StepBlock(end)
            token = (
                self._decode_block_ahead(self._run_ahead, block, count, queue_next=queue_next)
                if self._run_ahead
                else self._decode_block(block, count)
            )
            end = block.timestamps[-1][0].end
            left -= block.tokens
            self._report_block(block, end)
            ran_commands, did_idle_work = self._control.run_commands(), self._run_idle_work()
            if ran_commands or did_idle_work:
                end = now()
        if self._position >= self._decoder.capacity:
            self._emitter.mark("the context is full", "note")

    def _decode_block(self, block: StepBlock, count: int) -> int:
        """Decode tokens one after the other, up to the end token; return the last one."""
        token, end = 0, block.start
        for _ in range(count):
            token = self._decode_token(block, end)
            end = block.timestamps[-1][0].end
            if token in self._decoder.spec.eos:
                break
        return token

    def _decode_block_ahead(self, replay: RunAhead, block: StepBlock, count: int, *, queue_next: bool) -> int:
        """Queue all tokens of a block at once; return the last one, and drop those after an end token.

        With `queue_next` the first token of the next block is queued, too.
        """
        timestamps = OpTimestamps(block.start)
        timestamps.mark()
        tokens = replay.run(timestamps, self._position, count, queue_next=queue_next)
        end_positions = [i for i, token in enumerate(tokens, 1) if token in self._decoder.spec.eos]
        decoded = tokens[: end_positions[0] if end_positions else count]
        self._position += len(decoded)
        self._write_text("".join(map(self._text.decode_token, decoded)))
        timestamps.mark()
        block.timestamps.append((timestamps, self._position))
        block.tokens += len(decoded)
        assign_ids, context = self._plan_writer.assign_ids, self._position
        replay.write(self._emitter, assign_ids, step=self._step, phase="decode", context=context)
        return decoded[-1]

    def _is_over(self, token: int) -> bool:
        is_full = self._position >= self._decoder.capacity
        return self._control.has_ended or bool(self._prompts) or is_full or token in self._decoder.spec.eos

    def _decode_token(self, block: StepBlock, start: int) -> int:
        timestamps = OpTimestamps(start)
        self._decoder.set_input(self._decoder.sampler.token[:, None], self._position)
        timestamps.mark()
        self._runner.run(timestamps)
        token = self._read_token(timestamps)
        self._position += 1
        block.timestamps.append((timestamps, self._position))
        block.tokens += 1
        self._write_device("decode")
        return token

    def _read_token(self, timestamps: OpTimestamps) -> int:
        """Wait for the token of a step, and write its text."""
        token = int(self._decoder.sampler.token[0])
        self._write_text(self._text.decode_token(token))
        timestamps.mark()
        return token

    def _write_text(self, text: str) -> None:
        if text:
            self._emitter.mark(text, "text")

    def _report_block(self, block: StepBlock, end: int) -> None:
        if not self._decode_ids:
            rows = (CALLBACK, *self._runner.select_timed_ops(self._decoder.plan_step()), TOKEN_DECODE)
            self._decode_ids = self._plan_writer.assign_ids(rows)
        for timestamps, context in block.timestamps:
            facts = {"step": self._step, "phase": "decode", "context": context}
            timestamps.write(self._emitter, self._decode_ids, **facts)
        self._emit_step(block.start, end - block.start, "decode", block.tokens * self._batch)
        self._step += 1

    def _emit_step(self, start: int, duration: int, phase: str, tokens: int) -> None:
        self._emitter.step(
            self._step, start, duration, phase=phase, tokens=tokens, context=self._position, batch=self._batch
        )
        self._heartbeat.touch()

    def _write_device(self, phase: str) -> None:
        facts = {"step": self._step, "phase": phase, "context": self._position}
        self._runner.write(self._emitter, self._plan_writer.assign_ids, **facts)

    def _queue_prompt(self, prompt: str) -> str:
        """Queue a prompt; there is no answer to write."""
        self._prompts.append(prompt)
        return ""
