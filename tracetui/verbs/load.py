"""`tracetui load`: ask a model server for completions, and log when each token came."""

import secrets
import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from types import FrameType
from typing import Final

from capture.errors import EngineError, UsageError
from capture.files.user_dirs import create_private_file, create_recording
from capture.watch.http_client import HttpClient, ServerAddress, read_extra_headers
from capture.watch.load_generator import LoadGenerator, LoadPlan
from capture.watch.server_windows import is_local
from tracetui.verbs import _engine_options, _options, _recording

MAX_CLIENTS: Final = 256
MAX_REQUESTS: Final = 100_000
MAX_SECONDS: Final = 3600.0
MAX_TOKENS: Final = 1 << 20  # of a prompt, or an answer


def options(parser: ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="address of the server: http://HOST:PORT")
    add = _options.find_group(parser, "load").add_argument
    add("--clients", type=_parse_clients, default=4, metavar="N", help="requests at the same time (4)")
    add("--requests", type=_parse_requests, default=100, metavar="N", help="requests in all (100)")
    about = "send no further request after this time: 30s, 5m (default: 1m)"
    add(
        "--for", dest="seconds", type=_engine_options.parse_duration, default=60.0, metavar="TIME", help=about
    )
    about = "tokens of each prompt, or a range, as in 64:2048 (64)"
    add("--prompt-tokens", type=_parse_range, default=(64, 64), metavar="N", help=about)
    add("--tokens", type=_parse_tokens, default=64, metavar="N", help="tokens of each answer (64)")
    add("--model", help="name of the model (default: the first one that the server lists)")
    about = "repeat the prompts of a run with this seed (default: prompts that the server has not cached)"
    add("--seed", type=int, metavar="N", help=about)
    add("--remote", action="store_true", help="load a server that is not on this machine")
    add("-o", "--output", metavar="FILE", help="file for the log of the requests")
    add("--quiet", action="store_true", help="print no summary")


def run(args: Namespace) -> int:
    """Send the requests, print the summary, return the exit code; raise EngineError if none is answered."""
    client = HttpClient(ServerAddress.from_url(args.url), read_extra_headers())
    if not is_local(client) and not args.remote:
        raise UsageError(f"{client.address} is another machine", todo="--remote allows to load it")
    if args.seconds > MAX_SECONDS:
        raise UsageError(f"--for is at most {MAX_SECONDS / 60:.0f}m")
    log = _create_log(args, client)
    seed = secrets.randbits(31) if args.seed is None else args.seed
    plan = LoadPlan(args.clients, args.requests, args.seconds, args.prompt_tokens, args.tokens, seed)
    generator = LoadGenerator(client, plan, log, args.model)
    try:
        end_signal = _run_until_signal(generator)
        if not generator.answered:
            raise EngineError("no request was answered", why=generator.problem or "it was ended before")
    except EngineError:
        if not generator.answered:
            log.unlink(missing_ok=True)
        raise
    _report(args, log, generator)
    return 0 if end_signal in (0, signal.SIGINT) else 128 + end_signal


def _run_until_signal(generator: LoadGenerator) -> int:
    """Run the load; the first signal ends it after what is running. Return that signal, else 0."""
    signals: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        generator.over.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, end) for number in numbers}
    try:
        generator.run()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return signals[0] if signals else 0


def _create_log(args: Namespace, client: HttpClient) -> Path:
    """Create the empty log; raise UsageError if the file exists."""
    if args.output is None:
        return create_recording(f"load-{client.address.host}-{client.address.port}")
    if not create_private_file(Path(args.output)):
        raise UsageError(f"{args.output} already exists", todo="choose another file with -o, or remove it")
    return Path(args.output)


def _report(args: Namespace, log: Path, generator: LoadGenerator) -> None:
    failed = generator.sent - generator.answered
    why = f"; {failed:,} were not ({generator.problem or 'ended'})" if failed else ""
    _options.print_status(f"{generator.answered:,} requests were answered{why}")
    _options.print_status(f"wrote {log}")
    if not args.quiet:
        sys.stdout.write(_recording.format_summary(log, "requests"))


def _parse_count(text: str, limit: int) -> int:
    if not text.isdecimal() or not 1 <= int(text[:12]) <= limit:
        raise ArgumentTypeError(f"invalid number {text!r}: use 1 to {limit:,}")
    return int(text)


def _parse_clients(text: str) -> int:
    return _parse_count(text, MAX_CLIENTS)


def _parse_requests(text: str) -> int:
    return _parse_count(text, MAX_REQUESTS)


def _parse_tokens(text: str) -> int:
    return _parse_count(text, MAX_TOKENS)


def _parse_range(text: str) -> tuple[int, int]:
    low, colon, high = text.partition(":")
    first, last = _parse_tokens(low), _parse_tokens(high if colon else low)
    if last < first:
        raise ArgumentTypeError(f"invalid range {text!r}: use 64 or 64:2048")
    return first, last
