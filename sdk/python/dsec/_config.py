"""Where the server is and what key opens it.

In order: the arguments, the environment (DSEC_URL, DSEC_API_KEY,
DSEC_STATE_DIR), then what `dsec up` left in the state directory: `api-key` (mode
0600) and `run/url`. That key opens this machine's server only: it is never sent to an
address that the environment or an argument names without the directory.
"""
from __future__ import annotations

import os
from typing import Optional, Tuple

from .errors import NotConfigured

DEFAULT_URL = "http://127.0.0.1:7600"
DEFAULT_STATE_DIR = "/var/lib/dsec"


def _read(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8") as f:
            return f.read().strip() or None
    except FileNotFoundError:
        return None
    except PermissionError:
        raise NotConfigured(
            "%s cannot be read by this user; run as root, or set DSEC_URL and DSEC_API_KEY" % path
        ) from None


def discover(url: Optional[str], api_key: Optional[str], state_dir: Optional[str]) -> Tuple[str, Optional[str]]:
    """(url, key). A state directory given in the call beats the environment."""
    directory = state_dir or os.environ.get("DSEC_STATE_DIR") or DEFAULT_STATE_DIR
    if state_dir is None:
        url = url or os.environ.get("DSEC_URL") or None
        api_key = api_key or os.environ.get("DSEC_API_KEY") or None
    named = url is not None and state_dir is None
    if url is None:
        url = _read(os.path.join(directory, "run", "url")) or DEFAULT_URL
    if "://" not in url:
        url = "http://" + url
    if api_key is None and not named:
        api_key = _read(os.path.join(directory, "api-key"))
    return url, api_key
