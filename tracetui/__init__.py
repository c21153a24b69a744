"""Terminal explorer for kernel profiles of LLM inference: open, watch and compare them.

This module is also the Python API: `tracetui.load("prof.jsonl").kernels()` reads a profile into a polars
frame; `Recorder` and `Emitter` record a loop of your own program.

- analysis/: what the views compute from runs
- compare/: pairing, statistics and verdicts of comparisons
- fleet/: one answer about many files, computed in parallel
- guides/: installed guides, glossary and man page
- history/: logs of runs, and how rows change from run to run
- process/: programs and engines that tracetui starts or attaches to
- samples/: installed recordings
- ui/: the screen
- verbs/: the commands, one module each
- views/: a question and its drawing, one module each

- api: `tracetui.load(path)` returns a profile whose views are polars frames
- cli: command line: argv in, exit code out; the only place that prints errors
- engine: the bundled engine as `python -m tracetui.engine`, for launchers such as torchrun that take a module
- filter_syntax: parse filters: `op:attn name:/re/ share:>5`, mixed with a regular expression on names
- glyphs: text and characters in terminal cells: sparklines, bars, widths, short names of kernels
- json_schema: the published JSON schema of `--format json`: reports of every view, queries, errors
- look: options of a view: sort, filter, group, steps, lens
- markdown: escape foreign text for Markdown: no markup, link, image or HTML of it takes effect
- mcp_tools: read-only tools over the profiles of one folder, with bounded answers (MCP)
- package_paths: locate the packages `capture` and `engines`, and import ours, whatever else is on the path
- pr_comment: format a comparison as a pull-request comment: the decision, and folded below it the evidence
- process_tuning: garbage collection, threads of polars and memory kept by the allocators
- report_formats: format the answer of a view as text, Markdown, CSV, JSON or a web page
- saved_choices: columns of views and linked rows that the user chose, in small editable files
- sql: run SQL over a run: its events and the answers of its views are the only tables
- start_menu: menu shown without a file: recent files, recordings, baselines, samples, the tour
- svg_to_png: render the screen's SVG as PNG with the fonts of this machine, without a browser
- token_digest: summarise a run, or the change between two runs, within a token budget
- units: format ns, bytes, shares and other numbers as text; a column's suffix selects the format
- web_page: one self-contained web page of an answer, sorted and searched in the browser
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capture.native.emit import Emitter as Emitter
    from capture.record.spans import Recorder as Recorder

__all__ = ["Emitter", "Recorder", "load"]

_PRIVATE_MODULES = {"Emitter": "native.emit", "Recorder": "record.spans"}


def __getattr__(name: str) -> Any:
    """Import a public name on first use; `Recorder` and `Emitter` come from a private copy of `capture`, so
    that a user's module called `capture` is never touched.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tracetui import package_paths

    module = _PRIVATE_MODULES.get(name)
    value = getattr(package_paths.import_private(module) if module else package_paths.import_api(), name)
    globals()[name] = value
    return value
