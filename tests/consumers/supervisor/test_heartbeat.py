"""Who lives, who does not, and who must not believe that it does."""

import time
from dataclasses import replace

import pytest

from mq_django.conf import get_config
from mq_django.consumers import processes
from mq_django.consumers.service import held_for, interval
from mq_django.consumers.supervisor.heartbeat import Announcement, Heartbeat, HeartbeatCallbacks, Silence
from mq_django.consumers.supervisor.supervisor import Supervisor
from mq_django.errors import ConnectionLost
from mq_django.stores.members import Members
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled


@pytest.mark.parametrize("timeout", [0.5, 1, 2, 10, 30, 3600])
def test_nobody_is_judged_while_it_may_believe_that_it_lives(timeout):
    """A beat is seen at its moment at the earliest, and judged a timeout later: by then its sender has stopped."""
    assert 0 < held_for(timeout) < timeout
    # Seen an interval after it was made, a last beat is judged soon after the visibility timeout.
    assert interval(timeout) <= 0.15 * timeout
    # Who stands still for four fifths of the timeout just before a beat goes on.
    assert interval(timeout) + 0.8 * timeout < held_for(timeout)


#: A silence that has been long enough at the second look.
AT_ONCE = 1e-9


class Watch:
    """A silence of 10 s with a look every 2 s."""

    def __init__(self):
        self.silence = Silence(10.0, 3.0)
        self.now = 0.0

    def check(self, signs, after=2.0, blind=0.0):
        self.now += after
        return self.silence.observe(signs, self.now, blind=blind)


#: By what happens, the looks at one that does not change, as (seconds after the last one, of these without an answer of
#: Redis), and whether it is silent at the end. Trouble gives it a full time.
LOOKS = {
    "it stands still for the whole time": ([(2.0, 0.0)] * 6, True),
    "nearly the whole time": ([(2.0, 0.0)] * 5, False),
    "redis did not answer": ([(2.0, 0.0), (30.0, 29.0), *[(2.0, 0.0)] * 4], False),
    "redis did not answer, and then it stands still": ([(2.0, 0.0), (30.0, 29.0), *[(2.0, 0.0)] * 5], True),
    "we were stopped": ([(2.0, 0.0), (3600.0, 0.0), *[(2.0, 0.0)] * 3], False),
    "we were stopped, and then it stands still": ([(2.0, 0.0), (3600.0, 0.0), *[(2.0, 0.0)] * 4], True),
}


def test_who_stands_still_for_the_whole_time_is_silent(subtests):
    for name, (looks, is_silent) in LOOKS.items():
        with subtests.test(name):
            watch = Watch()
            found = [watch.check({"a": 1}, after, blind) for after, blind in looks]
            assert found == [[]] * (len(looks) - 1) + [["a"] if is_silent else []]


def test_a_sign_that_changes_is_alive_also_when_it_goes_back():
    watch = Watch()
    assert not any(watch.check({"a": number}) for number in [5, 6, 7, 1, 2, 3, 9, 9, 9])


def test_who_goes_and_comes_back_or_is_forgotten_begins_anew():
    watch = Watch()
    [watch.check({"a": 1}) for _ in range(5)]
    assert watch.check({}) == []
    [watch.check({"a": 1}) for _ in range(5)]
    watch.silence.forget()
    assert not any(watch.check({"a": 1}) for _ in range(5))


def test_the_next_decision_is_known_beforehand():
    watch = Watch()
    assert watch.silence.next_decision() == 10.0
    [watch.check({"a": 1}) for _ in range(4)]
    watch.check({"a": 1, "b": 1})
    assert watch.silence.next_decision() == 2.0
    watch.check({"a": 1, "b": 1})
    # One that is silent already is not waited for.
    assert watch.silence.next_decision() == 8.0


def test_each_is_judged_by_its_own_limit():
    watch = Watch()
    watch.silence.observe({"patient": 1, "hasty": 1, "other": 1}, 0.0)
    limits = {"patient": 20.0, "hasty": 3.0}
    found = [watch.silence.observe({"patient": 1, "hasty": 1, "other": 1}, at, limits=limits) for at in (2.0, 4.0)]
    assert found == [[], ["hasty"]]
    assert watch.silence.next_decision() == 6.0
    later = [watch.silence.observe({"patient": 1, "other": 1}, at, limits=limits) for at in range(6, 22, 2)]
    assert [at for at, names in zip(range(6, 22, 2), later, strict=True) if "patient" in names] == [20]


class WorkerSet:
    """Records what a heartbeat tells."""

    def __init__(self, supervisor="me", **description):
        self.supervisor = supervisor
        self.description = description
        self.consumers = {"me-1": {"pid": 1}}
        self.told = []
        self.names = frozenset()

    def callbacks(self):
        def tell(kind):
            return lambda *args: self.told.append((kind, *args[:2]))

        kinds = ("evicted", "dead", "unknown", "asked")
        return HeartbeatCallbacks(
            self.announce,
            self.held,
            *map(tell, kinds),
            names=self.named,
            requests=lambda *_: None,
            members=lambda *_: None,
        )

    def announce(self):
        return Announcement(self.supervisor, self.description, self.consumers)

    def held(self, number, announcement, moment, since):
        self.told.append(("held", number, moment))

    def named(self, number, names):
        self.names = names

    def kinds(self):
        return [told[0] for told in self.told]


@pytest.fixture
def config(mq_settings):
    mq_settings(QUEUES={"default": {"VISIBILITY_TIMEOUT": 7}})
    return get_config().queue("default")


@pytest.fixture
def members(config):
    return Members(config, Pooled(get_client("chores")))


@pytest.fixture
def workers():
    return WorkerSet()


@pytest.fixture
def heartbeat(config, workers):
    return Heartbeat({0: config}, workers.callbacks())


def test_a_beat_announces_for_less_than_others_wait(heartbeat, workers):
    began = time.monotonic()
    pause = heartbeat.run_once()
    ((kind, number, moment),) = workers.told
    assert (kind, number) == ("held", 0)
    assert began <= moment - held_for(7) <= time.monotonic()
    assert 0 < pause <= interval(7)


def test_a_beat_tells_who_there_is(heartbeat, members):
    heartbeat.run_once()
    membership = members.beat("other", {}, {})
    assert membership.consumers_of("me") == ["me-1"]
    assert membership.heartbeat_counts() == {"me": 1, "other": 1}


def test_evicted_it_says_so_and_writes_nothing(heartbeat, workers, members, redis_client, config):
    heartbeat.run_once()
    assert members.evict("me", 1)
    workers.told.clear()
    heartbeat.run_once()
    assert workers.kinds() == ["evicted"]
    assert redis_client.hget(config.keys.consumers, "beat:me") is None
    # Under another name it is somebody else.
    workers.supervisor = "me-again"
    heartbeat.run_once()
    assert workers.kinds() == ["evicted", "held"]


def test_a_flush_is_no_eviction_and_is_told(heartbeat, workers, redis_client, config, caplog):
    heartbeat.run_once()
    assert "data_loss_suspected" not in caplog.text
    redis_client.delete(config.keys.consumers, config.keys.control)
    heartbeat.run_once()
    assert workers.kinds() == ["held", "held"]
    assert "data_loss_suspected: queue default" in caplog.text
    caplog.clear()
    heartbeat.run_once()
    assert caplog.text == ""


def test_who_ran_here_and_has_gone_is_dead_at_once(heartbeat, workers, members):
    here = processes.here()._asdict()
    gone = {**here, "pid": 2**22 - 1, "started": "1"}
    members.beat("dead-here", gone, {"dead-here-1": gone})
    members.beat("orphan-here", gone, {"orphan-here-1": {**here, "pid": 1, "started": processes.started(1)}})
    members.beat("reused-pid", {**here, "pid": 1, "started": "1"}, {})
    members.beat("other-boot", {**gone, "boot": "x"}, {})
    members.beat("other-container", {**gone, "pids": "pid:[1]"}, {})
    members.beat("says-nothing", {}, {})
    heartbeat.run_once()
    assert {told[2] for told in workers.told if told[0] == "dead"} == {"dead-here", "reused-pid"}


@pytest.mark.parametrize("says", [{"visibility_ms": 100}, {"visibility_ms": 3_600_000}, {"visibility_ms": -1}, {}])
def test_a_peer_is_judged_by_the_timeout_that_it_announces(config, members, says):
    heartbeat = Heartbeat({0: config}, WorkerSet().callbacks())
    members.beat("peer", says, {})
    heartbeat.run_once()
    announced = {100: 0.1, 3_600_000: 3600.0}.get(says.get("visibility_ms"), 7.0)
    assert heartbeat._silences[0].next_decision() == pytest.approx(announced, abs=0.05)


def test_a_beat_announces_the_timeout_that_its_supervisor_goes_by(heartbeat, members):
    heartbeat.run_once()
    assert members.beat("other", {}, {}).supervisors["me"]["visibility_ms"] == 7000


def test_a_beat_announces_which_options_are_not_the_default(config, members):
    changed = replace(config, max_attempts=3)
    Heartbeat({0: changed}, WorkerSet().callbacks()).run_once()
    options = members.beat("other", {}, {}).supervisors["me"]["options"]
    assert options == get_config().digests_of(changed)
    assert "MAX_ATTEMPTS" in options


def test_a_beat_passes_on_the_names_that_consumers_announce(heartbeat, workers, members):
    members.beat("node", {}, {"node": {"names": ["b", "c"]}, "old": {}, "odd": {"names": "x"}})
    members.beat("ending", {}, {"ending": {"names": ["d"], "state": "stopping"}, "still": {"names": ["a", 7]}})
    heartbeat.run_once()
    assert workers.names == {"a", "b", "c"}
    members.leave(["node"], supervisor="node")
    heartbeat.run_once()
    assert workers.names == {"a"}


def test_a_silent_one_is_told_again_until_it_is_gone(config, members):
    workers = WorkerSet()
    heartbeat = Heartbeat({0: config}, workers.callbacks())
    heartbeat._silences[0] = Silence(AT_ONCE, 10.0)
    members.beat("silent", {}, {})
    heartbeat.run_once()
    for _ in range(2):
        heartbeat.run_once()
    assert [told[1:] for told in workers.told if told[0] == "dead"] == [(0, "silent")] * 2
    members.leave([], supervisor="silent")
    workers.told.clear()
    heartbeat.run_once()
    assert workers.kinds() == ["held"]


def test_a_consumer_that_left_is_struck_off_and_stays_so(heartbeat, workers, redis_client, config):
    heartbeat.run_once()
    workers.consumers = {}
    heartbeat.depart(0, "me-1")
    heartbeat.run_once()
    assert redis_client.hget(config.keys.consumers, "consumer:me-1") is None


def test_a_consumer_that_nobody_speaks_for_is_told_by_what_it_holds(config, members, redis_client, publish):
    workers = WorkerSet()
    heartbeat = Heartbeat({0: config}, workers.callbacks())
    heartbeat._unknown[0] = Silence(AT_ONCE, 10.0)
    publish()
    redis_client.xgroup_create(config.keys.ready, "mq", id="0")
    redis_client.xreadgroup("mq", "stray", {config.keys.ready: ">"})
    membership = members.beat("other", {}, {})
    assert list(membership.unknown) == ["stray"]
    assert membership.unknown["stray"]
    heartbeat.run_once()
    heartbeat.run_once()
    assert ("unknown", 0, "stray") in workers.told


def test_nobody_is_judged_after_an_outage(heartbeat, members, workers):
    heartbeat._silences[0] = Silence(AT_ONCE, 10.0)
    members.beat("silent", {}, {})
    heartbeat.run_once()
    heartbeat.recover(ConnectionLost("away"))
    heartbeat.run_once()
    assert "dead" not in workers.kinds()


def test_every_start_has_a_name_of_its_own():
    """Also where process numbers repeat, as in containers that start again."""
    assert len({Supervisor._new_id() for _ in range(1000)}) == 1000
