"""Fixtures for pytest. In conftest.py: `pytest_plugins = ['uroce.testing.fixtures']`."""
import contextlib

import pytest

from . import fabric


@pytest.fixture
def rdma():
    """Two hosts with an RDMA device each; of this test alone."""
    with fabric(2) as hosts:
        yield hosts


@pytest.fixture
def rdma_fabric():
    """A function that makes a fabric, as uroce.testing.fabric() does; the end of the test ends it."""
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(fabric(*arguments, **options))
