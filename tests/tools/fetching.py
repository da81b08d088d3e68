"""fetching.py: what the programs share that fetch files from the Python package registry into the cache folder."""
import os
import shutil
import subprocess
import sys


def say(what, text):
    print(what + ": " + text, file=sys.stderr, flush=True)


class Stop(Exception):
    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


def cache_folder():
    env = os.environ
    if env.get("DRIFTSCOPE_CACHE"):
        return env["DRIFTSCOPE_CACHE"]
    if env.get("XDG_CACHE_HOME", "").startswith("/"):  # a relative one is to be ignored, says its specification
        return os.path.join(env["XDG_CACHE_HOME"], "driftscope")
    if env.get("HOME"):
        return os.path.join(env["HOME"], ".cache", "driftscope")
    raise Stop("no cache folder: set DRIFTSCOPE_CACHE or HOME")


def works(pip):
    return subprocess.run(pip + ["--version"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def find_pip(work):
    """This Python's pip, else the one on PATH, else that of a virtual environment made for the purpose."""
    own = [sys.executable, "-m", "pip"]
    if works(own):
        return own
    for name in ("pip3", "pip"):
        path = shutil.which(name)
        if path and works([path]):
            return [path]
    folder = os.path.join(work, "venv")
    made = subprocess.run([sys.executable, "-m", "venv", folder], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
    inside = [os.path.join(folder, "bin", "python"), "-m", "pip"]
    if made.returncode == 0 and works(inside):
        return inside
    raise Stop("no pip here; install python3-pip (make deps does)", 3)


PIP_ENV = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
