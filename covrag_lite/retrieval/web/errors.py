"""What can go wrong out there, each as one sentence that holds nothing a stranger wrote, unless `show` has tamed it."""


class PageError(Exception):
    """A page could not be had; the sentence says why and is frozen in the page's place."""


class TryAgain(PageError):
    """A page could not be had now, but perhaps after so many seconds; None leaves the pause to us."""

    def __init__(self, sentence: str, pause: float | None = None):
        super().__init__(sentence)
        self.pause = pause


class SearchError(RuntimeError):
    """A provider could not be asked, or an answer is not in the snapshot; what was found before is kept."""


def show(text: str, most: int = 100) -> str:
    """A stranger's text for a sentence of ours: quoted, in plain ASCII on one line, not too long."""
    return ascii(text if len(text) <= most else f"{text[:most]}...")
