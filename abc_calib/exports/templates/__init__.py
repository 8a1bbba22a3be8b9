"""The code of exported files: each is what follows a file's imports, as it stands here."""
