"""What can fill the screen between the head and the foot."""

from msgspec import Struct

from tracetui.ui.pages.columns import ColumnList
from tracetui.ui.pages.guides import GuideList, GuidePage
from tracetui.ui.pages.help import HelpPage
from tracetui.ui.pages.runs import RunList
from tracetui.ui.pages.texts import LoadingPage, OptionsPage, OutputPage, RefusedPage


class ViewPage(Struct, frozen=True):
    """The answer of the view that the session is on."""


TextPage = (
    HelpPage | GuidePage | LoadingPage | OptionsPage | OutputPage | RefusedPage
)  # each has lines for a size
ListPage = RunList | ColumnList | GuideList  # each has a table whose rows are chosen from
Page = ViewPage | TextPage | ListPage
