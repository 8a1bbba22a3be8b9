"""Where the tokenizer of somebody else's model is, in the one format that is read."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from abc_calib.files import make_folder, runs_root, write_atomically

READ = "tokenizer.json"
BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


def tokenizer_of(folder: Path) -> Path:
    """The folder itself, or one with what was made of its vocabulary, among the runs.

    Files of slow tokenizers are converted where ``transformers`` can; where it cannot, whoever
    reads the folder refuses it.
    """
    made = None if (folder / READ).is_file() else converted(folder)
    if made is None:
        return folder
    files = [folder / name for name in sorted({*made.vocab_files_names.values(), *BESIDE})]
    content = b"".join(file.read_bytes() for file in files if file.is_file())
    kept = runs_root().resolve() / "tokenizers" / hashlib.sha256(content).hexdigest()[:12]
    if not (kept / READ).is_file():
        make_folder(kept.parent)
        write_atomically(kept, made.save_pretrained)
    return kept


def converted(folder: Path) -> Any:
    """The fast tokenizer of a folder without one; None if it has no vocabulary to make it of."""
    import transformers

    said = transformers.utils.logging
    level = said.get_verbosity()
    said.set_verbosity(said.CRITICAL)
    try:
        made: Any = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception:  # whatever its code raises, a library that is not installed too
        return None
    finally:
        said.set_verbosity(level)
    # without a file of them some families make a tokenizer of special tokens alone
    files = {*getattr(made, "vocab_files_names", {}).values()}
    there = made.is_fast and any((folder / name).is_file() for name in files)
    return made if there else None
