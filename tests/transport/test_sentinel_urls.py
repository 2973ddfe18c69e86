"""A URL names a master by its Sentinels: what it may say, and what is said when it leads nowhere."""

import contextlib
import re
import shutil

import pytest
from redis.connection import SSLConnection
from redis.sentinel import SentinelConnectionPool

from mq_django.checks import check_connection
from mq_django.core.redaction import redact_text
from mq_django.errors import ConfigurationError, ConnectionLost, ConnectionRejected
from mq_django.producers.queues import queues
from mq_django.transport.capabilities import examine
from mq_django.transport.connections import TIMEOUTS, get_client, open_session
from mq_django.transport.private_server import PrivateServer
from mq_django.transport.sentinel_urls import MasterFinder
from tests.certificates import TLSServer
from tests.sentinel_rig import MASTER, running_sentinel
from tests.shell import free_port
from tests.waiting import wait_until

FILES = {"cert": "server.pem", "key": "server.key", "ca-cert": "ca.pem"}


@pytest.fixture(scope="module")
def master():
    with PrivateServer(tcp=True, settings={"appendonly": "yes"}) as server:
        yield server


@pytest.fixture(scope="module")
def sentinel(master):
    with running_sentinel(master.port) as found:
        yield found


def pool_to(mq_settings, url):
    mq_settings(CONNECTION=url)
    return get_client("produce").connection_pool


def asked(pool):
    """Return the options for each Sentinel."""
    return [each.connection_pool.connection_kwargs for each in pool.sentinel_manager.sentinels]


def test_a_url_names_the_master_its_log_in_and_the_sentinels(mq_settings):
    pool = pool_to(
        mq_settings,
        "redis+sentinel://u%40x:p%2Fw@s1,s2:26380,[::1]:7/my-shop/3?sentinel_username=su&sentinel_password=s%26p",
    )
    assert isinstance(pool, SentinelConnectionPool)
    assert pool.service_name == "my-shop"
    found = pool.connection_kwargs
    assert (found["username"], found["password"], found["db"]) == ("u@x", "p/w", 3)
    assert [(each["host"], each["port"]) for each in asked(pool)] == [("s1", 26379), ("s2", 26380), ("::1", 7)]
    assert {(each["username"], each["password"], each["db"]) for each in asked(pool)} == {("su", "s&p", 0)}


def test_what_a_url_says_about_pools_and_time_limits_is_dropped(mq_settings):
    foreign = "socket_timeout=99&protocol=3&max_connections=1&decode_responses=1&health_check_interval=1"
    pool = pool_to(mq_settings, f"redis+sentinel://s1/shop?{foreign}")
    found = pool.connection_kwargs
    assert (found["socket_connect_timeout"], found["socket_timeout"]) == TIMEOUTS["produce"]
    assert (found["protocol"], found["decode_responses"], found.get("db", 0)) == (2, False, 0)
    assert pool.max_connections > 1000
    assert [(each["socket_timeout"], each["protocol"]) for each in asked(pool)] == [(1.0, 2)]


def test_with_tls_master_and_sentinels_have_the_same_ca(mq_settings):
    pool = pool_to(mq_settings, "rediss+sentinel://s1/shop/0?ssl_ca_certs=/etc/ca.pem&ssl_cert_reqs=none")
    (sentinel,) = pool.sentinel_manager.sentinels
    for each in (pool, sentinel.connection_pool):
        assert issubclass(each.connection_class, SSLConnection)
        assert each.connection_kwargs["ssl_ca_certs"] == "/etc/ca.pem"
        assert each.connection_kwargs["ssl_cert_reqs"] == "none"


def test_what_cannot_be_used_is_said_before_anything_is_connected(mq_settings, subtests):
    for url, said in [
        ("redis+sentinel://s1", "must name a master"),
        ("redis+sentinel://s1:26379/", "must name a master"),
        ("redis+sentinel://s1/my%20shop/0", "must name a master"),
        ("redis+sentinel:///shop/0", "HOST or HOST:PORT"),
        ("redis+sentinel://u:p@/shop/0", "HOST or HOST:PORT"),
        ("redis+sentinel://s1,/shop/0", "HOST or HOST:PORT"),
        ("redis+sentinel://s1:0/shop/0", "from 1 to 65535"),
        ("redis+sentinel://s1:70000/shop/0", "from 1 to 65535"),
        ("redis+sentinel://s1:port/shop/0", "from 1 to 65535"),
        ("redis+sentinel://::1/shop/0", "IPv6 in brackets"),
        ("redis+sentinel://[::1/shop/0", "IPv6 in brackets"),
        ("redis+sentinel://s1/shop/first", "its database is not a number"),
        ("redis+sentinel://s1/shop/0/1", "its database is not a number"),
        ("redis+sentinel://s1/shop?db=first", "'db'"),
        ("redis+sentinel://s1/shop?max_conections=5", "max_conections"),
        ("redis+sentinel://s1/shop?is_master=0", "'is_master' is not an option"),
        ("redis+sentinel://s1/shop?sentinel_pasword=secret", "'sentinel_pasword' is not an option"),
        ("rediss+sentinel://s1/shop?ssl_cert_reqs=some", "some"),
        ("redis+sentinel://user:top/secret@s1/shop", "percent-encoded"),
        ("redis+sentinel://user:top#secret@s1/shop", "percent-encoded"),
    ]:
        with subtests.test(url=url, said=said):
            mq_settings(CONNECTION=url)
            with pytest.raises(
                ConfigurationError, match=rf'(?s)MQ_DJANGO\["CONNECTION"\].*{re.escape(said)}'
            ) as caught:
                queues["emails"].publish("welcome", 1)
            assert "secret" not in str(caught.value)
            assert [message.id for message in check_connection()] == ["mq_django.E008"]


def test_a_cache_with_the_same_master_and_database_is_a_neighbour(settings, mq_settings):
    mq_settings(CONNECTION="redis+sentinel://user:p@s1/shop/2")
    cache = {"BACKEND": "django_redis.cache.RedisCache", "OPTIONS": {"SENTINELS": [("s1", 26379)]}}
    settings.CACHES = {"default": {**cache, "LOCATION": "redis://shop/2"}}
    assert [message.id for message in check_connection()] == ["mq_django.W001"]
    settings.CACHES = {"default": {**cache, "LOCATION": "redis://shop/1"}}
    assert check_connection() == []


def test_an_alias_does_not_have_such_a_url(settings, mq_settings):
    settings.CACHES = {"mq": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis+sentinel://s1/shop/0"}}
    mq_settings(CONNECTION="mq")
    (message,) = check_connection()
    assert (message.id, message.hint) == (
        "mq_django.E004",
        'Name this URL in MQ_DJANGO["CONNECTION"]. django-redis does not read it.',
    )


def test_messages_are_published_to_the_master(mq_settings, sentinel, master):
    mq_settings(CONNECTION=sentinel.url)
    message_id = queues["emails"].publish("welcome", {"user_id": 7})
    assert message_id
    pool = get_client("produce").connection_pool
    assert pool.master_address == ("127.0.0.1", master.port)


def test_no_session_stays_with_a_master_when_another_has_found_a_new_one(mq_settings, sentinel, master, monkeypatch):
    mq_settings(CONNECTION=sentinel.url)
    session, other = open_session("consume"), open_session("chores")
    (before,) = session.pipeline([("CLIENT", "ID")])
    with PrivateServer(tcp=True) as new:
        # Two connections of other pools, one after the failover.
        monkeypatch.setattr(
            MasterFinder, "check_master_state", lambda _, state, __: state.update(port=new.port) or True
        )
        (port,) = other.pipeline([("CONFIG", "GET", "port")])
        assert int(port[1]) == new.port
        (port,) = session.pipeline([("CONFIG", "GET", "port")])
        assert int(port[1]) == new.port
        assert (session.moves, other.moves) == (1, 0)
        monkeypatch.undo()
        other.close()
        (port,) = other.pipeline([("CONFIG", "GET", "port")])
        (after,) = session.pipeline([("CLIENT", "ID")])
    assert int(port[1]) == master.port
    assert after != before
    session.close()
    other.close()


def test_sentinels_that_do_not_answer_are_named(mq_settings):
    mq_settings(CONNECTION="redis+sentinel://127.0.0.1:1,127.0.0.1:2/shop/0?sentinel_password=secret")
    with pytest.raises(ConnectionLost) as caught:
        queues["emails"].publish("welcome", 1)
    assert str(caught.value) == (
        "Cannot reach Redis at the master 'shop' of the Sentinels 127.0.0.1:1, 127.0.0.1:2: "
        "127.0.0.1:1 does not answer (Connection refused), 127.0.0.1:2 does not answer (Connection refused)."
    )


def test_a_name_that_the_sentinels_do_not_know_is_said(mq_settings, sentinel):
    mq_settings(CONNECTION=f"redis+sentinel://127.0.0.1:{sentinel.port}/other")
    with pytest.raises(ConnectionRejected, match=f"'other'.*:{sentinel.port} does not know this name"):
        queues["emails"].publish("welcome", 1)
    # One that does not answer may know it.
    mq_settings(CONNECTION=f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/other")
    with pytest.raises(ConnectionLost, match=r"does not answer.*does not know this name"):
        queues["emails"].publish("welcome", 1)


def test_a_sentinel_that_asks_for_a_log_in_gets_its_own(mq_settings, master):
    with running_sentinel(master.port, lines="requirepass s&p\n") as locked:
        mq_settings(CONNECTION=f"redis+sentinel://127.0.0.1:{locked.port}/{MASTER}")
        with pytest.raises(ConnectionRejected, match="sentinel_password"):
            queues["emails"].publish("welcome", 1)
        mq_settings(CONNECTION=f"redis+sentinel://127.0.0.1:{locked.port}/{MASTER}?sentinel_password=s%26p")
        assert queues["emails"].publish("welcome", 1)


def test_a_redis_in_the_place_of_a_sentinel_is_named(mq_settings, master, sentinel):
    mq_settings(CONNECTION=f"redis+sentinel://127.0.0.1:{master.port}/{MASTER}")
    with pytest.raises(ConnectionRejected, match=r"is a Redis, not a Sentinel .*write redis://"):
        queues["emails"].publish("welcome", 1)
    # The next one is asked all the same.
    mq_settings(CONNECTION=f"redis+sentinel://127.0.0.1:{master.port},127.0.0.1:{sentinel.port}/{MASTER}")
    assert queues["emails"].publish("welcome", 1)


def test_a_sentinel_in_the_place_of_a_redis_is_named(mq_settings, sentinel, subtests):
    for database in ["", "/2"]:
        with subtests.test(database=database):
            mq_settings(CONNECTION=f"redis://127.0.0.1:{sentinel.port}{database}")
            with pytest.raises(ConnectionRejected, match=r"write redis\+sentinel://HOST:26379/NAME_OF_THE_MASTER/0"):
                queues["emails"].publish("welcome", 1)


def test_a_consumer_that_starts_on_a_sentinel_says_so(mq_settings, sentinel):
    mq_settings(CONNECTION=f"redis://127.0.0.1:{sentinel.port}")
    with pytest.raises(ConnectionRejected, match=r"is a Sentinel.*write redis\+sentinel://"):
        examine(get_client("chores"))


def test_passwords_of_urls_are_hidden_in_texts(subtests):
    for text in [
        "redis+sentinel://user:hidden1@s1:26379,s2:26379/shop/0",
        "rediss+sentinel://:hidden1@s1/shop?x=1",
        "redis+sentinel://s1:26379,s2:26379/shop/0?sentinel_username=u&sentinel_password=hidden1",
        "redis+sentinel://s1/shop/0?sentinel_password=hidden1&ssl_cert_reqs=none",
    ]:
        with subtests.test(text=text):
            found = redact_text(f"CONNECTION is {text}.")
            assert "hidden1" not in found
            assert "s1" in found


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_with_tls_the_master_is_found_and_used(mq_settings, tmp_path):
    port, sentinel_port = free_port(), free_port()
    try:
        server = TLSServer(tmp_path, port)
        server.server.settings = {**server.server.settings, "tls-replication": "yes"}
        server.__enter__()
    except ConnectionLost:
        pytest.skip("this server has no TLS")
    lines = [f"tls-{kind}-file {tmp_path / name}" for kind, name in FILES.items()]
    lines += [f"tls-port {sentinel_port}", "tls-auth-clients no", "tls-replication yes"]
    with contextlib.ExitStack() as stack:
        stack.callback(server.__exit__)
        stack.enter_context(running_sentinel(port, lines="\n".join(lines) + "\n"))
        url = f"rediss+sentinel://127.0.0.1:{sentinel_port}/{MASTER}/0"
        mq_settings(CONNECTION=f"{url}?ssl_ca_certs={server.ca}")
        wait_until(can_publish)
        mq_settings(CONNECTION=url)
        with pytest.raises(ConnectionLost, match=r"does not answer .*certificate verify failed"):
            queues["emails"].publish("welcome", 1)
        mq_settings(CONNECTION=url.replace("rediss", "redis"))
        with pytest.raises(ConnectionLost, match="does not answer"):
            queues["emails"].publish("welcome", 1)


def can_publish():
    """Return an id when the Sentinel has seen that the master is up."""
    with contextlib.suppress(ConnectionLost):
        return queues["emails"].publish("welcome", 1)
