"""The input line: which keys open it, and what becomes of what was typed."""

import asyncio
from collections.abc import Sequence
from typing import Final

from textual import events

from capture.errors import CaptureError
from capture.run import Run
from capture.text import clean
from tracetui.look import Look
from tracetui.ui import export_file, keys, path_completion
from tracetui.ui.comparing import LISTS, Comparing
from tracetui.ui.messages import Told
from tracetui.ui.pages.prompt import Draft, edited
from tracetui.views import View

TYPING: Final = 0.12  # seconds after the last letter
BOUND: Final = frozenset(key for each in keys.bindings() for key in each.key.split(","))


class Drafting(Comparing):
    """The desk with a line to type in."""

    _pattern = ""  # the last filter, for n and N

    def do_filter(self) -> None:
        if self.page == "view":
            hint = "a regular expression; Enter keeps it, Esc clears it"
            self.draft = Draft.of("filter", hint, self.session.look.filter)
            self.show_bands()
        elif self.page in LISTS:
            self._ask_for_file("")

    def _ask_for_file(self, path: str) -> None:
        self.draft = Draft.of("file", "a path; Tab completes it, Enter reads it", "").typed(path)
        self.show_bands()

    def do_export(self) -> None:
        if self.page == "view":
            hint = f"Enter writes it, Tab goes on: {' '.join(export_file.FORMATS)}"
            self.draft = Draft.of("export", hint, export_file.proposed(self.view))
            self.show_bands()

    def on_key(self, event: events.Key) -> None:
        """A key of the input line; one that was overtaken by its closing is pressed again."""
        if self.screen is not self.main:
            return  # the palette has its own
        if self.draft is None:
            if event.key in BOUND:
                self.simulate_key(event.key)
        elif event.key == "enter":
            self._take(self.draft)
        elif event.key == "escape":
            self._drop(self.draft)
        elif event.key == "tab" and self.draft.purpose == "file":
            self.run_worker(self._complete_path(self.draft), group="paths", exclusive=True)
        elif event.key == "tab" and self.draft.purpose == "export":
            self._edit(self.draft.holding(export_file.other_ending(self.draft.text)))
        else:
            self._edit(edited(self.draft, event.key, event.character))

    def on_paste(self, event: events.Paste) -> None:
        """Where runs are listed, what comes is the path of another one."""
        if self.draft is not None:
            self._edit(self.draft.typed(event.text))
        elif self.page in LISTS:
            self._ask_for_file(event.text.strip())

    async def _complete_path(self, draft: Draft) -> None:
        """The disk may be slow: the line waits for nothing."""
        text, names = await asyncio.to_thread(path_completion.completed, draft.text)
        if draft is self.draft:
            self._edit(draft.holding(text))
            if len(names) != 1:
                self.tell("  ".join(names) if names else "no file begins like this")

    def _edit(self, draft: Draft) -> None:
        changed, self.draft = draft != self.draft, draft
        if changed:
            self.show_bands()
            if draft.purpose == "filter":
                self.set_timer(TYPING, lambda: self._typed(draft))

    def _typed(self, draft: Draft) -> None:
        """The rows follow once the fingers rest."""
        if draft is self.draft:
            self._filter(draft.text)

    def _take(self, draft: Draft) -> None:
        self.draft = None
        if draft.purpose == "filter":
            self._filter(draft.text)
        elif draft.purpose == "prompt":
            self.send_prompt(draft.text)
        elif draft.purpose == "engine":
            self.leave_options()
            self.send_arguments(draft.text)
        elif draft.purpose == "file":
            self._read_file(draft.text)
        else:
            self._export(draft.text.strip())
        self.show_bands()

    def _read_file(self, text: str) -> None:
        if text.strip():
            self.fetch(path_completion.meant(text))

    def _drop(self, draft: Draft) -> None:
        self.draft = None
        if draft.purpose == "filter":
            self._filter("")
        self.leave_options()
        self.show_bands()

    def _filter(self, pattern: str) -> None:
        self._pattern = pattern or self._pattern
        if pattern != self.session.look.filter:
            self.become(self.session.looking(filter=pattern, cursor=(0, 0)))

    def _export(self, name: str) -> None:
        """Written by the background thread, from the same question that is in sight."""
        view, runs, look = self.view, self.session.asked(self.view), self.session.look
        picture = self.export_screenshot(title="tracetui") if name.lower().endswith(".svg") else None
        self._latest.start(lambda: self.post_message(Told(exported(name, picture, view, runs, look))))


def exported(name: str, picture: str | None, view: View, runs: Sequence[Run], look: Look) -> str:
    """What became of an export, in a sentence."""
    from tracetui.report import report

    try:
        format = export_file.format_of(name)
        text = picture if picture is not None else report(view, runs, look, format)
        return f"wrote {clean(str(export_file.save(name, text)), 500)}"
    except CaptureError as e:
        return f"{e.where or name}: {e.what}" + (
            f" ({e.why})" if e.why else f"; {e.todo}" if not e.where else ""
        )
