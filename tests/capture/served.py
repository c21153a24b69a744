"""Servers on this machine that hold files: an object store."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

import pytest

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "anna", "AWS_SECRET_ACCESS_KEY": "geheim"}


@contextmanager
def object_store() -> Iterator[Any]:
    """An S3 server of which the environment tells, also that of processes that are started meanwhile."""
    server_of = pytest.importorskip("moto.server", reason="moto is not installed")
    s3fs = pytest.importorskip("s3fs", reason="the extra s3 is not installed")
    server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        told = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (told | CREDENTIALS).items():
                patch.setenv(name, value)
            connection = HTTPConnection(host, port)
            connection.request("POST", "/moto-api/reset")  # forget what servers before it were given
            assert connection.getresponse().status == 200
            connection.close()
            s3fs.S3FileSystem.clear_instance_cache()  # of a test before, which know a server that is gone
            system = s3fs.S3FileSystem(skip_instance_cache=True)
            system.mkdir("bucket")
            yield system
    finally:
        server.stop()
