"""The files of docs/deployment: by the tools that read them, and by the commands that they start."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mq_django.conf import get_config
from mq_django.management.commands import mq, runconsumer
from mq_django.transport.connections import get_client
from tests.deployment.recipes import (
    FOLDER,
    LAST_STEPS,
    MANIFESTS,
    ROOT,
    UNITS,
    image_command,
    instructions,
    procfile,
    unit,
    unit_command,
)
from tests.seeding import publish, take

NEEDS_GROUP = "needs the dependency group `deployment`"
needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")


def tool(name):
    """Return the path of a tool of the dependency group."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(NEEDS_GROUP)
    return found


def outcome(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    return done.returncode, done.stdout + done.stderr


def documents(path):
    yaml = pytest.importorskip("yaml", reason=NEEDS_GROUP)
    return list(yaml.safe_load_all(path.read_text()))


def containers():
    """Yield each container of the manifests with the spec of its pod."""
    for path in MANIFESTS:
        for document in documents(path):
            pod = document["spec"].get("template", {}).get("spec", {})
            yield from ((pod, container) for container in pod.get("containers", []))


def services():
    (document,) = documents(FOLDER / "compose.yaml")
    return document["services"]


def runconsumer_options(command):
    arguments = command[command.index("runconsumer") + 1 :]
    return runconsumer.Command().create_parser("manage.py", "runconsumer").parse_args(arguments)


def consumer_deployment():
    return next((pod, container) for pod, container in containers() if container["name"] == "consumer")


class TestTools:
    def test_the_dockerfile_satisfies_hadolint(self):
        assert outcome(tool("hadolint"), str(FOLDER / "Dockerfile")) == (0, "")

    def test_the_compose_file_fits_the_schema(self):
        code, said = outcome(
            tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(FOLDER / "compose.yaml")
        )
        assert code == 0, said

    def test_the_manifests_fit_the_schemas_of_kubernetes(self, subtests):
        for path in [path for path in MANIFESTS if path.stem != "keda"]:
            with subtests.test(path=path):
                code, said = outcome(tool("kubernetes-validate"), "--strict", "--no-warn", str(path))
                assert code == 0, said
                assert said.count("passed") == len(documents(path))

    @needs_systemd
    def test_systemd_understands_the_units(self, tmp_path, subtests):
        for path in UNITS:
            with subtests.test(path=path):
                copy = tmp_path / path.name
                # The program must be there.
                copy.write_text(path.read_text().replace("/srv/shop/.venv/bin/python", sys.executable))
                assert outcome("systemd-analyze", "verify", "--man=no", "--generators=no", str(copy)) == (0, "")

    @needs_systemd
    def test_systemd_analyze_names_a_mistake(self, tmp_path):
        """It does not only look whether the file is there."""
        copy = tmp_path / "mq-consumer.service"
        copy.write_text(UNITS[0].read_text().replace("WatchdogSec", "WatchdogSecs"))
        assert "WatchdogSecs" in outcome("systemd-analyze", "verify", "--man=no", "--generators=no", str(copy))[1]


class TestOptions:
    def test_each_unit_names_options_that_there_are(self):
        for path in UNITS:
            options = runconsumer_options(unit_command(path))
            service = unit(path)["Service"]
            assert float(service["TimeoutStopSec"]) >= options.grace + LAST_STEPS
            assert (service["Type"], service["KillMode"]) == ("notify", "mixed")

    def test_the_unit_for_one_queue_differs_only_in_its_queue(self):
        plain, template = (path.read_text().splitlines() for path in UNITS)
        differing = {line.partition("=")[0] for line in set(plain) ^ set(template) if not line.startswith("#")}
        assert differing == {"Description", "ExecStart"}
        assert runconsumer_options(unit_command(UNITS[1])).queues == ["emails"]

    def test_the_image_does_not_run_as_root_and_has_an_init(self):
        found = dict(instructions((FOLDER / "Dockerfile").read_text()))
        assert found["USER"].partition(":")[0].isdecimal()
        assert found["ENTRYPOINT"] == '["tini", "--"]'
        assert runconsumer_options(image_command()).health_port

    def test_compose_waits_for_handlers(self):
        grace = int(services()["consumer"]["stop_grace_period"].removesuffix("s"))
        assert grace >= runconsumer_options(image_command()).grace + LAST_STEPS

    def test_kubernetes_waits_for_handlers(self):
        pod, container = consumer_deployment()
        options = runconsumer_options(container["args"])
        assert pod["terminationGracePeriodSeconds"] >= options.grace + LAST_STEPS
        needed = options.processes * options.max_memory + 100
        assert int(container["resources"]["limits"]["memory"].removesuffix("Mi")) >= needed

    def test_the_probes_of_kubernetes_ask_the_port(self):
        _, container = consumer_deployment()
        (port,) = container["ports"]
        assert runconsumer_options(container["args"]).health_port == ("", port["containerPort"])
        asked = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
        assert {get["port"] for get in asked.values()} == {port["name"]}
        assert [get["path"] for get in asked.values()] == ["/startup", "/live", "/ready"]

    def test_no_container_keeps_rights_that_it_does_not_need(self):
        for pod, container in containers():
            assert pod["securityContext"]["runAsNonRoot"]
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}

    def test_hosts_that_kill_after_30_seconds_get_a_shorter_grace(self):
        assert runconsumer_options(procfile()["consumer"]).grace + LAST_STEPS > 30 >= 10 + 15
        assert runconsumer_options(procfile()["consumer"]).grace == 10

    def test_each_file_is_named_in_the_page(self):
        page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
        files = [path.relative_to(FOLDER.parent).as_posix() for path in FOLDER.rglob("*") if path.is_file()]
        assert [name for name in files if f"({name})" not in page] == []

    def test_commands_of_the_page_can_be_parsed(self):
        page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
        commands = {"mq": mq, "runconsumer": runconsumer}
        lines = re.findall(r"^\$ manage.py (.+)|`(?:manage.py )?((?:mq|runconsumer) [^`]+)`", page, re.MULTILINE)
        found = [(line or span).split() for line, span in lines]
        assert len(found) >= 5
        for verb, *arguments in [words for words in found if words[0] in commands]:
            assert commands[verb].Command().create_parser("manage.py", verb).parse_args(arguments)


def test_what_keda_reads_is_the_number_of_ready_and_running_messages(mq_settings):
    """Redis itself is asked: no schema of a ScaledObject is in a package."""
    (scaled,) = documents(FOLDER / "kubernetes" / "keda.yaml")
    (trigger,) = scaled["spec"]["triggers"]
    assert scaled["spec"]["scaleTargetRef"]["name"] == consumer_of("kubernetes")["metadata"]["name"]
    keys = get_config().queue("emails").keys
    stream = trigger["metadata"]["stream"].replace("mq:", f"{keys.namespace}:", 1)
    for number in range(3):
        publish("emails", "welcome", number)
    publish("emails", "welcome", delay=3600)
    take("emails", 1)
    assert get_client("produce", "").xlen(stream) == 3


def consumer_of(folder):
    return documents(FOLDER / folder / "consumer.yaml")[0]
