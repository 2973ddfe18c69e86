"""The contract of each script that is a promise to programs in other languages: what it replies and writes.

`contracts/golden/` has it, in every case that matters. `MQ_CONTRACTS=write python -m pytest
tests/stores/test_script_contracts.py` writes these files anew, when a change is meant; what is different in them is
then to be reviewed like code. All other scripts are tested by what the stores do with them.
"""

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.stores.contracts import (
    limited,
    outboxes,
    partitioned,
    results,
    rsmq_queues,
    settling,
    streams,
    topics,
    waits,
)
from tests.stores.contracts.frozen import count_anew, freeze
from tests.stores.contracts.replay import Contracts
from tests.stores.contracts.stage import Stage
from tests.stores.lua_files import lua_files

PARTS = (settling, streams, waits, limited, topics, rsmq_queues, results, partitioned, outboxes)
GOLDEN = Path(__file__).parent / "contracts" / "golden"
WRITES = os.environ.get("MQ_CONTRACTS") == "write"
PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
#: Those that write what programs with RSMQ's format read.
OF_RSMQ = {
    *("create", "attributes", "send", "receive", "pop", "change_visibility", "delete", "delete_queue"),
}
#: Those that relays of another version run on the same marks, during a rolling deploy.
OF_OUTBOXES = {"outbox_refuse", "outbox_end", "ended_read", "ended_done"}

Texts = Mapping[str, str]


def promised() -> set[str]:
    """Return the scripts that programs in other languages call, or whose effects they read."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition("<!-- scripts -->")
    rows = set(re.findall(r"^- `(\w+)`: ", table.partition("\n\n")[0], re.MULTILINE))
    return {*rows, *OF_OUTBOXES, *(f"rsmq_{name}" for name in OF_RSMQ)}


@pytest.fixture
def contracts(mq_settings, namespace, redis_client, declared_keys) -> Contracts:
    contracts = Contracts(redis_client, namespace, promised())
    with pytest.MonkeyPatch.context() as patch:
        freeze(patch)
        contracts.install(patch)
        stage = Stage(contracts, mq_settings, namespace)
        for number, scene in enumerate(scene for part in PARTS for scene in part.scenes()):
            contracts.scene = number
            with patch.context() as ids:
                count_anew(ids)
                try:
                    scene(stage)
                except Exception as error:  # noqa: BLE001 - what its scripts did differently says more
                    contracts.ended.append(f"A scene ended with {error!r:.200}")
            stage.clear()
    return contracts


@pytest.mark.single_server(why="the contracts have the keys of RSMQ without a hash tag")
def test_every_promised_script_keeps_its_contract(contracts):
    texts = contracts.texts()
    if WRITES and not contracts.ended:
        write(texts)
    agreed = {path.stem: path.read_text(encoding="utf-8") for path in GOLDEN.glob("*.txt")}
    different = [text for name in sorted({*agreed, *texts}) for text in compared(name, agreed, texts)]
    if different or contracts.ended:
        pytest.fail("\n".join([*different, *contracts.ended]), pytrace=False)
    assert set(texts) == promised() <= lua_files(), "each of these scripts has its scene in tests/stores/contracts/"


def compared(name: str, agreed: Texts, texts: Texts) -> list[str]:
    """Return what is different, each part under the title of its call."""
    was, now = (found.get(name, "").splitlines() for found in (agreed, texts))
    lines = difflib.unified_diff(was, now, f"{name}, as agreed", f"{name}, as it is", lineterm="", n=4)
    return [f"{line} {title_at(was, line)}" if line.startswith("@@") else line for line in lines]


def title_at(was: Sequence[str], hunk: str) -> str:
    first = int(hunk.split()[1].lstrip("-").partition(",")[0])
    return next((line for line in reversed(was[:first]) if line.startswith("## ")), "")


def write(texts: Texts) -> None:
    for path in GOLDEN.glob("*.txt"):
        path.unlink()
    for name, text in texts.items():
        (GOLDEN / f"{name}.txt").write_text(text, encoding="utf-8")
