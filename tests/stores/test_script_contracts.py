"""The contract of each script: what it replies and writes, in every case that matters, as `contracts/golden/` has it.

`MQ_CONTRACTS=write python -m pytest tests/stores/test_script_contracts.py` writes these files anew, when a change is
meant; what is different in them is then to be reviewed like code.
"""

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.stores.contracts import (
    found,
    key_lines,
    letters,
    limited,
    outboxes,
    pages,
    partitioned,
    rsmq_queues,
    settling,
    streams,
    topics,
    waits,
    workflows,
)
from tests.stores.contracts.frozen import count_anew, freeze
from tests.stores.contracts.replay import Contracts
from tests.stores.contracts.stage import Stage
from tests.stores.lua_files import lua_files, outer_files

PARTS = (
    settling,
    streams,
    waits,
    limited,
    key_lines,
    letters,
    found,
    topics,
    rsmq_queues,
    pages,
    workflows,
    partitioned,
    outboxes,
)
GOLDEN = Path(__file__).parent / "contracts" / "golden"
WRITES = os.environ.get("MQ_CONTRACTS") == "write"

Texts = Mapping[str, str]


@pytest.fixture
def contracts(mq_settings, namespace, redis_client, declared_keys) -> Contracts:
    contracts = Contracts(redis_client, namespace)
    with pytest.MonkeyPatch.context() as patch:
        freeze(patch)
        contracts.install(patch)
        stage = Stage(contracts, mq_settings, namespace)
        for scene in (scene for part in PARTS for scene in part.scenes()):
            with patch.context() as ids:
                count_anew(ids)
                try:
                    scene(stage)
                except Exception as error:  # noqa: BLE001 - what its scripts did differently says more
                    contracts.ended.append(f"A scene ended with {error!r:.200}")
            stage.clear()
    return contracts


@pytest.mark.single_server(why="the contracts have the keys of RSMQ without a hash tag")
def test_every_script_keeps_its_contract(contracts):
    texts = contracts.texts()
    if WRITES and not contracts.ended:
        write(texts)
    agreed = read(GOLDEN)
    different = [text for name in sorted({*agreed, *texts}) for text in compared(name, agreed, texts)]
    if different or contracts.ended:
        pytest.fail("\n".join([*different, *contracts.ended]), pytrace=False)
    assert set(texts) == lua_files() | outer_files(), "each script has its scene in tests/stores/contracts/"


def read(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.txt")}


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
