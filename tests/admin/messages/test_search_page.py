"""The search over all queues on its page: step by step, by permission, and with actions on what was found."""

import re
from datetime import timedelta
from urllib.parse import quote

import pytest

from mq_django import topics
from mq_django.admin import find_page
from tests.admin.conftest import BASE
from tests.admin.pages import main_of
from tests.seeding import bury, bury_many, handle, publish, take

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

FIND = f"{BASE}find/"
WANTED = {"customer": "C-9999"}


def ids_of(groups):
    """Return the ids that are shown of each list."""
    return {group["key"]: [re.sub("<[^>]+>", "", row["id"]) for row in group["rows"]] for group in groups}


def ask(client, query, **more):
    return client.get(FIND, {"q": query, **more})


def test_each_page_has_the_field_and_the_page_of_the_search_its_text(viewer):
    for path in ("", "emails/change/", "emails/dead/", "consumers/", "find/"):
        assert f'action="{FIND}"' in main_of(viewer.get(BASE + path))
    assert 'id="mq-search" name="q" value="name:&lt;b&gt;"' in main_of(ask(viewer, "name:<b>"))
    assert "What can be searched for" in main_of(viewer.get(FIND))


def test_what_is_found_is_grouped_with_its_list_and_its_actions(operator):
    topics["orders"].group("billing").subscribe()
    dead = bury("emails", "welcome", WANTED)
    delayed = publish("default", "welcome", WANTED, delay=60)
    logged = topics["orders"].publish("order.paid", WANTED, on_commit=False)
    bury("emails", "welcome", {"customer": "C-1"})

    response = ask(operator, "customer=C-9999 since:2d")
    groups = response.context["step"]["groups"]

    assert ids_of(groups) == {"dead emails": [dead], "delayed default": [delayed], "log orders": [logged]}
    (done, total) = re.search(r"(\d+) of (\d+) lists were searched", response.context["step"]["said"]).groups()
    assert done == total
    for group in groups:
        (row,) = group["rows"]
        assert row["id"] in main_of(operator.get(group["list_url"]))
        assert operator.get(row["url"]).status_code == 200
    assert [what for what, _ in groups[0]["actions"]] == ["redrive", "move", "delete"]
    fields = {"action": "redrive", "_selected_action": groups[0]["rows"][0]["ref"], "confirmed": "yes"}
    assert operator.post(groups[0]["act_url"], fields).status_code == 302
    assert ask(operator, "customer=C-9999 state:dead").context["step"]["groups"] == []


def test_a_list_is_linked_only_if_it_can_have_the_same_filter(operator, mq_settings, subtests):
    mq_settings(QUEUES={"default": {}, "emails": {"HISTORY": {"AGE": timedelta(days=3), "DATA": True}}})
    handle("emails", "welcome", {"note": "voucher"})
    wanted = publish("emails", "welcome", {"note": "coupon"})
    publish("emails", "welcome", 1, message_id="coupon")
    for query, linked in (
        (f"id:{wanted}", {"ready emails": False}),
        ("coupon", {"ready emails": False}),
        ("note=coupon since:2h", {"ready emails": True}),
        ("voucher", {"handled emails": True}),
        ("voucher since:2h", {"handled emails": False}),
    ):
        with subtests.test(query=query):
            found = ask(operator, query)
            groups = found.context["step"]["groups"]
            assert {group["key"]: bool(group["list_url"]) for group in groups} == linked
            assert ("Open the list" in main_of(found)) is any(linked.values())


def test_a_search_goes_on_by_the_link_and_by_the_browser(operator, monkeypatch):
    ids = bury_many("emails", 70)
    response = ask(operator, "name:welcome state:dead")
    first, step = response.context["step"]["groups"], response.context["step"]
    assert step["count"] == 50
    shown = main_of(response)
    assert "Continue" in shown
    assert "50" in step["said"]

    onward = operator.get(step["next_url"]).json()
    rest = re.findall(r'<th scope="row" class="mq-id"><a [^>]*>(?:<bdi>)?([^<]+)', onward["parts"]["found"])
    assert sorted(ids_of(first)["dead emails"] + rest) == sorted(ids)
    assert (onward["count"], onward["next_url"]) == ("70", "")

    second = operator.get(step["go_on_url"])
    assert second.context["step"]["count"] == 70
    assert "From the beginning" in main_of(second)


def test_lists_that_cannot_be_read_are_named_and_count_as_not_searched(operator, mq_settings, tmp_path, monkeypatch):
    far = {f"far{number:02}": {"CONNECTION": f"unix://{tmp_path}/nobody.sock"} for number in range(12)}
    mq_settings(QUEUES={"emails": {}, **far})
    monkeypatch.setattr(find_page, "STEP", 30.0)
    bury_many("emails", 60)
    first = ask(operator, "name:welcome state:dead,delayed queue:emails,far*").context["step"]
    assert (first["failed"], first["said"][:29]) == ([], "Found 50. 0 of 26 lists searc")

    onward = operator.get(first["next_url"])
    assert "failed=0" in first["next_url"]
    assert onward.json()["said"].startswith("Found 60. 2 of 26 lists were searched, and ")
    (shown,) = re.findall(r'<p class="errornote"[^>]*>([^<]*)', onward.json()["parts"]["found"])
    assert shown.startswith("far00, far01, far02")
    assert "far09, 2 more: Cannot reach Redis" in shown

    onward = operator.get(first["go_on_url"].replace("failed=0", "failed=1"))
    assert onward.context["step"]["said"].startswith("Found 60. 1 of 26 lists were searched")


def test_each_word_can_be_taken_away(operator):
    chips = ask(operator, 'name:a "b c" queue:emails').context["chips"]
    assert [chip["url"] for chip in chips][1] == f"{FIND}?q=name%3Aa+queue%3Aemails"
    (chip,) = ask(operator, "name:a").context["chips"]
    assert chip["url"] == FIND


def test_an_id_comes_first_and_holds_the_search(operator):
    message_id = publish("default", "welcome", 1, delay=60)
    publish("emails", "welcome", {"of": message_id})
    response = ask(operator, message_id)
    assert [row["state"] for row in response.context["rows"]] == ["delayed"]
    assert response.context["step"]["groups"] == []
    assert "Search the data of all messages" in main_of(response)
    assert "data-mq-go-on" not in main_of(response)

    onward = re.search(r'href="([^"]+)">Search the data', main_of(response))[1].replace("&amp;", "&")
    assert [group["key"] for group in operator.get(onward).context["step"]["groups"]] == ["ready emails"]


def test_who_may_not_see_data_neither_searches_it_nor_counts(log_in, operator):
    viewer = log_in("view_queue", "operate_queue", "purge_queue")
    bury("emails", "welcome", WANTED, key="C-9999", error="ValueError: C-9999")
    ready = publish("emails", "welcome", WANTED)
    held = publish("default", "welcome", 1)
    take("default", 1)
    for query in ("customer=C-9999", "C-9999 state:dead", '"C-9999" x', "key:C-9999", "error:C-9999", "u:C-9999"):
        for path in ("find/", "find.json"):
            response = viewer.get(f"{BASE}{path}?q={quote(query)}")
            assert response.status_code == 400, query
            assert "You do not have permission to search" in response.content.decode()
    # A word alone is an id.
    assert ask(viewer, "C-9999").context["step"]["groups"] == []
    for message_id in (ready, held):
        groups = ask(viewer, message_id).context["step"]["groups"]
        assert [*ids_of(groups).values()] == [[message_id]]
    shown = main_of(ask(viewer, "name:welcome"))
    assert "ValueError" in shown
    assert "C-9999" not in shown.replace("customer=C-4242", "")
    assert ask(operator, "C-9999").context["step"]["count"] == 2


def test_an_odd_query_is_a_sentence_and_nothing_is_read(operator):
    """Which are odd is a matter of `inspector.search`."""
    for path in ("find/", "find.json"):
        response = operator.get(f"{BASE}{path}", {"q": "name:a name:b"})
        assert response.status_code == 400
        assert response.templates[0].name.endswith("refused.html")


def test_an_odd_address_is_harmless(operator):
    for query in ("q=a&after=x%00&seen=-1&found=9e9", "q=a&after=3+log+x+", "q=%00", "q=" + "a" * 2000):
        for path in ("find/", "find.json"):
            assert operator.get(f"{BASE}{path}?{query}").status_code in (200, 400)
    assert operator.get(f"{BASE}find.json").status_code == 400
