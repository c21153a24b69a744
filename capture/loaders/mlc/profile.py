"""WebLLM / MLC-LLM kernel profiles: the printed tables, and the browser console's own records.

Read: tables in Markdown or plain text, a run a section; console records with start and end, or with a
duration alone. Not read: other console messages.
WebLLM: https://github.com/mlc-ai/web-llm
"""

import re
from typing import Final

from capture.loaders.mlc import console, tables
from capture.run import Run
from capture.source import Head, Source

FORMAT: Final = "mlc"
PRODUCER: Final = "a timestamp-query hook on WebLLM / MLC-LLM, its console log or log_analyzer.py's tables"
HOWTO: Final = "paste the hook before WebLLM loads, save the browser console to a file"

_TABLE: Final = re.compile(
    r"^## Profiling Analysis:|Kernel Execution Statistics \(Sorted by Total Time\)|"
    r"^\|? *Kernel Name *\|(?=.*\bPeak[ _]Time)",
    re.MULTILINE,
)


def sniff(head: Head) -> bool:
    return bool(_TABLE.search(head.text)) or console.speaks(head.text)


def load(source: Source) -> list[Run]:
    text = source.text()
    if _TABLE.search(text):
        return tables.runs(text, source.log)
    return console.runs(text, source.log)
