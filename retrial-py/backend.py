"""Builds the wheel by maturin, with the command `retrial` in it.

The command is built as `cargo install` does, from `retrial-cli` beside this package. RETRIAL_COMMAND is the whole path
of a file to take instead.
"""

import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import *  # noqa: F403: the hooks that stay as they are

HERE = Path(__file__).parent
SCRIPTS = HERE / "retrial.data" / "scripts"


def add_command():
    shutil.rmtree(SCRIPTS.parent, ignore_errors=True)
    SCRIPTS.mkdir(parents=True)
    command = os.environ.get("RETRIAL_COMMAND")
    if not command:
        cli, root = HERE.parent / "retrial-cli", HERE.parent / "target" / "wheel"
        call = ["cargo", "install", "--locked", "--quiet", "--force", "--no-track", "--path", cli, "--root", root]
        subprocess.run(call, check=True)
        command = root / "bin" / "retrial"
    subprocess.run(["strip", "-o", SCRIPTS / "retrial", command], check=True)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    add_command()
    try:
        return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    finally:
        shutil.rmtree(SCRIPTS.parent)
