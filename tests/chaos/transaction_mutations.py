"""Safeguards of the outbox and the inbox, each with the tests that find that it is missing."""

from tests.chaos.mutation import Mutation

LUA = "mq_django/transport/lua"
CLAIMS, PLACE_RELAY = "mq_django/outbox/claims.py", "mq_django/outbox/place_relay.py"
ONCE, IDENTITY = "mq_django/inbox/once.py", "mq_django/inbox/identity.py"
#: Tests play what is a matter of moments in a scenario.
RELAY_TESTS = "tests/outbox/test_place_relay.py"
ONCE_TESTS, REPEAT_TESTS = "tests/inbox/test_once.py", "tests/inbox/test_repeats.py"
#: Which scenario these belong to, for `python -m tests.chaos.mutations outbox-postgresql`.
SCENARIO = "outbox-postgresql"

TRANSACTION_MUTATIONS = [
    Mutation(
        name="the look for gaps: a chunk is published again, or before what comes next",
        files=[f"{LUA}/parts/outbox_mark.lua"],
        pattern=r"  elseif mark\.done ~= after then\n    return 'GAP'\n",
        replacement="",
        scenario=SCENARIO,
        test=RELAY_TESTS,
    ),
    Mutation(
        name="the mark: a script publishes rows, and does not write how far it is",
        files=[f"{LUA}/around/outbox_publish.lua"],
        pattern=r"mark\.done = tonumber\(row\)\nwrite_mark\(key, field, mark\)\n",
        replacement="mark.done = tonumber(row)\n",
        scenario=SCENARIO,
        # With several chunks of a claim its relay would publish for ever.
        test=f"{RELAY_TESTS}::test_a_relay_that_dies_before_it_finishes_has_published_once",
    ),
    Mutation(
        name="the condition of finishing: whoever comes late ends the claim of another relay",
        files=[CLAIMS],
        pattern=r"if not self\._state_of\(claim\)\.update\(token=\"\"\):\n                return False\n"
        r"(            self\._set_aside\(claim, refused\)\n            self\._end_rows\(claim, \[)",
        replacement=r'self._states.filter(pk=claim.state_id).update(token="")\n\1',
        scenario=SCENARIO,
        test=RELAY_TESTS,
    ),
    Mutation(
        name="the condition of deleting: rows are deleted whose claim is another one by now",
        files=[CLAIMS],
        pattern=r"if not self\._state_of\(claim\)\.update\(token=\"\"\):\n                return False\n"
        r"(            self\._set_aside\(claim, refused\)\n            self\._end_rows\(claim, \[)",
        replacement=r'self._state_of(claim).update(token="")\n\1',
        scenario=SCENARIO,
        test=RELAY_TESTS,
        also=[
            (CLAIMS, r"filter\(pk__in=ids, batch=batch\)", "filter(pk__in=ids)"),
        ],
    ),
    Mutation(
        name="the refused rows of the mark: a relay sets aside only what it has been told itself",
        files=[PLACE_RELAY],
        pattern=r"\(mark\.done, mark\.refused\) if is_same",
        replacement="(mark.done, self._refused) if is_same",
        scenario=SCENARIO,
        test=RELAY_TESTS,
    ),
    Mutation(
        name="the comparison of a claim: two relays claim rows under one number",
        files=["mq_django/outbox/claim_statements.py"],
        pattern=r"AND number = %s AND token = '' AND problem = ''\"",
        replacement='AND %s >= 0"',
        scenario=SCENARIO,
        test=RELAY_TESTS,
    ),
    Mutation(
        name="the transaction of the inbox: its row is written in another one, after the commit",
        files=[ONCE],
        pattern=r"        if entries\.writes_first:\n            self\._add\(identity\)\n",
        replacement="",
        scenario=SCENARIO,
        test=ONCE_TESTS,
        also=[
            (
                ONCE,
                r"                raise Taken\n            self\._add\(identity\)\n",
                "                raise Taken\n",
            ),
            (
                ONCE,
                r"        self\._is_committed = True\n",
                "        self._is_committed = True\n        self._add(self._in_pass())\n",
            ),
        ],
    ),
    Mutation(
        name="the transaction of the inbox: its row is written in another one, before the handler",
        files=[ONCE],
        pattern=r"        is_outermost = not (connections\[self\._using\])\.in_atomic_block\n",
        replacement=r"\g<0>        self._add(self._in_pass())\n",
        scenario=SCENARIO,
        test=ONCE_TESTS,
        also=[
            (ONCE, r"        if entries\.writes_first:\n            self\._add\(identity\)\n", ""),
            (
                ONCE,
                r"                raise Taken\n            self\._add\(identity\)\n",
                "                raise Taken\n",
            ),
        ],
    ),
    Mutation(
        name="the rollback of a retry: the row of the inbox stays",
        files=[ONCE],
        pattern=r"            raise _NotAcked\(outcome\)\n",
        replacement="            return outcome\n",
        scenario=SCENARIO,
        test=ONCE_TESTS,
    ),
    Mutation(
        name="the identity without a partition: after repartitioning an effect happens again",
        files=[IDENTITY],
        pattern=r"cls\(public_name\(queue\), message\.id",
        replacement="cls(queue, message.id",
        scenario=SCENARIO,
        test=REPEAT_TESTS,
    ),
    Mutation(
        name="the identity without a generation: an effect happens again when its message is published again",
        files=[IDENTITY],
        pattern=r"cls\(public_name\(queue\), message\.id",
        replacement='cls(public_name(queue), f"{message.id} {message.published_ms}"',
        scenario=SCENARIO,
        test=REPEAT_TESTS,
    ),
]
