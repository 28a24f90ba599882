"""Where the server is and what key opens it.

In order: the arguments, the environment (DSEC_URL, DSEC_API_KEY,
DSEC_STATE_DIR), then what `dsecd up` left in the state directory: `api-key` (mode
0600) and `run/url`.
"""
from __future__ import annotations

import os
from typing import Optional, Tuple

DEFAULT_URL = "http://127.0.0.1:7600"
DEFAULT_STATE_DIR = "/var/lib/dsec"


def _read(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8") as f:
            return f.read().strip() or None
    except FileNotFoundError:
        return None
    except PermissionError:
        return None  # the server then says "unauthenticated", which tells more


def discover(url: Optional[str], api_key: Optional[str], state_dir: Optional[str]) -> Tuple[str, Optional[str]]:
    """(url, key). A state directory given in the call beats the environment."""
    directory = state_dir or os.environ.get("DSEC_STATE_DIR") or DEFAULT_STATE_DIR
    if state_dir is None:
        url = url or os.environ.get("DSEC_URL") or None
        api_key = api_key or os.environ.get("DSEC_API_KEY") or None
    if url is None:
        url = _read(os.path.join(directory, "run", "url")) or DEFAULT_URL
    if "://" not in url:
        url = "http://" + url
    if api_key is None:
        api_key = _read(os.path.join(directory, "api-key"))
    return url, api_key
