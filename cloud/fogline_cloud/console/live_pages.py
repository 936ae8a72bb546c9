"""Pages that renew a part of themselves, bounded in number: each is a request every two seconds. Pure."""

from collections import OrderedDict
from typing import Final

MAX_PAGES: Final = 200
"""Open pages that renew themselves, of all users."""
MAX_OF_SESSION: Final = 20
"""Those of one session."""
SILENT_S: Final = 10.0
"""A page that has not asked for so long is closed."""
EVERY_S: Final = 2
"""How often a page asks."""
MAX_NAME: Final = 40

_Page = tuple[str, str]


class LivePages:
    """The open pages, by session and a name that each has. A page beyond the bounds is told to stop."""

    def __init__(self) -> None:
        self._seen_s: OrderedDict[_Page, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen_s)

    def may_renew(self, session: str, name: str, now_s: float) -> bool:
        """Return True if a page may go on, and note that it has asked."""
        while self._seen_s and now_s - next(iter(self._seen_s.values())) > SILENT_S:
            self._seen_s.popitem(last=False)
        page = session, name[:MAX_NAME]
        if page not in self._seen_s:
            of_session = sum(each[0] == session for each in self._seen_s)
            if len(self._seen_s) >= MAX_PAGES or of_session >= MAX_OF_SESSION:
                return False
        self._seen_s[page] = now_s
        self._seen_s.move_to_end(page)
        return True
