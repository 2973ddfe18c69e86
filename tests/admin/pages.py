"""Every page of the admin, with what it takes: what holds on all of them is tested over this table."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.test import Client

from mq_django import topics
from mq_django.admin.message_lists import OF_CHOSEN
from mq_django.core.breakers import hold_score
from mq_django.core.messages import Bury
from mq_django.inspector import actions, holds
from mq_django.inspector import topics as inspected
from mq_django.stores.background_jobs import ACTIONS
from tests.admin.conftest import BASE
from tests.seeding import beat, bury, dead_entry, end_steps, handle, handled_entry, publish, set_aside, start_run

VIEW, DATA = {"view_queue"}, {"view_queue", "view_message_data"}
OPERATE = {"view_queue", "operate_queue"}
PURGE = {"view_queue", "operate_queue", "purge_queue"}
EDIT = {"view_queue", "view_message_data", "operate_queue"}


@dataclass(frozen=True)
class Visit:
    """A request to one page."""

    #: Of the route; those that begin with "=" are Django's own, which we fill.
    name: str
    path: str
    needs: set[str]
    method: str = "get"
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def send(self, client: Client, base: str = BASE, **options: Any) -> Any:
        """Make the request; what stands in braces in its path is found in the queue."""
        return getattr(client, self.method)(base + self.path.format(**PLACES), self.fields, **options)


def is_answered(visit: Visit, response: Any) -> bool:
    """Return whether a page was shown, or what it shows is gone."""
    of_what_may_be_gone = visit.name in ("workflow_run_stats", "line_stats")
    return response.status_code in (200, 302) or (of_what_may_be_gone and response.status_code == 404)


#: What stands in braces, filled by `world()`.
PLACES = {"held": "-1", "dead": "1-1", "logged": "1-1", "handled": "1-1", "run": "0gone0gone", "row": "1"}

YES = {"confirmed": "yes"}

#: The questions of each action on selected messages, and on all of a list.
QUESTIONS = [
    *(
        Visit("chosen", f"emails/{state}/chosen/", needs, "post", {"action": what, "_selected_action": ref})
        for state, verbs in OF_CHOSEN.items()
        for needs, ref in [(EDIT, "1-1.m1") if state == "handled" else (OPERATE, "ready.1-1")]
        for what in verbs
    ),
    *(
        Visit("act_on_all", f"emails/{state}/all/{what}/", PURGE if what == "delete" else OPERATE)
        for state, verbs in ACTIONS.items()
        for what in verbs
    ),
]
#: What is done to schedules.
VERBS = ("pause", "resume", "skip", "unskip", "fire", "restore", "forget", "delete")

VISITS = [
    Visit("=changelist", "", VIEW),
    Visit("=change", "emails/change/", VIEW),
    Visit("=change", "emails/change/?span=week", VIEW),
    Visit("=history", "emails/history/", VIEW),
    Visit("stats", "stats.json", VIEW),
    Visit("=changelist", "?sort=-dead&group=prefix&p=9", VIEW),
    Visit("star", "star/", VIEW, "post", {"star": "emails"}),
    Visit("star", "star/", VIEW, "post", {"unstar": "emails"}),
    Visit("metrics", "metrics/?by=host&compare=day", VIEW),
    Visit("metrics", "metrics/?queue=emails&span=week&of=welcome", VIEW),
    Visit("metrics_figures", "metrics/figures/", VIEW),
    Visit("metrics_json_export", "metrics/export/all.json", VIEW),
    Visit("metrics_csv_export", "metrics/export/steps.csv", VIEW),
    Visit("metrics_rows_export", "metrics/export/rows.csv?by=version", VIEW),
    Visit("problems", "problems/", VIEW),
    Visit("problems_stats", "problems.json", VIEW),
    Visit("problem_mute", "problems/mute/?queue=emails&kind=unconsumed", OPERATE),
    Visit("problem_mute", "problems/mute/?queue=emails&kind=unconsumed", OPERATE, "post", {"span": "4 h", **YES}),
    Visit("problem_unmute", "problems/unmute/?queue=emails&kind=unconsumed", OPERATE),
    Visit("problem_unmute", "problems/unmute/?queue=emails&kind=unconsumed", OPERATE, "post", YES),
    Visit("activity", "activity/", VIEW),
    Visit("activity", "activity/?who=a&verb=pause&source=admin&queue=emails&from=2026-01-01T00:00", VIEW),
    Visit("activity_export", "activity/export/?verb=redrive", VIEW),
    Visit("pause_all", "pause/", OPERATE),
    Visit("pause_all", "pause/", OPERATE, "post", YES),
    Visit("resume_all", "resume/", OPERATE),
    Visit("resume_all", "resume/", OPERATE, "post", {"queue": "emails", **YES}),
    Visit("consumers", "consumers/", VIEW),
    Visit("consumers_stats", "consumers.json", VIEW),
    Visit("quiet", "consumers/s1-c0/quiet/", OPERATE),
    Visit("quiet", "consumers/s1-c0/quiet/", OPERATE, "post", YES),
    Visit("stop", "consumers/s1/stop/", OPERATE),
    Visit("stop", "consumers/s1/stop/", OPERATE, "post", YES),
    Visit("stacks", "consumers/s1-c0/stacks/", VIEW),
    Visit("stacks_stats", "consumers/s1-c0/stacks.json?queue=emails&asked=1", VIEW),
    Visit("outbox", "outbox/", VIEW),
    Visit("outbox", "outbox/?show=waiting&destination=emails", VIEW),
    Visit("outbox_stats", "outbox.json", VIEW),
    Visit("outbox_row", "outbox/rows/default/{row}/", VIEW),
    Visit("outbox_act", "outbox/rows/act/", OPERATE, "post", {"action": "retry", "database": "default"}),
    Visit("outbox_act", "outbox/rows/act/", PURGE, "post", {"action": "discard_all", "database": "default", **YES}),
    Visit("schedules", "schedules/", VIEW),
    Visit("schedules", "schedules/?q=emails&state=paused&start=1", VIEW),
    Visit("workflows", "workflows/", VIEW),
    Visit("workflows", "workflows/?state=failed&name=import", VIEW),
    Visit("workflows_stats", "workflows.json", VIEW),
    Visit("workflow_run", "workflows/run/{run}/", VIEW),
    Visit("workflow_run_stats", "workflows/run/{run}/stats.json", VIEW),
    Visit("workflow_steps", "workflows/run/{run}/steps/?state=failed", VIEW),
    Visit("workflow_cancel", "workflows/run/{run}/cancel/", OPERATE),
    Visit("workflow_cancel", "workflows/run/{run}/cancel/", OPERATE, "post", YES),
    Visit("workflow_retry", "workflows/run/{run}/retry/", OPERATE),
    Visit("workflow_retry", "workflows/run/{run}/retry/", OPERATE, "post", YES),
    Visit("workflow_retry_step", "workflows/run/{run}/retry/1/", OPERATE),
    Visit("workflow_retry_step", "workflows/run/{run}/retry/1/", OPERATE, "post", YES),
    Visit("workflow_cancel_step", "workflows/run/{run}/cancel/2/", OPERATE),
    Visit("workflow_cancel_step", "workflows/run/{run}/cancel/2/", OPERATE, "post", YES),
    Visit("workflow_skip", "workflows/run/{run}/skip/1/", OPERATE),
    Visit("workflow_skip", "workflows/run/{run}/skip/1/", OPERATE, "post", YES),
    Visit("queue_stats", "emails/stats.json", VIEW),
    Visit("messages", "emails/ready/", VIEW),
    Visit("messages", "emails/ready/?name=a", VIEW),
    Visit("messages", "emails/pending/", VIEW),
    Visit("find", "find/?id=later", VIEW),
    Visit("find", "find/?q=name:a+state:dead,ready+since:2d", VIEW),
    Visit("find_stats", "find.json", VIEW, fields={"q": "name:a"}),
    Visit("messages", "emails/handled/", VIEW),
    Visit("messages", "emails/handled/?name=a", VIEW),
    Visit("message", "emails/message/handled/{handled}/", VIEW),
    Visit("old_handled", "emails/handled/1-1/done/", VIEW),
    Visit("old_list", "emails/waiting/delayed/?name=a", VIEW),
    Visit("old_waiting", "emails/waiting/delayed/later/", VIEW),
    Visit("old_entry", "emails/entry/ready/1-1/", VIEW),
    Visit("old_dead", "emails/dead/1-1/", VIEW),
    Visit("message", "emails/message/ready/ready.1-1/", VIEW),
    Visit("message_stats", "emails/message/delayed/later/stream.json", VIEW),
    Visit("cancel", "emails/message/ready/ready.1-1/cancel/", OPERATE),
    Visit("cancel", "emails/message/ready/ready.1-1/cancel/", OPERATE, "post", YES),
    Visit("publish", "emails/publish/", OPERATE),
    Visit("publish", "emails/publish/?state=ready&ref=ready.1-1", OPERATE),
    Visit("publish", "emails/publish/", OPERATE, "post", {"name": "welcome", "data": "7"}),
    Visit("publish", "emails/publish/", OPERATE, "post", {"name": "welcome", "sample": "1"}),
    Visit("publish", "emails/publish/", OPERATE, "post", {"name": "welcome", "data": "7", **YES}),
    Visit("pause", "emails/pause/", OPERATE, "post"),
    Visit("pause", "emails/pause/", OPERATE, "post", YES),
    Visit("resume", "emails/resume/", OPERATE),
    Visit("resume", "emails/resume/", OPERATE, "post"),
    Visit("resume", "emails/resume/", OPERATE, "post", YES),
    Visit("hold", "emails/hold/", OPERATE),
    Visit("hold", "emails/hold/?state=ready&ref=ready.1-1", OPERATE),
    Visit("hold", "emails/hold/", OPERATE, "post", {"name": "welcome", "span": "4 h", **YES}),
    Visit("hold", "emails/hold/", OPERATE, "post", {"probe": "30", **YES}),
    Visit("hold", "emails/hold/", OPERATE, "post", {"name": "a", "key": "b", "span": "soon", "probe": "-1", **YES}),
    Visit("limits", "emails/limits/", OPERATE),
    Visit("limits", "emails/limits/?entry=1-1", OPERATE),
    Visit("limits", "emails/limits/", OPERATE, "post", {"rate": "5/s", "reason": "they asked", **YES}),
    Visit("end_hold", "emails/holds/{held}/release/", OPERATE),
    Visit("end_hold", "emails/holds/{held}/release/", OPERATE, "post", YES),
    # Before what is done: some tests visit only the last of each address.
    *QUESTIONS,
    Visit("messages", "emails/delayed/", VIEW),
    Visit("messages", "emails/delayed/?name=a", VIEW),
    Visit("messages", "emails/unhandled/", VIEW),
    Visit("messages", "emails/parked/", VIEW),
    Visit("message", "emails/message/delayed/later/", VIEW),
    Visit(
        "chosen", "emails/delayed/chosen/", OPERATE, "post", {"action": "cancel", "_selected_action": "later", **YES}
    ),
    Visit("messages", "emails/dead/", VIEW),
    Visit("messages", "emails/dead/?name=a&from=2026-01-01T00:00", VIEW),
    Visit("messages", "emails/dead/?of_name=a&of_error=ValueError", VIEW),
    Visit("dead_groups", "emails/dead/groups/", VIEW),
    Visit("job", "emails/dead/job/", VIEW),
    Visit("job_stats", "emails/dead/job/stats.json", VIEW),
    Visit("job_cancel", "emails/dead/job/cancel/", OPERATE),
    Visit("job_cancel", "emails/dead/job/cancel/", OPERATE, "post", YES),
    Visit("dead_export", "emails/dead/export/", DATA),
    Visit("message", "emails/message/dead/{dead}/", VIEW),
    Visit("dead_edit", "emails/dead/{dead}/edit/", EDIT),
    Visit("dead_edit", "emails/dead/{dead}/edit/", EDIT, "post", {"data": "1", **YES}),
    Visit("chosen", "emails/dead/chosen/", OPERATE, "post", {"action": "delete", "_selected_action": "1-1", **YES}),
    Visit("act_on_all", "emails/dead/all/redrive/", OPERATE, "post", {"until": "1-1", **YES}),
    Visit("act_on_all", "emails/dead/all/move/", OPERATE, "post", {"until": "1-1", "target": "default", **YES}),
    Visit("act_on_all", "emails/dead/all/delete/", PURGE, "post", {"until": "1-1", **YES}),
    Visit("act_on_all", "emails/delayed/all/move/", OPERATE, "post", {"until": "1-0", "target": "default", **YES}),
    Visit("act_on_all", "emails/delayed/all/delete/", PURGE, "post", {"until": "1-0", **YES}),
    Visit("act_on_all", "emails/delayed/all/delete/?name=a", PURGE),
    Visit("job", "emails/delayed/job/", VIEW),
    Visit("job_cancel", "emails/delayed/job/cancel/", OPERATE),
    Visit("old_purge", "emails/purge/delayed/?name=a", VIEW),
    Visit("old_purge", "emails/purge/delayed/", VIEW, "post"),
    Visit("old_job", "emails/job/", VIEW),
    Visit("old_job_cancel", "emails/job/cancel/", VIEW),
    Visit("old_job_cancel", "emails/job/cancel/", VIEW, "post"),
    Visit("figures", "emails/figures/", VIEW),
    Visit("figures", "emails/figures/?span=day&of=welcome", VIEW),
    Visit("line", "emails/line/7/", VIEW),
    Visit("line_stats", "emails/line/7/stats.json", VIEW),
    Visit("line_skip", "emails/line/7/skip/", OPERATE, "post"),
    Visit("line_skip", "emails/line/7/skip/", OPERATE, "post", {"message": "m1", **YES}),
    Visit("line_redrive", "emails/line/7/redrive/", OPERATE, "post"),
    Visit("line_redrive", "emails/line/7/redrive/", OPERATE, "post", {"message": "m1", **YES}),
    *(Visit(f"schedule_{verb}", f"emails/schedule/{verb}/", OPERATE, "post", {"schedule": "gone"}) for verb in VERBS),
    Visit("schedule", "emails/schedule/?schedule=gone", VIEW),
    Visit("schedule_override", "emails/schedule/override/?schedule=gone", OPERATE),
    Visit("schedule_override", "emails/schedule/override/?schedule=gone", OPERATE, "post", {"every": "60"}),
    Visit("schedule_add", "emails/schedule/add/", EDIT),
    Visit("schedule_add", "emails/schedule/add/", EDIT, "post", {"name": "new", "every": "60", "message": "m"}),
    Visit("schedule_add", "emails/schedule/add/", EDIT, "post", {"name": "", "every": "soon"}),
    Visit("schedule_undo", "emails/schedule/undo/", EDIT, "post", {"entry": "1-1"}),
    Visit("schedule_change", "emails/schedule/change/?schedule=gone", EDIT),
    Visit("schedule_change", "emails/schedule/change/?schedule=gone", EDIT, "post", {"every": "60"}),
    *(
        Visit(f"schedule_{verb}", f"emails/schedule/{verb}/", OPERATE, "post", {"schedule": "gone", **YES})
        for verb in VERBS
    ),
    Visit("=change", "orders/change/", VIEW),
    Visit("=change", "orders/change/?span=day", VIEW),
    Visit("=history", "orders/history/", VIEW),
    Visit("topic_stats", "orders/topic.json", VIEW),
    Visit("topic_figures", "orders/published/", VIEW),
    Visit("log", "orders/log/", VIEW),
    Visit("log", "orders/log/?name=order&order=oldest", VIEW),
    Visit("log_entry", "orders/log/{logged}/", VIEW),
    Visit("=change", "orders:billing/change/", VIEW),
    Visit("queue_stats", "orders:billing/stats.json", VIEW),
    Visit("seek", "orders:billing/seek/", OPERATE),
    Visit("seek", "orders:billing/seek/", OPERATE, "post", {"to": "beginning"}),
    Visit("seek", "orders:billing/seek/", OPERATE, "post", {"to": "offset", "offset": "nonsense"}),
    Visit("seek", "orders:billing/seek/", OPERATE, "post", {"to": "end", **YES}),
    Visit("unsubscribe", "orders:billing/unsubscribe/", PURGE, "post"),
    Visit("unsubscribe", "orders:billing/unsubscribe/", PURGE, "post", YES),
]

#: Those that show something and change nothing.
LOOKS = [visit for visit in VISITS if visit.method == "get"]
#: Those that ask before they do something, and those that do it.
POSTS = [visit for visit in VISITS if visit.method == "post"]


def world() -> None:
    """Fill the queue that the pages show, one message in each of its places."""
    handle("emails", "welcome", {"user": 7}, message_id="done")
    PLACES["handled"] = handled_entry("emails")
    publish("emails", "welcome", 1, delay=3600, message_id="later")
    set_aside("emails", "nobody")
    bury("emails", "welcome", {"user": 7})
    publish("emails", "welcome", 2)
    beat("emails", consumers=2)
    PLACES["dead"] = dead_entry("emails")
    PLACES["run"] = start_run({1: [], 2: [], 3: [1, 2]}, policy="continue")
    end_steps(PLACES["run"], Bury(error="ValueError: no", reason="attempts"), 1)
    holds.hold("emails", name="held", reason="the printer burns")
    PLACES["held"] = str(hold_score("name:held"))
    topic = topics["orders"]
    topic.group("billing").subscribe()
    topic.publish_many([("order.paid", {"order": n}) for n in range(3)], on_commit=False)
    PLACES["logged"] = inspected.topic("orders").last


def every_visit() -> Iterator[Visit]:
    """Yield all visits, each in a world that has what it is about: it is made anew for what names a part of it."""
    world()
    # Questions come before anything is done.
    for visit in LOOKS + sorted(POSTS, key=lambda visit: "confirmed" in visit.fields):
        if "confirmed" in visit.fields:
            actions.resume_all()
            if "{" in visit.path or visit.name == "unsubscribe":
                world()
        yield visit


def main_of(response: Any) -> str:
    """Return what a page of ours holds, without the admin's frame."""
    content: str = response.content.decode()
    found = re.search(r'id="content-main".*', content, re.DOTALL)
    return found[0] if found else content
