"""Values to words and HTML."""

import string
from dataclasses import replace
from datetime import timedelta
from math import inf

import pytest
from django.utils import timezone

from mq_django.admin.ui import charts, text
from mq_django.core import clock
from mq_django.core.filters import error_class
from mq_django.inspector.queue_view import NONE, Spread

NOW = 1_790_000_000_000


def test_members_survive_the_way_through_a_url():
    members = [b"", b"_", b"m1", b"u:cart:7", b"a/b", b"..", b".", b"a_b", b"_5F", b"\xff", b"\xff\x00", b"?#%&<>"]
    members += ["ü\u202e".encode(), "ä".encode()]
    made = {member: text.to_url(member) for member in members}

    assert {text.from_url(url) for url in made.values()} == {*members}
    assert "" not in made.values()
    assert {*"".join(made.values())} <= {*string.ascii_letters, *string.digits, *"-~_."}
    assert not {".", ".."} & {*made.values()}


def test_what_somebody_typed_into_a_url_breaks_nothing():
    typed = ["a_zz", "ü", "_", "_5", "a/b"]
    assert [text.from_url(each) for each in typed] == [each.encode() for each in typed]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (
            text.duration,
            {
                0: "0 s",
                # What is not nothing is not shown as nothing.
                1: "< 1 s",
                999: "< 1 s",
                119_999: "119 s",
                120_000: "2 min",
                7_200_000: "2 h",
                259_200_000: "3 d",
                10**14: "1,157,407 d",
            },
        ),
        # What is configured is not rounded.
        (
            lambda seconds: text.period(timedelta(seconds=seconds)),
            {0: "0 s", 0.2: "0.2 s", 10: "10 s", 150: "150 s", 180: "3 min", 5400: "90 min", 86_400: "1 d"},
        ),
        (text.rate, {0.4: "", 9.9: "10/min", 599: "599/min", 120_000: "2,000/s"}),
        (
            text.seconds,
            {
                None: "",
                0.0: "< 0.1 ms",
                0.00004: "< 0.1 ms",
                0.0001: "0.1 ms",
                0.00042: "0.4 ms",
                0.042: "42 ms",
                1.23: "1.2 s",
                inf: "over 7 min",
            },
        ),
        # A small share is not nothing.
        (text.percent, {None: "", 0.0: "0 %", 0.002: "under 1 %", 0.126: "13 %", 1: "100 %"}),
        # The name of an error, without its text.
        (
            error_class,
            {
                "ValueError: user 7 has no address": "ValueError",
                "smtplib.SMTPServerDisconnected": "smtplib.SMTPServerDisconnected",
                "there is no field data": "",
                "<b>": "",
                "": "",
            },
        ),
    ],
    ids=["durations", "periods", "rates", "seconds", "shares", "errors"],
)
def test_values_are_told(told, words):
    assert {value: told(value) for value in words} == words


def test_moments():
    said = {NOW - 3000: ">3 s ago<", NOW + 90_000: ">in 90 s<", NOW: ">0 s ago<", 10**20: str(10**20)}
    assert [ms for ms, words in said.items() if words not in text.moment(ms, now=NOW)] == []
    assert text.moment(None) == ""


def test_a_time_is_relative_and_its_date_is_in_the_time_zone_of_the_viewer():
    with timezone.override("Asia/Tokyo"):
        short, long = (text.moment(NOW - 180_000, now=NOW, exact=exact) for exact in (False, True))
    date = "2026-09-21 23:10:20+09:00"
    assert short == f'<time datetime="2026-09-21T14:10:20.000+00:00" title="{date}">3 min ago</time>'
    assert f">{date}, 3 min ago<" in long


def test_all_times_of_a_page_are_relative_to_one_time_of_redis(monkeypatch):
    asked = iter((NOW, NOW + 60_000))
    monkeypatch.setattr(text, "redis_now_ms", lambda: next(asked))
    with text.one_time():
        assert [text.now_ms(), text.now_ms()] == [NOW, NOW]
    assert text.now_ms() == NOW + 60_000


@pytest.mark.usefixtures("mq_settings")
def test_the_time_of_a_page_is_that_of_redis_not_of_this_process():
    clock.set_shift(7200)
    try:
        assert abs(text.now_ms() + 7_200_000 - clock.now_ms()) < 3_600_000
    finally:
        clock.set_shift(0)


def test_html_from_elsewhere_is_escaped_and_isolated():
    assert text.visible("<b>\u202e") == '<bdi>&lt;b&gt;<span class="mq-odd">U+202E</span></bdi>'
    assert text.visible_bytes(b"\xff<") == "<bdi>\\xff&lt;</bdi>"
    assert "&lt;/script&gt;" in text.pretty({"x": "</script>"})


def test_charts_of_nothing_are_drawn():
    assert "<svg" in charts.sparkline(NONE.handled, label="x")
    assert charts.columns(NONE, label="x").svg.count("<g>") == 60
    assert charts.columns(NONE, label="x").scale[0] == "2/min"


@pytest.mark.parametrize(
    ("highest", "scale"),
    [
        (0, "2"),
        (3, "4"),
        (11, "12"),
        (21, "30"),
        (51, "60"),
        (100, "100"),
        (101, "120"),
        (2010, "3,000"),
        (9_999, "10,000"),
    ],
)
def test_the_scale_of_a_chart_ends_near_its_highest_column(highest, scale):
    chart = charts.columns(replace(NONE, published=(highest, 0)), label="x", stacks=charts.PUBLISHED)
    top, half, zero = (int(label.partition("/")[0].replace(",", "")) for label in chart.scale)
    assert (chart.scale[0], half * 2, zero) == (f"{scale}/min", top, 0)


def test_labels_of_charts_are_escaped():
    assert '"><script>' not in charts.sparkline([1, 2], label='"><script>')


def test_times_are_drawn_from_p50_to_p95_on_a_scale_of_powers_of_ten():
    steps = (Spread(), Spread(0.01, 0.1), Spread(0.1, inf))
    activity = replace(NONE, published=(0, 1, 1), took_each=steps)
    chart = charts.spreads(steps, activity, label="x", kind="mq-took")

    assert chart.scale[0] == "1,000 s"
    assert chart.scale[-1] == "10 ms"
    assert chart.svg.count('class="mq-took"') == 2
    # 10 ms stand at the foot, what has no end at the top.
    assert '<rect class="mq-half" x="10" y="98.0" width="10" height="2"/>' in chart.svg
    assert '<rect class="mq-took" x="21" y="0.0" width="8" height="80.0"/>' in chart.svg
    assert ": p50 100 ms, p95 over 7 min" in chart.svg


def test_a_meter_is_never_more_than_full_and_its_label_is_escaped():
    assert 'width="100.0"' in charts.meter(7, label="x", bad=True)
    assert 'width="0.0"' in charts.meter(-1, label="x", bad=False)
    assert '"><script>' not in charts.meter(0.5, label='"><script>', bad=False)
