"""Renames folders in a copy-on-write world, where the kernel refuses that (EXDEV) for those that were there before."""

import errno
import os
import shutil


def rename_folders():
    """Make `os.rename` and `os.replace` copy such a folder and remove it, as ``mv`` does; pathlib and shutil call them."""
    for name in ("rename", "replace"):
        setattr(os, name, _copying(getattr(os, name)))


def _copying(real):
    def renamed(src, dst, **kwargs):
        try:
            return real(src, dst, **kwargs)
        except OSError as error:
            if error.errno != errno.EXDEV or kwargs or not os.path.isdir(src) or os.path.islink(src):
                raise
        if os.path.isdir(dst):
            os.rmdir(dst)  # as rename(2): the target may be an empty folder
        shutil.copytree(src, dst, symlinks=True)
        shutil.rmtree(src)
        return None

    return renamed
