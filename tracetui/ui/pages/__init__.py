"""What fills the screen between the bands, and the bands: lines and tables, no widgets.

- bands: the lines above and below a page: run and badges, tabs, status, keys
- help_page: the help, the list of guides, and one guide
- input_draft: the line of input that replaces the keys while it is open, as a pure editor
- list_pages: lists to choose from: runs, the history of a row, columns of a table
- text_pages: what is being read, why nothing can be shown, notes, options and output of an engine
"""

from msgspec import Struct

from tracetui.ui.pages.help_page import GuideList, GuidePage, HelpPage
from tracetui.ui.pages.list_pages import ColumnList, RowHistory, RunList
from tracetui.ui.pages.text_pages import LoadingPage, NotesPage, OptionsPage, OutputPage, RefusedPage

# with `draw_lines(size)`
TextPage = HelpPage | GuidePage | LoadingPage | NotesPage | OptionsPage | OutputPage | RefusedPage
# with `answer(session)`, a table whose rows are chosen from
ListPage = RunList | RowHistory | ColumnList | GuideList


class ViewPage(Struct, frozen=True):
    """The answer of the current view."""


Page = ViewPage | TextPage | ListPage
