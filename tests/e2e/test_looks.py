"""The admin's pages in the looks of other apps, light and dark: what a visitor must see is seen, and can be used."""

from pathlib import Path

import pytest

from tests.e2e.conftest import BASE, CUT, ROOT

FAULTS = (Path(__file__).parent / "visible.js").read_text()
#: For who wants to see them.
PICTURES = ROOT / "build" / "looks"
DESK = {"width": 1280, "height": 860}
#: The apps that change how the admin looks; the first is the admin itself.
LOOKS = ("", "unfold", "grappelli", "jazzmin")


def pages(seen):
    """Return the name and path of the pages that are looked at, and what their headings say."""
    seen.go("emails/dead/")
    letter = seen.page.eval_on_selector("#result_list tbody th a", "a => a.pathname").removeprefix(BASE)
    seen.go("workflows/")
    run = seen.page.eval_on_selector("#content-main tbody th a", "a => a.pathname").removeprefix(BASE)
    return (
        ("overview", "", "^Queues$"),
        ("prefixes", "?group=prefix", "^Queues$"),
        ("search", "find/?q=user_id%3D7", "^Find messages$"),
        ("search-help", "find/", "^Find messages$"),
        ("schedules", "schedules/", "^Schedules$"),
        ("metrics", "metrics/", "^Metrics$"),
        ("metrics-hosts", "metrics/?by=host&compare=day", "^Metrics$"),
        ("activity", "activity/", "^Activity$"),
        ("publish", "emails/publish/", "emails.*Publish a message$"),
        ("task", "emails/publish/?task=example_project.shop.tasks.send_receipt", "emails.*Run a task$"),
        ("move", "emails/dead/all/move/", r"emails.*Move \d+ dead letters? to another queue\?"),
        ("mute", "problems/mute/?queue=notifications&kind=paused", r"Mute this problem\?"),
        ("workflows", "workflows/", "^Workflows$"),
        ("run", run, "^Run of "),
        ("problems", "problems/", "^Problems$"),
        ("queue", "emails/change/", "^emails$"),
        ("dead-letters", "emails/dead/", "emails.*Dead letters$"),
        ("dead-letter", letter, "emails.*Dead letter$"),
        ("redrive", "emails/dead/all/redrive/", r"emails.*Redrive \d+ dead letters?\?"),
        ("delete", "emails/dead/all/delete/", r"emails.*Delete \d+ dead letters?\?"),
        ("delayed", "emails/delayed/", "emails.*Delayed"),
        ("pause", "pause/", r"Pause all \d+ queues\?"),
        ("consumers", "consumers/", "^Consumers$"),
    )


def cut_on_a_phone(seen, name):
    """Return what a phone shows only after scrolling sideways, and keep a picture."""
    found = []
    for width in (320, 390):
        seen.page.set_viewport_size({"width": width, "height": 844})
        found += [(width, cut) for cut in seen.page.evaluate(CUT)]
    seen.page.screenshot(path=PICTURES / f"{name}.png", full_page=True)
    seen.page.set_viewport_size(DESK)
    return found


@pytest.mark.timeout(600)
def test_what_must_be_seen_is_seen_in_each_look(full, window):
    PICTURES.mkdir(parents=True, exist_ok=True)
    found = []
    for look in LOOKS:
        seen = window(full, look)
        for scheme in ("light", "dark"):
            seen.page.emulate_media(color_scheme=scheme)
            for name, path, heading in pages(seen):
                picture = f"{look or 'admin'}-{name}"
                seen.go(path)
                found += [(picture, scheme, fault) for fault in seen.page.evaluate(FAULTS, heading)]
                seen.page.evaluate("scrollTo(0, 0)")
                seen.page.screenshot(path=PICTURES / f"{picture}-{scheme}.png")
                if scheme == "light":
                    found += [(picture, *cut) for cut in cut_on_a_phone(seen, f"{picture}-phone")]
    assert found == [], "\n".join(map(str, found))
