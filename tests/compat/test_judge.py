"""The judge finds what a run of two versions may not do."""

from tests.compat.judge import LABELS, Account, faults


def whole_run():
    """Return the lines of a run in which all went well."""
    lines = [{"what": "tick", "kind": "tick", "by": "old", "id": str(number)} for number in range(10)]
    for publisher in LABELS:
        for handler in LABELS:
            for kind in ("ready", "cancel"):
                message = f"{kind}-{publisher}-{handler}"
                lines += [
                    {"what": "ok", "kind": kind, "by": publisher, "ids": [message]},
                    {"what": "effect", "kind": kind, "by": handler, "id": message, "version": f"/{handler}/code.py"},
                ]
    return [
        *lines,
        {"what": "ok", "kind": "cancel", "by": "old", "ids": ["taken-back"]},
        {"what": "named", "kind": "cancel", "by": "old", "id": "taken-back", "message_id": "m1"},
        {"what": "cancels", "kind": "cancel", "by": "new", "message_id": "m1"},
    ]


def found(lines):
    return list(faults(Account(lines), seconds=10))


def test_a_run_in_which_all_went_well_has_no_faults():
    assert found(whole_run()) == []


def test_each_fault_is_found(subtests):
    for line, fault in [
        ({"what": "ok", "kind": "ready", "by": "old", "ids": ["r9"]}, "1 messages of kind ready were lost: r9"),
        (
            {"what": "effect", "kind": "ready", "by": "new", "id": "ready-old-old"},
            "1 messages of kind ready were handled twice: ready-old-old",
        ),
        (
            {"what": "effect", "kind": "ready", "by": "new", "id": "r9"},
            "1 messages of kind ready were handled and never published: r9",
        ),
        (
            {"what": "effect", "kind": "cancel", "by": "new", "id": "taken-back"},
            "1 cancelled messages were handled: taken-back",
        ),
        ({"what": "tick", "kind": "tick", "by": "new", "id": "3"}, "1 ticks of the schedule were handled twice"),
    ]:
        with subtests.test(line=line, fault=fault):
            assert found([*whole_run(), line]) == [fault]


def test_a_run_that_shows_nothing_does_not_pass():
    mixed = [line for line in whole_run() if (line["what"], line["by"]) != ("effect", "old")]
    assert any("nothing went from publisher to handler" in sentence for sentence in found(mixed))
    assert any("the versions ran the code in" in sentence for sentence in found(mixed))
    assert "no version cancelled a message of the other" in found(whole_run()[:-1])
