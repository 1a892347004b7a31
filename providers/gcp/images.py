"""Which public image a machine boots: found by the families that Google and Canonical publish."""

from __future__ import annotations

import re
from typing import Any

from costgpu.errors import InvalidRequest
from costgpu.models.offer import Offer
from costgpu.providers.common import Image, ImageCache
from costgpu.providers.gcp.launch import split_type
from costgpu.providers.gcp.session import Clients

DEEP_LEARNING = "deeplearning-platform-release"
DRIVER_FAMILIES = ("common-cu129-ubuntu-2204-nvidia-580", "common-cu129-ubuntu-2404-nvidia-580")
"""CUDA and NVIDIA's driver are in the image, so nothing is installed at boot (``install-nvidia-driver``, which takes
minutes, is for the images without). Source: Deep Learning VM Images, "Choose an image", base images for GPU (2026-11)."""
DRIVER_PATTERN = r"common-cu[0-9]+-ubuntu-[0-9]+-nvidia-[0-9]+"
"""What such families are called: CUDA, Ubuntu and driver in turn."""
LAST_DRIVER_FOR_OLD = 580
"""The last branch with Pascal and Volta (P4, P100, V100). Source: NVIDIA, "Unix driver archive" (2025-10)."""
OLD = frozenset({"P4", "P100", "V100"})

UBUNTU = "ubuntu-os-cloud"
UBUNTU_FAMILIES = {
    "x86_64": ("ubuntu-2404-lts-amd64", "ubuntu-2204-lts"),
    "arm64": ("ubuntu-2404-lts-arm64", "ubuntu-2204-lts-arm64"),
}
"""Source: Canonical, "Find Google Cloud images", and Compute Engine, "Operating system details" (2026-11)."""

NAMED = re.compile(r"projects/(?P<project>[a-z0-9.:-]+)/global/images/(?P<family>family/)?(?P<name>[a-z][a-z0-9-]*)")


def families_for(offer: Offer) -> tuple[str, tuple[str, ...]]:
    """Project and families of an offer's image, the preferred one first.

    Raises:
        InvalidRequest: No public image has a driver for this accelerator.
    """
    if offer.accelerator is None:
        return UBUNTU, UBUNTU_FAMILIES.get(offer.architecture, ())
    if offer.architecture != "x86_64" or offer.accelerator.count < 1:
        raise InvalidRequest(
            f"Google publishes no image with a driver for {offer.instance_type} ({offer.accelerator.name}).",
            hint="Choose another type, or name an image of your own that has the driver (gcp_image).",
        )
    return DEEP_LEARNING, DRIVER_FAMILIES


class Images:
    """Looks images up, once each.

    Args:
        image: ``projects/PROJECT/global/images/NAME`` or ``.../family/FAMILY`` instead; None for the public ones.
    """

    def __init__(self, clients: Clients, image: str | None = None) -> None:
        self._clients = clients
        self._named = NAMED.fullmatch(image) if image else None
        if image and self._named is None:
            raise InvalidRequest(
                f"{image!r} is no image of Google Cloud.",
                hint="Write projects/PROJECT/global/images/NAME or projects/PROJECT/global/images/family/FAMILY.",
            )
        self._cache = ImageCache()

    def check(self, offer: Offer) -> None:
        """Raises `InvalidRequest` if no image is known for the offer's type; asks nobody."""
        if self._named is None:
            families_for(offer)

    def find(self, offer: Offer) -> Image:
        """The image that an offer boots."""
        return self._cache.get(self._key(offer), offer, lambda: _image(self._look_up(offer)))

    def _key(self, offer: Offer) -> tuple[str, ...]:
        if self._named is not None:
            return (self._named.group(),)
        project, families = families_for(offer)
        return (project, *families, "old" if _is_old(offer) else "")

    def _look_up(self, offer: Offer) -> Any:
        if self._named is not None:
            row = self._one(self._named["project"], self._named["name"], family=bool(self._named["family"]))
            if row is None:
                raise InvalidRequest(f"There is no image {self._named.group()}, or these credentials may not see it.")
            return row
        project, families = families_for(offer)
        for family in families:
            row = self._one(project, family, family=True)
            if row is not None:
                return row
        row = self._newest(offer) if project == DEEP_LEARNING else None
        if row is None:
            raise InvalidRequest(
                f"No public image: the project {project} has none of the families {', '.join(families)}.",
                hint="Name an image of your own: gcp_image.",
            )
        return row

    def _one(self, project: str, name: str, *, family: bool) -> Any | None:
        doing = f"look up the image {name} of {project}"
        if family:
            return self._clients.maybe(doing, "Images", "get_from_family", family=name, project=project)
        return self._clients.maybe(doing, "Images", "get", image=name, project=project)

    def _newest(self, offer: Offer) -> Any | None:
        """The families have other names by now: the newest driver that serves this accelerator."""
        question = {"project": DEEP_LEARNING, "filter": f'family eq "{DRIVER_PATTERN}"'}
        pages = self._clients.pages("list the images with a driver", "Images", "list", **question)
        rows = [row for page in pages for row in page.items if not row.deprecated.state and str(row.status) == "READY"]
        fit = [row for row in rows if not _is_old(offer) or _numbers(str(row.family))[-1] <= LAST_DRIVER_FOR_OLD]
        return max(fit, key=lambda row: (_numbers(str(row.family))[::-1], str(row.name)), default=None)


def _image(row: Any) -> Image:
    return Image(
        name=_path(str(row.self_link)),
        root_gib=int(row.disk_size_gb),
        architecture=str(row.architecture).lower() or "x86_64",
    )


def _is_old(offer: Offer) -> bool:
    return offer.accelerator is not None and split_type(offer.instance_type)[1] in OLD


def _numbers(family: str) -> tuple[int, ...]:
    """CUDA, Ubuntu, driver."""
    return tuple(int(number) for number in re.findall(r"\d+", family)) or (0,)


def _path(url: str) -> str:
    return url[url.index("projects/") :] if "projects/" in url else url
