"""The text of stacks: bounded, without secrets, and read whoever has written it."""

import json

from mq_django.core.stacks import MAX_BYTES, MAX_FRAMES, Frame, Stack, Stacks, read_stacks, redacted, stacks_text

FRAME = Frame("shop/tasks.py", 7, "export", "for row in rows:")


def stack(*frames, number=0, **options):
    return Stack("thread", "emails", f"m{number}", "export", 1500, frames, **options)


def test_what_is_written_is_read():
    found = [stack(FRAME, Frame("<string>", 0, "<module>")), stack(left_out=3, others=2)]
    assert read_stacks(stacks_text(found)) == Stacks([one._replace(frames=[*one.frames]) for one in found])


def test_a_frame_has_neither_secrets_nor_unprintable_characters():
    key = "AKIA" + "A" * 16
    frame = redacted(Frame(f"shop/{key}.py", 7, f"f.{key}", f'    login(password="hunter2", key="{key}")  # \u202e\n'))
    assert frame == Frame(
        "shop/[redacted].py", 7, "f.[redacted]", 'login(password=[redacted], key="[redacted]")  # <U+202E>'
    )


def test_what_another_program_has_written_is_redacted_when_it_is_read():
    text = json.dumps(
        {"stacks": [{"kind": "thread", "id": "AKIA" + "A" * 16, "frames": [["a.py", 1, "f", 'token = "abc123"']]}]}
    )
    (found,) = read_stacks(text.encode()).stacks
    assert found.id == "[redacted]"
    assert found.frames == [Frame("a.py", 1, "f", "token = [redacted]")]


def test_an_answer_is_bounded_and_keeps_the_innermost_frames(subtests):
    for count, depth in [(1, MAX_FRAMES), (30, MAX_FRAMES), (1500, 9)]:
        with subtests.test(count=count):
            frames = [Frame("a" * 200, line, "f" * 200, "c" * 250) for line in range(depth)]
            text = stacks_text([stack(*frames, number=number) for number in range(count)])
            assert len(text) <= MAX_BYTES
            found = read_stacks(text)
            assert len(found.stacks) + found.more == count
            for one in found.stacks:
                assert one.frames[-1] == frames[-1]
                assert len(one.frames) + one.left_out == depth


def test_what_is_no_answer_is_none(subtests):
    for text in [
        *(None, 7, b"", b"\xff", b"[]", b"{}", b'{"stacks":{}}', b'{"stacks":' + b"[" * 5000 + b"]" * 5000 + b"}"),
        b'{"stacks":[]}' + b" " * MAX_BYTES,
    ]:
        with subtests.test(text=text):
            assert read_stacks(text) is None


def test_what_is_no_stack_or_frame_is_left_out():
    strange = [
        *(7, None, [], {}, {"kind": "thread"}, {"kind": [], "frames": []}, {"kind": "other", "frames": []}),
        {
            "kind": "task",
            "frames": [7, [], ["a", "1", "f", "c"], ["a", 1, "f"], ["a", -5, "f", "c"], ["b", 1e3, "", ""]],
        },
        {"kind": "thread", "queue": 7, "name": "n" * 999, "ms": "9" * 50, "left_out": True, "others": -1, "frames": []},
    ]
    found = read_stacks(json.dumps({"stacks": strange, "more": "many"}).encode())
    assert found.more == 0
    task, thread = found.stacks
    assert task.frames == [Frame("a", 0, "f", "c")]
    assert (thread.queue, len(thread.name), thread.ms, thread.left_out, thread.others) == ("", 255, 0, 0, 0)


def test_a_stack_of_another_program_has_a_bounded_number_of_frames():
    text = json.dumps({"stacks": [{"kind": "thread", "frames": [["a", n, "f", ""] for n in range(9000)]}]})
    (found,) = read_stacks(text.encode()).stacks
    assert [frame.line for frame in found.frames] == list(range(8900, 9000))
