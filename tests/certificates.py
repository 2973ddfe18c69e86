"""Certificates for servers with TLS, by the program `openssl`."""

import subprocess
from pathlib import Path

from mq_django.transport.private_server import PrivateServer


class TLSServer:
    """A private server that speaks TLS on a port of 127.0.0.1, and its CA's certificate.

    The servers inside packages have no TLS: they end at once, which is ConnectionLost.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.ca = folder / "ca.pem"
        make_certificates(folder)
        files = {"cert": folder / "server.pem", "key": folder / "server.key", "ca-cert": self.ca}
        settings = {f"tls-{kind}-file": str(path) for kind, path in files.items()}
        self.server = PrivateServer(settings={"tls-port": str(port), "tls-auth-clients": "no", **settings})
        self.url = f"rediss://127.0.0.1:{port}"

    @property
    def trusted_url(self) -> str:
        return f"{self.url}?ssl_ca_certs={self.ca}"

    def __enter__(self) -> "TLSServer":
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()


def make_certificates(folder: Path) -> None:
    """Make a CA (ca.pem) and a certificate of 127.0.0.1 (server.pem, server.key) in a folder."""
    names = folder / "names"
    # Python 3.13 wants all that the standard asks for.
    names.write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n", encoding="ascii")
    usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    _openssl(folder, *new, *usage, "-x509", "-days", "2", "-subj", "/CN=test CA", "-keyout", "ca.key", "-out", "ca.pem")
    _openssl(folder, *new, "-subj", "/CN=test server", "-keyout", "server.key", "-out", "server.csr")
    signed_by = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", names.name]
    _openssl(folder, "x509", "-req", "-in", "server.csr", *signed_by, "-out", "server.pem")


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=280)
