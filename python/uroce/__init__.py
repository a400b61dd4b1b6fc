"""RDMA in user space: what Python programs need of it is in uroce.testing."""
