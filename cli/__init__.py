"""The command ``abc``: parse, call, print."""
