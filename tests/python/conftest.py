"""What a user's conftest.py has."""
pytest_plugins = ['uroce.testing.fixtures']
