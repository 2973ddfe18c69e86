"""A Prometheus of a test: it scrapes one target, and ends with the test."""

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import yaml

from tests.waiting import wait_until

#: The folder with prometheus and promtool, if they are not on PATH.
VARIABLE = "MQ_PROMETHEUS"


def program(name: str) -> str | None:
    """Return the path of prometheus or promtool; None if it is not there."""
    return shutil.which(name, path=os.environ.get(VARIABLE) or None)


class PrometheusProgram:
    """A running Prometheus."""

    def __init__(self, folder: Path, *, target: str, token: str, rules: Path) -> None:
        self._folder = folder
        (folder / "token").write_text(token)
        # As in docs/prometheus.md, and so fast that a test need not wait.
        config = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {
                    "job_name": "mq_django",
                    "metrics_path": "/metrics/",
                    "authorization": {"credentials_file": str(folder / "token")},
                    "static_configs": [{"targets": [target]}],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def __enter__(self) -> "PrometheusProgram":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        arguments = {
            "config.file": self._folder / "prometheus.yml",
            "storage.tsdb.path": self._folder / "data",
            "web.listen-address": self._address,
            "log.level": "warn",
        }
        path = program("prometheus")
        assert path is not None
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [path, *(f"--{name}={value}" for name, value in arguments.items())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )
        try:
            wait_until(self._is_ready, timeout=60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an instant query."""
        return list(self.get("query", query=expression)["result"])

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its HTTP API."""
        # It answers an error with 400, which urlopen() raises with the reason.
        request = Request(f"http://{self._address}/api/v1/{path}?{urlencode(parameters)}")
        with urlopen(request, timeout=30) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            with urlopen(f"http://{self._address}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, ConnectionError):
            return False
